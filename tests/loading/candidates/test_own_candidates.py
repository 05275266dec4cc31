"""Candidates of the user's own, as docs/loader.md describes it."""

import numpy as np
import torch

import smdl
from smdl.scoring.batches import take
from tests.toys import Net, Tuples, begun, epoch_of, numbers_of, train


class EveryOther(smdl.Candidates):
    """Candidates are the even samples in even steps and the odd ones in odd steps; counts how often each was one."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, int)

    def begin(self, samples: int) -> None:
        if len(self.counts) != samples:
            self.counts = np.zeros(samples, int)

    def batches(self, epoch):
        plan = [(step, np.arange(step % 2, epoch.samples, 2)) for step in range(epoch.first_step, len(epoch))]
        for (step, _), (rows, batch, _) in zip(plan, epoch.read(plan), strict=True):
            self.counts[rows] += 1
            chosen = epoch.choose(epoch.score_rows(batch, rows), np.arange(len(rows)), epoch.size(step), step)
            yield chosen.renumbered(rows), take(batch, chosen.indices)

    def state_dict(self):
        return {"counts": torch.from_numpy(self.counts.copy())}

    def load_state_dict(self, state) -> None:
        self.counts = state["counts"].numpy().copy()


def test_own_candidates_decide_what_is_chosen_from():
    data = Tuples(30)
    loader = smdl.DataLoader(data, Net(), 4, candidates=EveryOther())
    for step, (x, y) in enumerate(loader):
        rows = numbers_of(loader)
        assert {row % 2 for row in rows} == {step % 2}
        assert torch.equal(x, data.x[rows])
        assert torch.equal(y, data.y[rows])
    assert loader.forwards == 8 * 15
    assert loader.state_dict()["candidates"]["counts"].tolist() == [4] * 30


def test_their_state_is_saved_with_the_loaders():
    loader, model, optimizer = begun("observed", candidates=EveryOther())
    seen = train(loader, model, optimizer, 12)
    first = begun("observed", candidates=EveryOther())
    train(*first, 5)
    state = [part.state_dict() for part in first]
    second = begun("observed", candidates=EveryOther())
    for part, saved in zip(second, state, strict=True):
        part.load_state_dict(saved)
    assert train(*second, 7) == seen[5:]
    counts = [each.state_dict()["candidates"]["counts"] for each in (second[0], loader)]
    assert torch.equal(*counts)


def test_they_work_with_every_method_that_does_not_need_the_whole_dataset():
    for method in ("uniform", "observed", "paper"):
        loader = smdl.DataLoader(Tuples(30), Net(), 4, method=method, candidates=EveryOther())
        assert len(epoch_of(loader)) == 8
