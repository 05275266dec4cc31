"""Wrong calls of the Python interface: a TypeError or a ValueError of one line that names the argument."""

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import smdl
from smdl.loading.strategies.loss_rank import LossRank
from smdl.loading.strategies.submodular import Submodular

NAN, INF = float("nan"), float("inf")
RNG = np.random.default_rng(0)
FEATURES = RNG.random((12, 3))
PROBABILITIES = np.full((12, 2), 0.5)
LABELS = np.arange(12) % 2
POOL = smdl.Pool(FEATURES, PROBABILITIES, LABELS)
DATA = TensorDataset(torch.rand(12, 3), torch.arange(12) % 2)
MODEL = nn.Linear(3, 2)

NO_COUNT = [0, -1, 2.5, "3", True, [], {}, NAN, 1j]
NO_NAME = [3, None, [], "", "no such name", b"paper", 1.5]
NO_FLAG = ["no", 0, 1, None, [], NAN]
NO_FRACTION = [0, -0.1, 1.5, NAN, INF, "half", True, None, []]
NO_POSITIVE = [0.0, -1.0, NAN, INF, "1", [], True]
NO_MATRIX = [NAN, "abc", [], [[]], [[[1.0]]], [[1.0], [1.0, 2.0]], [["a"]], {}, np.zeros(12), [[NAN]], [[INF]], [[1j]]]
NO_INDICES = [[-1], [99], [0.5], "ab", [[1]], [None], 3.5, {}]
NO_SEED = [-1, 1.5, "7", None, (), (1, -2), (1, 2.5), [], True, NAN]

#: what is called, a call that works, and for each argument values that do not
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, list[Any]]]] = {
    "select": (
        smdl.select,
        {"pool": POOL, "objective": "redundancy", "size": 3},
        {
            "pool": [3, None, "pool", {}, NAN, POOL.labels, object()],
            "objective": [*NO_NAME, {}, smdl.Objective],
            "size": [*NO_COUNT, None, 13, (1,), (0, 3), (3, 1), (1, 2, 3), (1.5, 3), "ab"],
            "optimizer": NO_NAME,
            "partitions": [*NO_COUNT, None],
            "epsilon": [0.0, 1.0, -0.5, NAN, INF, "0.1", None, [], True],
            "seed": NO_SEED,
            "among": [*NO_INDICES, []],
            "exclude": [*NO_INDICES, list(range(12))],
            "threads": NO_COUNT,
            "size_penalty": [0.5, "1", NAN, []],
            "query": [*NO_MATRIX, FEATURES[:0], FEATURES[:, :2]],
            "away_from": [*NO_MATRIX, FEATURES[:0], FEATURES[:, :2]],
        },
    ),
    "evaluate": (
        smdl.evaluate,
        {"pool": POOL, "objective": "redundancy", "indices": [1, 2]},
        {
            "pool": [3, None, "pool", {}],
            "objective": [*NO_NAME, smdl.Objective(redundancy=1.0, normalize="candidates")],
            "indices": [*NO_INDICES, [1, 1], None],
        },
    ),
    "Pool": (
        smdl.Pool,
        {"features": FEATURES},
        {
            "features": [*NO_MATRIX, None, 3, np.zeros((0, 3)), np.ma.masked_array(FEATURES, FEATURES > 0.5)],
            "probabilities": [*NO_MATRIX, PROBABILITIES[:3], PROBABILITIES * 2, PROBABILITIES - 1],
            "labels": ["abc", LABELS[:3], LABELS + 0.5, LABELS - 1, [[0]] * 12, LABELS > 0, {}],
            "losses": ["abc", np.zeros(3), np.zeros((12, 1)), np.full(12, NAN), {}],
            "reference": [*NO_MATRIX, FEATURES[:3]],
            "bias": NO_FLAG,
        },
    ),
    "Pool.from_logits": (
        smdl.Pool.from_logits,
        {"features": FEATURES, "logits": PROBABILITIES, "labels": LABELS},
        {"logits": [*NO_MATRIX, PROBABILITIES[:3], PROBABILITIES[:, :1], None], "labels": [LABELS[:3], LABELS + 2]},
    ),
    "Objective": (
        smdl.Objective,
        {"redundancy": 1.0},
        {
            "redundancy": [-1.0, NAN, INF, "1", None, [], True, 0.0],
            "redundency": [1.0],
            "distance": NO_NAME,
            "sigma": NO_POSITIVE,
            "space": NO_NAME,
            "normalize": NO_NAME,
            "concave": NO_NAME,
            "kernel": NO_NAME,
            "noise": [*NO_POSITIVE, None],
            "neighbours": NO_COUNT,
        },
    ),
    "RandomPool": (smdl.RandomPool, {}, {"factor": [0.5, 0, -3, NAN, INF, "3", None, True, []]}),
    "Full": (smdl.Full, {}, {"every": NO_COUNT, "replacement": NO_FLAG}),
    "LossRank": (
        LossRank,
        {},
        {
            "pressure": [0.5, 0, -1.0, NAN, INF, "100", None, (100, 1), True],
            "final_pressure": [0.5, NAN, "1", None],
            "sort_every": NO_COUNT,
            "recompute": NO_FLAG,
        },
    ),
    "Submodular": (
        Submodular,
        {},
        {
            "objective": NO_NAME,
            "optimizer": NO_NAME,
            "partitions": [*NO_COUNT, None],
            "epsilon": [0.0, 1.0, NAN, "0.1", None],
            "threads": NO_COUNT,
        },
    ),
    "Method": (
        lambda **call: smdl.Method(**call).make(),
        {"name": "mine", "strategy": Submodular},
        {
            "strategy": [print, 3, None, "uniform", dict],
            "candidates": [3, "full", smdl.Full],
            "options": [{"partition": 3}, {"objective": "papper"}, 3, "abc"],
        },
    ),
    "DataLoader": (
        smdl.DataLoader,
        {"dataset": DATA, "model": MODEL, "batch_size": 4},
        {
            "dataset": [None, 3, iter([1]), [], "", object()],
            "model": [None, print, "model", nn.Linear],
            "batch_size": [*NO_COUNT, None, 13, (2, 3)],
            "method": [
                *(value for value in NO_NAME if value is not None),
                "no_module:name",
                ":",
                "json:",
                "json:nothing",
                "json:dumps",
                smdl.Strategy,
                nn.Linear,
            ],
            "objective": ["papper", 3, [], {}, smdl.Objective],
            "candidates": ["full", 3, smdl.Full, smdl.Full(replacement=True), {}],
            "options": [{"partitons": 3}, {"partitions": 0}, 3, "abc", [1]],
            "epochs": [*NO_COUNT, "ten"],
            "features": ["no such module", 3, []],
            "forward": ["name", 3],
            "targets": [1.5, True, []],
            "loss": [3, "squared", ""],
            "pooling": [3, "median", ""],
            "scoring_dataset": [TensorDataset(torch.rand(3, 3)), 3, iter([1])],
            "scoring_batch_size": [*NO_COUNT, None],
            "drop_last": NO_FLAG,
            "num_workers": [-1, 1.5, "2", None, True],
            "seed": [-1, 1.5, "7", True],
            "shuffle": [True],
            "sampler": [[1]],
            "batch_sampler": [[[1]]],
            "generator": [torch.Generator()],
            "refresh_every": [5],
        },
    ),
    "DataLoader of feature_match": (
        smdl.DataLoader,
        {"dataset": DATA, "model": MODEL, "batch_size": 4, "method": "paper"},
        {"reference": [torch.rand(3, 2), torch.rand(12), "features", 3, [[NAN] * 2] * 12]},
    ),
    "SelectiveLoader": (
        smdl.SelectiveLoader,
        {"loader": [], "model": MODEL},
        {
            "loader": [None, 3, object()],
            "model": [None, print, "model"],
            "keep": NO_FRACTION,
            "method": [*NO_NAME, "loss", "paper"],
            "objective": ["papper", 3, smdl.Objective(feature_match=1.0)],
            "options": [{"partitons": 3}, 3],
            "features": ["no such module", 3],
            "seed": [-1, 1.5, "7"],
        },
    ),
    "set_epoch": (smdl.DataLoader(DATA, MODEL, 4).set_epoch, {"epoch": 1}, {"epoch": [-1, 1.5, "1", None, True]}),
}
#: What a message may name instead of the argument: a part of the value it is about.
PARTS = {
    "pool": ("features",),
    "objective": ("normalize", "feature_match"),
    "method": ("LossRank", "feature_match"),
    "options": ("option of method", "partitions", "unknown objective"),
    "candidates": ("Full(replacement=True)",),
}
CASES = [
    pytest.param(name, argument, value, id=f"{name}-{argument}-{place}-{type(value).__name__}")
    for name, (_, _, wrong) in CALLS.items()
    for argument, values in wrong.items()
    for place, value in enumerate(values)
]


