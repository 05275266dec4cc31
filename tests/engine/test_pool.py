import gc
import weakref

import numpy as np
import pytest
import torch

import smdl

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3)
EVEN = np.full((4, 2), 0.5)


def poisoned(value: float) -> np.ndarray:
    features = FEATURES.copy()
    features[2, 1] = value
    return features


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": poisoned(np.nan)}, r"features must be finite, got nan at \(2, 1\)"),
        ({"features": poisoned(np.inf)}, r"features must be finite, got inf at \(2, 1\)"),
        ({"features": poisoned(-np.inf).astype(np.float64)}, r"features must be finite, got -inf at \(2, 1\)"),
        ({"features": np.zeros((0, 3))}, "empty pool"),
        ({"features": np.zeros(4)}, r"features must have two dimensions .* got shape \(4,\)"),
        ({"features": np.zeros((4, 0))}, r"got shape \(4, 0\)"),
        ({"features": np.array([["a"]])}, "features must be numbers"),
        ({"features": torch.zeros(2, 2, dtype=torch.complex64)}, "features must be real numbers"),
        ({"features": FEATURES, "probabilities": EVEN * np.nan}, "probabilities must be finite, got nan"),
        ({"features": FEATURES, "probabilities": EVEN * 3}, "probabilities must sum to 1 in every row, got 3 in row 0"),
        ({"features": FEATURES, "probabilities": EVEN - np.array([0.7, -0.7])}, "probabilities must be ≥ 0, got -0.2"),
        ({"features": FEATURES, "probabilities": EVEN[:3]}, "4 features, 3 probabilities"),
        ({"features": FEATURES, "labels": [0, 1]}, "4 features, 2 labels"),
        ({"features": FEATURES, "labels": [0.0, 1, 1, 0]}, "labels must be whole class numbers"),
        (
            {"features": FEATURES, "labels": [[0], [1], [1], [0]]},
            r"labels must have one dimension .* \(4, 1\)",
        ),
        ({"features": FEATURES, "labels": [0, -1, 1, 0]}, "labels must be class numbers ≥ 0, got -1"),
        ({"features": FEATURES, "labels": [0, 2, 1, 0], "probabilities": EVEN}, "below the 2 classes .* got 2"),
        ({"features": FEATURES, "losses": np.zeros((4, 1))}, "losses must have one dimension"),
        ({"features": FEATURES, "losses": [0, 1, np.nan, 1]}, "losses must be finite"),
        ({"features": FEATURES, "reference": FEATURES[:2]}, "4 features, 2 reference"),
    ],
)
def test_bad_input_is_refused_with_its_name_value_and_rule(arguments, message):
    with pytest.raises(ValueError, match=message):
        smdl.Pool(**arguments)


def test_numpy_torch_lists_and_other_types_make_the_same_pool():
    objective = smdl.Objective(redundancy=1.0, mean_closeness=0.5)
    kinds = [
        FEATURES,
        FEATURES.tolist(),
        torch.from_numpy(FEATURES),
        torch.from_numpy(FEATURES).to(torch.bfloat16),
        FEATURES.astype(np.float16),
        FEATURES.astype(np.int64),
        FEATURES.astype(">f4"),
        np.asfortranarray(FEATURES),
        torch.from_numpy(FEATURES).requires_grad_(),
    ]
    picks = [smdl.select(smdl.Pool(features), objective, 3).indices.tolist() for features in kinds]
    assert all(pick == picks[0] for pick in picks)


def test_arrays_are_not_copied_and_never_written_to():
    features = FEATURES.copy()
    features.flags.writeable = False
    pool = smdl.Pool(features)
    assert pool.features.data_ptr() == features.ctypes.data
    smdl.select(pool, smdl.Objective(redundancy=1.0), 2)
    assert (features == FEATURES).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_features_as_large_as_their_type_allows_are_finite(kind):
    largest = np.finfo(kind).max
    pool = smdl.Pool(np.array([[largest, 1.0], [-largest, 2.0], [3.0, 0.0]], kind))
    assert pool.largest == largest
    assert len(smdl.select(pool, smdl.Objective(redundancy=1.0), 3)) == 3


@pytest.mark.parametrize("options", [{"facility_location": 1.0, "space": "gradients"}, {"redundancy": 1.0}])
def test_a_pool_is_freed_with_its_last_use(options):
    """A cycle of references would keep the matrices of many steps, until the garbage collector runs."""
    gc.collect()
    gc.disable()
    try:
        pool = smdl.Pool(INPUTS, LOGITS.softmax(1), LABELS)
        chosen, problem = smdl.select(pool, smdl.Objective(**options), 5), smdl.Objective(**options).on(pool)
        assert problem is chosen._problem, "scores are kept with the pool"
        gone = [weakref.ref(pool), weakref.ref(problem), weakref.ref(problem.geometry)]
        del pool, problem
        assert chosen.terms is not None, "a selection needs only its problem"
        del chosen
        assert [ref() for ref in gone] == [None, None, None]
    finally:
        gc.enable()


INPUTS = torch.rand(30, 5, generator=torch.Generator().manual_seed(0))
LOGITS = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(30) % 3


def test_logits_become_probabilities():
    pool = smdl.Pool.from_logits(INPUTS, LOGITS, LABELS, reference=INPUTS[:, :2], bias=False)
    assert pool.probabilities is not None
    assert torch.equal(pool.probabilities, LOGITS.softmax(1))
    assert pool.reference is not None
    assert not pool.bias
    wanted = smdl.Pool(INPUTS, LOGITS.softmax(1), LABELS, bias=False)
    assert smdl.select(pool, size=7).indices.tolist() == smdl.select(wanted, size=7).indices.tolist()


def test_logits_of_a_training_step_in_half_precision_will_do():
    features, logits = INPUTS.bfloat16().requires_grad_(), LOGITS.bfloat16().requires_grad_()
    chosen = smdl.select(smdl.Pool.from_logits(features, logits, LABELS), size=4)
    assert len(set(chosen.indices.tolist())) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((INPUTS, LOGITS[:, 0], LABELS), r"logits must have two dimensions .*, got shape \(30,\)"),
        ((INPUTS, LOGITS[:, :1], LABELS), r"logits must have shape \(samples, classes ≥ 2\), got shape \(30, 1\)"),
        ((INPUTS, LOGITS, LABELS[:29]), "30 features, 29 labels"),
        ((INPUTS, LOGITS, LABELS + 2), "below the 3 classes"),
        ((INPUTS, LOGITS * torch.inf, LABELS), "logits must be finite"),
    ],
)
def test_logits_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        smdl.Pool.from_logits(*arguments)
