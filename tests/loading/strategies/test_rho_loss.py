from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import smdl
from smdl.loading.strategies.rho_loss import RhoLoss
from smdl.scoring import reference_model
from smdl.scoring.reading import Reader
from smdl.scoring.reference_model import holdout_losses
from smdl.scoring.scorer import Scorer
from smdl.training import build
from smdl.training.config import DataConfig, ModelConfig, TrainConfig
from smdl.training.loop import TrainingRun
from tests.toys import Net, Tuples, epoch_of, numbers_of


def test_the_largest_reducible_losses_are_taken():
    """By hand: losses 3, 2, 1, 0.5 minus irreducible 2.9, 0.5, 0.2, 0.4 are 0.1, 1.5, 0.8, 0.1."""
    losses, irreducible = torch.tensor([3.0, 2.0, 1.0, 0.5]), torch.tensor([[2.9], [0.5], [0.2], [0.4]])
    pool = smdl.Pool(torch.rand(4, 2), losses=losses, reference=irreducible)
    batch = RhoLoss().select(pool, np.arange(4), 2, np.random.default_rng(0))
    assert batch.indices.tolist() == [1, 2], "not the highest loss, 0"
    assert batch.weights is None
    assert RhoLoss().select(pool, np.array([0, 2, 3]), 1, np.random.default_rng(0)).indices.tolist() == [2]


def test_a_batch_is_a_tenth_of_what_is_forwarded():
    """By hand, with the numbers of the authors' configs: ⌊0.1 · 320⌋ = 32."""
    data = Tuples(400)
    loader = smdl.DataLoader(data, Net(), 32, method="rho_loss", reference=torch.zeros(400, 1))
    next(iter(loader))
    assert (len(numbers_of(loader)), loader.forwards) == (32, 320)


def test_the_irreducible_loss_of_a_sample_comes_from_a_model_that_did_not_see_it(monkeypatch):
    data, seen = Tuples(31), {"_train": list[np.ndarray](), "_scores": list[np.ndarray]()}

    def recorded(name):
        original = getattr(reference_model, name)

        def record(scorer, reader, rows, *more):
            seen[name].append(rows)
            return original(scorer, reader, rows, *more)

        monkeypatch.setattr(reference_model, name, record)

    recorded("_train")
    recorded("_scores")
    found = holdout_losses(Scorer(Net()), Reader(data, None, None, 0), 31, epochs=2, batch_size=5)
    assert found.shape == (31, 1)
    trained, scored = seen["_train"], seen["_scores"]
    assert [sorted(rows) for rows in trained] == [sorted(rows) for rows in reversed(scored)]
    assert sorted([*trained[0], *trained[1]]) == list(range(31))
    assert [len(rows) for rows in trained] == [16, 15]


def test_holdout_models_learn_and_the_result_is_the_same_again():
    data, reports = Tuples(300), list[tuple[int, int]]()

    def computed(epochs: int) -> torch.Tensor:
        reader = Reader(data, None, None, 0)
        note = lambda *now: reports.append(now)  # noqa: E731
        return holdout_losses(Scorer(Net()), reader, 300, epochs=epochs, batch_size=10, progress=note)

    short, long = computed(1), computed(8)
    assert long.mean() < short.mean() - 0.1
    assert torch.equal(computed(1), short)
    assert reports[-1] == (600, 600)
    done = [done for done, _ in reports]
    assert sum(later < earlier for earlier, later in pairwise(done)) == 2, "it falls only where the next one starts"


def test_a_given_model_or_given_losses_are_used():
    data, given = Tuples(30), Net(seed=3)
    loader = smdl.DataLoader(data, Net(), 5, method="rho_loss", reference=given, candidates=smdl.RandomPool(6))
    with torch.no_grad():
        irreducible = F.cross_entropy(given.eval()(data.x), data.y, reduction="none")
        losses = F.cross_entropy(Net().eval()(data.x), data.y, reduction="none")
    next(iter(loader))
    assert set(numbers_of(loader)) == set((losses - irreducible).topk(5).indices.tolist()), (
        "the pool is all of the data"
    )
    twin = smdl.DataLoader(
        data, Net(), 5, method="rho_loss", reference=irreducible[:, None], candidates=smdl.RandomPool(6)
    )
    assert epoch_of(twin)[0] == numbers_of(loader).tolist()
    with pytest.raises(ValueError, match=r"reference must be irreducible losses, \(N, 1\), got shape \(30, 2\)"):
        smdl.DataLoader(data, Net(), 5, method="rho_loss", reference=torch.rand(30, 2))


def test_a_stream_uses_a_trained_model():
    data, given = Tuples(12), Net(seed=3)
    batches = [(data.x[k : k + 4], data.y[k : k + 4]) for k in (0, 4, 8)]
    loader = smdl.SelectiveLoader(batches, Net(), method="rho_loss", reference=given)
    next(iter(loader))
    with torch.no_grad():
        irreducible = F.cross_entropy(given.eval()(data.x), data.y, reduction="none")
        losses = F.cross_entropy(Net().eval()(data.x), data.y, reduction="none")
    assert set(numbers_of(loader)) == set((losses - irreducible).topk(4).indices.tolist())
    with pytest.raises(ValueError, match="rho_loss needs reference=, a trained model, to score a stream"):
        smdl.SelectiveLoader(batches, Net(), method="rho_loss")


def test_one_sample_cannot_be_held_out():
    with pytest.raises(ValueError, match="holdout models need at least 2 samples, one per half, got 1"):
        next(iter(smdl.DataLoader(Tuples(1), Net(), 1, method="rho_loss")))
    with pytest.raises(ValueError, match="holdout_epochs must be a whole number ≥ 1, got 0"):
        RhoLoss(0)


def test_the_time_of_the_holdout_models_is_kept_with_their_losses(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path))
    data, model = DataConfig(train_size=60, test_size=20), ModelConfig("mlp", width=0.1)
    config = TrainConfig(data, model, "rho_loss", options={"holdout_epochs": 1})
    run = TrainingRun(config)
    seconds = build.reference_seconds(config, run.splits)
    assert seconds is not None
    assert seconds > 0
    other = TrainConfig(data, model, "rho_loss", options={"holdout_epochs": 2})
    assert build.reference_seconds(other, run.splits) is None, "other epochs are other losses"
    assert build.reference_seconds(TrainConfig(data, model, "paper"), run.splits) is None
