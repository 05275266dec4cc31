"""What holds on four ranks. Every function runs on each."""

from pathlib import Path

import torch
from torch import distributed as dist

import smdl
from tests.loading.ranks.group import everywhere
from tests.loading.ranks.two import begun, equal, ranks_that_choose_together_choose_what_one_process_does, steps, take
from tests.toys import Net, Tuples, sgd


def two_groups_of_two_divide_their_batches(folder: Path) -> None:  # noqa: ARG001
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = Net()
    loader = smdl.DataLoader(Tuples(32), model, 4, process_group=groups[dist.get_rank() // 2])
    assert len(loader) == 4
    first, second, third, fourth = everywhere(take(steps(loader, model, sgd(model)), 4))
    assert (first, second) == (third, fourth)
    assert len({row for batch in first + second for row in batch}) == 32


def a_state_of_two_ranks_resumes_on_four(folder: Path) -> None:
    for case, size in (("observed", 4), ("paper", 4), ("observed", 2), ("paper", 2)):
        loader, *rest = begun(case, samples=32, batch_size=size)
        loader.load_state_dict(torch.load(folder / f"two-{case}.pt", weights_only=True)[0])
        run = steps(loader, *rest)
        take(run, 1)
        # Two ranks used 2 × 4 of 32 samples. With 4 × 2 per step, this was the second of four steps. With 4 × 4, the
        # half step is skipped, and this was the second of two steps: the next epoch begins.
        assert (loader.epoch, loader.state_dict()["step"]) == ((1, 2) if size == 2 else (2, 0))
        take(run, 1)
        states = everywhere(loader.state_dict())
        assert all(equal(states[0], state) for state in states)


CHECKS = [
    two_groups_of_two_divide_their_batches,
    a_state_of_two_ranks_resumes_on_four,
    ranks_that_choose_together_choose_what_one_process_does,
]