#: Made by others, or bases of classes of the user's.
MADE = {"Candidates", "Deduplication", "Evaluation", "RowScores", "Selection", "SelectionPlan", "Strategy"}
MADE |= {"StreamPicks"}
#: Called at every training step, so nothing is added to them; and one without arguments.
PLAIN = {"balanced_softmax", "weighted_mean", "methods"}


@pytest.mark.parametrize("name", sorted({*smdl.__all__, "Pool.from_logits", "Pool.from_similarities"} - MADE - PLAIN))
def test_a_misspelt_argument_is_told_and_named(name):
    function = attrgetter(name)(smdl)
    parameters = inspect.signature(function).parameters.values()
    words = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needed = {one.name: None for one in parameters if one.name in words and one.default is one.empty}
    with pytest.raises((TypeError, ValueError), match=f"unknown .*'{words[-1]}z'; did you mean '{words[-1]}'") as told:
        function(**needed, **{f"{words[-1]}z": 1})
    assert told.type is TypeError or name == "Objective"  # whose unknown terms are values


def test_a_misspelt_option_of_explain_is_told():
    with pytest.raises(TypeError, match="unknown argument of explain 'fractoin'; did you mean 'fraction'"):
        smdl.explain(FEATURES, fractoin=0.5)


@pytest.mark.parametrize("name", CALLS)
def test_the_call_itself_works(name):
    function, call, _ = CALLS[name]
    function(**call)


@pytest.mark.parametrize(("name", "argument", "value"), CASES)
def test_a_wrong_call_names_its_argument_in_one_line(name, argument, value):
    function, call, _ = CALLS[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        function(**{**call, argument: value})
    message = str(caught.value)
    assert any(name in message for name in (argument, *PARTS.get(argument, ()))), message
    assert "\n" not in message
    assert len(message) < 400
