"""What holds on two ranks. Every function runs on both."""

import os
from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import smdl
from smdl.loading.strategies.strategy import drawn
from smdl.scoring.scorer import Scorer
from tests.loading.candidates.test_own_candidates import EveryOther
from tests.loading.ranks.group import everywhere
from tests.loading.strategies.test_recommended import clusters, linear
from tests.toys import CASES, Net, Tuples, make, numbers_of, sgd

#: These draw with replacement: a sample may come twice in a step.
REPEATING = ("balanced", "importance", "loss", "loss_recomputed", "progressive", "weighted")


def begun(case: str, samples: int = 31, **options: Any) -> tuple[smdl.DataLoader, Any, Any]:
    model = DistributedDataParallel(Net())
    return make(case, Tuples(samples), model, seed=5, **options), model, sgd(model)


def steps(loader: smdl.DataLoader, model: torch.nn.Module, optimizer: torch.optim.SGD) -> Iterator[list[int]]:
    """Train for ever; yield the indices of each batch after its step."""
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            yield numbers_of(loader).tolist()


def take(run: Iterator[list[int]], count: int) -> list[list[int]]:
    return list(islice(run, count))


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def alone() -> Any:
    """Return a process group of this rank only."""
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    return groups[dist.get_rank()]


def no_sample_is_on_two_ranks_and_counts_are_equal(folder: Path) -> None:  # noqa: ARG001
    for case in CASES:
        loader, *rest = begun(case)
        assert len(loader) == 4, "31 samples: 15 per rank, in batches of 4, 4, 4 and 3"
        own = take(steps(loader, *rest), 9)
        assert [len(batch) for batch in own] == [4, 4, 4, 3, 4, 4, 4, 3, 4], case
        both = everywhere(own)
        for step, batches in enumerate(zip(*both, strict=True)):
            rows = [row for batch in batches for row in batch]
            assert len(set(rows)) == len(rows) or case in REPEATING, (case, step)
        used = {row for one in both for batch in one[:4] for row in batch}
        if case in ("uniform", "uniform_full", "observed", "observed_full", "paper"):
            assert len(used) == 30, f"{case}: an epoch uses each sample once, and leaves out one"
        if case in REPEATING:
            assert both[0] != both[1]


def every_rank_has_the_same_state(folder: Path) -> None:  # noqa: ARG001
    for case in CASES:
        loader, *rest = begun(case)
        run = steps(loader, *rest)
        take(run, 6)
        states = everywhere(loader.state_dict())
        assert equal(states[0], states[1]), case
        if case == "observed":
            assert int(states[0]["candidates"]["cache"]["seen"].sum()) >= 30, "features of the samples of both ranks"
            assert len(states[0]["candidates"]["window"][0]["indices"]) == 8, "planned batches of both ranks"
        if case == "loss":
            assert int(states[0]["strategy"]["losses"].isfinite().sum()) >= 30


def one_file_resumes_every_rank(folder: Path) -> None:
    for case in CASES:
        loader, model, optimizer = begun(case)
        run = steps(loader, model, optimizer)
        take(run, 6)
        state, file = loader.state_dict(), folder / f"{case}.pt"
        if dist.get_rank() == 0:
            torch.save([state, optimizer.state_dict()], file)
        own = deepcopy(model.module.state_dict())  # each rank has running statistics of its own
        tail = take(run, 7)
        dist.barrier()
        again, twin, other = begun(case)
        for part, saved in zip((again, other), torch.load(file, weights_only=True), strict=True):
            part.load_state_dict(saved)
        twin.module.load_state_dict(own)
        assert take(steps(again, twin, other), 7) == tail, case


def one_rank_may_save_alone(folder: Path) -> None:  # noqa: ARG001
    loader, *rest = begun("observed")
    twin, *others = begun("observed")
    run = steps(loader, *rest)
    batches = [next(run)]
    for _ in range(8):
        if dist.get_rank() == 0:
            loader.state_dict()  # the other rank meets it when it asks for the next batch
        batches.append(next(run))
    assert batches == take(steps(twin, *others), 9), "saving changes nothing"
    loader, *rest = begun("observed")
    take(steps(loader, *rest), 4)
    for x, _ in loader:
        rest[0](x).sum().backward()
    if dist.get_rank() == 0:
        loader.state_dict()  # between epochs nothing is left to exchange
    dist.barrier()


def choices_for_all_ranks_are_those_of_one_process(folder: Path) -> None:  # noqa: ARG001
    """Candidates that choose for all ranks at once: what both train on is what one process trains on."""
    group = alone()
    for case in ("uniform_full", "balanced", "loss", "loss_recomputed", "observed_full", "paper", "replacement"):
        model, data, chosen = Net().eval(), Tuples(32), []
        for options in ({"batch_size": 4}, {"batch_size": 8, "process_group": group}):
            loader, rows = make(case, data, model, seed=5, reference=data.x, **options), []
            for _ in range(2):
                for _ in loader:
                    rows.append(numbers_of(loader))
                    if loader.strategy.needs_losses:
                        loader.observe(np.sin(10.0 * rows[-1]))
            chosen.append(rows)
        both = everywhere(chosen[0])
        together = [np.stack(parts, axis=1).ravel().tolist() for parts in zip(*both, strict=True)]
        assert together == [rows.tolist() for rows in chosen[1]], case


def ranks_that_choose_together_choose_what_one_process_does(folder: Path) -> None:  # noqa: ARG001
    """On a grid, so that a forward rounds nothing, however many rows it gets."""
    for options in (
        {"method": "fresh"},
        {"method": "fresh", "options": {"partitions": 2}},
        {"method": "fresh", "options": {"partitions": 3, "optimizer": "stochastic", "epsilon": 0.3}},
        {"method": "uniform"},
        {"method": "paper", "candidates": smdl.RandomPool(3), "options": {"partitions": 5}},
        {"method": "paper", "candidates": smdl.Full(2), "options": {"partitions": 3}},
        {"candidates": smdl.Observed(4, lag=1)},
        {"method": "recommended", "options": {"test_set": "balanced"}},
        {"candidates": smdl.Observed(3, rescore=0.5), "options": {"partitions": 2}},
    ):
        together_equals_one_process(options)


def together_equals_one_process(options: dict[str, Any]) -> None:
    model, data, chosen = grid_net(), grid_data(), []
    ranks = dist.get_world_size()
    for size, group in ((24 // ranks, None), (24, alone())):
        loader = smdl.DataLoader(
            data, model, size, ranks="global", reference=data.tensors[0].abs(), process_group=group, seed=3, **options
        )
        batches = []
        for _ in range(2):
            for x, y in loader:
                assert torch.equal(x, data.tensors[0][numbers_of(loader)])
                assert torch.equal(y, data.tensors[1][numbers_of(loader)])
                model(x)
                batches.append(numbers_of(loader).tolist())
        chosen.append(batches)
    both = everywhere(chosen[0])
    assert {len(batch) for one in both for batch in one[:-1]} == {24 // ranks}
    together = [sorted(row for batch in batches for row in batch) for batches in zip(*both, strict=True)]
    assert together == [sorted(batch) for batch in chosen[1]], options


def grid_net() -> torch.nn.Sequential:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    generator = torch.Generator().manual_seed(0)
    for weights in model.parameters():
        weights.data = torch.randint(-8, 9, weights.shape, generator=generator) / 8
    return model


def grid_data() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randint(-16, 17, (240, 4), generator=generator) / 8, torch.randint(0, 4, (240,), generator=generator)
    return torch.utils.data.TensorDataset(x, y)


def an_epoch_left_half_way_is_over_on_every_rank(folder: Path) -> None:  # noqa: ARG001
    for case in ("observed", "loss", "fresh"):
        loader, model, _ = begun(case)
        for step, (x, _) in enumerate(loader):
            model(x).sum().backward()
            if step == 1:
                break
        assert loader.epoch == 0
        next(iter(loader))
        assert loader.epoch == 1
        states = everywhere(loader.state_dict())
        assert equal(states[0], states[1])


def the_last_batch_of_an_epoch_counts_if_the_loop_asks_for_no_more(folder: Path) -> None:  # noqa: ARG001
    """The Trainer of transformers takes len(loader) batches and then calls set_epoch."""
    for case in ("observed", "loss"):
        loader, model, _ = begun(case)
        batches = iter(loader)
        for _ in range(len(loader)):
            x, y = next(batches)
            F.cross_entropy(model(x), y).backward()
        last = np.concatenate(everywhere(numbers_of(loader)))
        loader.set_epoch(1)
        next(iter(loader))
        state = loader.state_dict()
        known = state["candidates"]["cache"]["seen"] if case == "observed" else state["strategy"]["losses"].isfinite()
        assert bool(known[last].all())


def observations_of_one_rank_only_reach_both(folder: Path) -> None:  # noqa: ARG001
    loader = smdl.DataLoader(Tuples(32), Net(), 4, candidates=smdl.Observed(observe="manual"))
    batches = iter(loader)
    next(batches)
    if dist.get_rank() == 1:
        loader.observe(features=torch.ones(2, 6), logits=torch.ones(2, 3), rows=np.array([0, 2]))
    state = loader.state_dict()["candidates"]["cache"]
    rows = everywhere(numbers_of(loader).tolist())[1]
    assert state["seen"].nonzero()[:, 0].tolist() == sorted([rows[0], rows[2]])
    assert state["features"][rows[2]].tolist() == [1.0] * 6
    assert state["targets"][rows[2]] == Tuples(32).y[rows[2]]


def losses_of_tokens_reach_both(folder: Path) -> None:  # noqa: ARG001
    """Tokens have as many outputs as they are long, which differs between ranks: only losses are exchanged."""

    def collate(rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.stack(rows)[:, : 5 + int(rows[0][0]) % 2]
        return tokens, tokens

    data = [torch.arange(row, row + 8) % 20 for row in range(32)]
    model = torch.nn.Sequential(torch.nn.Embedding(20, 6), torch.nn.Linear(6, 20))
    objective = smdl.Objective.gradients(space="features")
    loss = lambda z, y: F.cross_entropy(z.mT, y, reduction="none").mean(1)  # noqa: E731
    loader = smdl.DataLoader(
        data, model, 4, objective=objective, scoring=smdl.Scoring(loss=loss, pooling="mean"), collate_fn=collate
    )
    for tokens, _ in loader:
        model(tokens)
    states = everywhere(loader.state_dict()["candidates"]["cache"])
    assert equal(states[0], states[1])
    assert states[0]["outputs"].shape == (32, 1)
    assert bool(states[0]["seen"].all())
    assert states[0]["targets"] is None


def other_data_or_another_loss_on_a_rank_is_refused(folder: Path) -> None:  # noqa: ARG001
    data, rank = Tuples(31), dist.get_rank()
    data.x = data.x + rank
    with pytest.raises(RuntimeError, match=r"ranks must agree on the data: rank . has \w+ of 8 samples"):
        next(iter(smdl.DataLoader(data, DistributedDataParallel(Net()), 4, method="fresh")))
    loss = ("cross_entropy", None)[rank]
    with pytest.raises(RuntimeError, match="ranks must agree on `loss`: rank"):
        next(
            iter(
                smdl.DataLoader(
                    Tuples(31), DistributedDataParallel(Net()), 4, method="fresh", scoring=smdl.Scoring(loss=loss)
                )
            )
        )


def ranks_that_disagree_are_told(folder: Path) -> None:  # noqa: ARG001
    rank = dist.get_rank()
    with pytest.raises(RuntimeError, match=r"ranks must agree on seed: rank . has ., rank . has ."):
        next(iter(smdl.DataLoader(Tuples(32), Net(), 4, seed=rank)))
    loader, *rest = begun("observed")
    run = steps(loader, *rest)
    take(run, 3)
    state = loader.state_dict()
    if rank == 0:
        loader.load_state_dict(state)
    with pytest.raises(RuntimeError, match="ranks must agree on whether a state was loaded"):
        next(iter(loader))


def weights_of_one_rank_only_reach_both(folder: Path) -> None:  # noqa: ARG001
    """Observed takes samples that were never seen first, without weights, on whichever rank has them."""
    loader, *rest = begun("observed")
    take(steps(loader, *rest), 1)
    rank, epoch = dist.get_rank(), loader.new_epoch()
    own = drawn(np.array([rank, 2 + rank]), np.array([5.0, 0.5]) if rank else None)
    together = epoch.put_together(own)
    assert together.indices.tolist() == [0, 1, 2, 3]
    assert together.weights is not None
    assert together.weights.tolist() == [1.0, 5.0, 1.0, 0.5]
    assert epoch.put_together(drawn(np.array([rank]))).weights is None


def what_cannot_be_divided_is_refused(folder: Path) -> None:  # noqa: ARG001
    with pytest.raises(ValueError, match="does not give every rank its own samples: there are 2 ranks"):
        next(iter(smdl.DataLoader(Tuples(32), Net(), 4, candidates=EveryOther())))
    loader = smdl.DataLoader(Tuples(7), Net(), 4)
    with pytest.raises(ValueError, match="at most the dataset's 7 samples, got 4 × 2"):
        next(iter(loader))
    same = smdl.SelectiveLoader([(Tuples(8).x, Tuples(8).y)], Net(), method="fresh")
    with pytest.raises(RuntimeError, match="every rank reads the same batches"):
        next(iter(same))
    apart = smdl.DataLoader(Tuples(32), Net(), 4, method="importance", candidates=smdl.Observed())
    with pytest.raises(ValueError, match="Importance compares the candidates of all ranks"):
        next(iter(apart))


def a_stream_is_selected_from_on_each_rank(folder: Path) -> None:  # noqa: ARG001
    data = Tuples(60)
    sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
    plain = torch.utils.data.DataLoader(data, batch_size=5, sampler=sampler)
    found = [batch[0] for batch in smdl.SelectiveLoader(plain, Net(), keep=1 / 3)]
    assert [len(x) for x in found] == [5, 5]
    assert everywhere(found[0])[0].tolist() != everywhere(found[0])[1].tolist()


def scoring_waits_for_no_other_rank(folder: Path) -> None:  # noqa: ARG001
    """DistributedDataParallel broadcasts BatchNorm's buffers in its forward."""
    model = DistributedDataParallel(Net())
    norm = model.module.body[1]
    if dist.get_rank() == 1:
        norm.running_mean.fill_(7.0)
        smdl.DataLoader(Tuples(32), model, 4, method="fresh").warm_up()
        assert norm.running_mean.tolist() == [7.0] * 6


def wrapped_and_plain_models_are_observed(folder: Path) -> None:  # noqa: ARG001
    seen = []
    for given in (lambda model: model, lambda model: model.module):
        model = DistributedDataParallel(Net())
        loader = smdl.DataLoader(Tuples(32), given(model), 4, method="observed")
        take(steps(loader, model, sgd(model)), 8)
        seen.append(loader.state_dict()["candidates"]["cache"])
    assert bool(seen[0]["seen"].all())
    assert equal(seen[0], seen[1])


def labels_are_judged_alike_on_every_rank(folder: Path) -> None:  # noqa: ARG001
    """And as in one process that trains on the same batches."""
    data, wrong = clusters(0.2)
    left_out = []
    for size, group in ((10, None), (20, alone())):
        network = linear()
        model = DistributedDataParallel(network, process_group=group)
        loader = smdl.DataLoader(data, model, size, process_group=group)
        take(steps(loader, model, torch.optim.SGD(network.parameters(), lr=5.0)), 90)
        left_out.append(loader.state_dict()["strategy"]["left_out"].tolist())
    both = everywhere(left_out[0])
    assert both[0] == both[1] == left_out[1]
    assert sum(left_out[0]) > 0.5 * len(wrong)


def a_label_that_the_loss_ignores_and_probabilities_stop_no_rank(folder: Path) -> None:  # noqa: ARG001
    data, _ = clusters(0.2)
    data.tensors[1][3::101] = -100
    for network in (linear(), torch.nn.Sequential(linear(), torch.nn.Softmax(dim=1))):
        loader = smdl.DataLoader(data, network, 10)
        take(steps(loader, network, sgd(network)), 3 * len(loader))
        assert loader.epoch == 3


def a_sharded_model_is_scored(folder: Path) -> None:  # noqa: ARG001
    """Under fully_shard every forward, and the head, is collective."""
    from torch.distributed.device_mesh import init_device_mesh  # takes seconds
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    cases: list[dict[str, Any]] = [{"method": "fresh"}, {"method": "paper"}, {}, {"ranks": "global"}]
    for options in cases:
        model = Net()
        fully_shard(model, mesh=mesh)
        loader = smdl.DataLoader(Tuples(33), model, 4, reference=Tuples(33).x.abs(), scoring_batch_size=7, **options)
        run = steps(loader, model, sgd(model))
        for one, other in zip(*everywhere(take(run, 7)), strict=True):
            assert len(one) == len(other) == 4
            assert not set(one) & set(other)
        assert len(set(everywhere(loader.forwards))) == 1
        states = everywhere(loader.state_dict())
        assert equal(states[0], states[1])


def models_are_unwrapped(folder: Path) -> None:  # noqa: ARG001
    model = Net()
    wrapped: Any = DistributedDataParallel(model)
    compiled: Any = torch.compile(model)
    outside: Any = torch.compile(wrapped)
    for given in (wrapped, outside, DistributedDataParallel(compiled)):
        assert Scorer(given).model is model


def workers_read_the_batches_of_their_rank(folder: Path) -> None:  # noqa: ARG001
    one, *rest = begun("observed", candidates=smdl.Observed(lag=1))
    forked = {"num_workers": 1, "multiprocessing_context": "fork"}  # a new process would import torch
    two, *others = begun("observed", candidates=smdl.Observed(lag=1), **forked)
    assert take(steps(one, *rest), 6) == take(steps(two, *others), 6)
    assert two.staleness == 1


def a_state_goes_to_one_rank_and_back(folder: Path) -> None:
    """Half of the test is in the other process, which has one rank."""
    for case in ("uniform", "observed", "uniform_full", "paper"):
        loader, *rest = begun(case, samples=32)
        run = steps(loader, *rest)
        take(run, 5)
        state = loader.state_dict()
        used = everywhere(take(run, 3))
        if dist.get_rank() == 0:
            torch.save([state, used], folder / f"two-{case}.pt")
        for size in (4, 8):
            again, *rest = begun(case, samples=32)
            again.load_state_dict(torch.load(folder / f"one-{case}-{size}.pt", weights_only=True))
            assert again.epoch == 1
            rows = everywhere(take(steps(again, *rest), 2))
            assert len({row for one in rows for batch in one for row in batch}) == 16 or case == "observed"


def a_lost_rank_stops_the_other(folder: Path) -> None:  # noqa: ARG001
    loader, *rest = begun("observed")
    run = steps(loader, *rest)
    take(run, 3)
    if dist.get_rank() == 1:
        os._exit(1)
    with pytest.raises(RuntimeError, match="rank 0 of 2 waited for the other ranks, and one of them did not answer"):
        next(run)


def a_head_is_refitted_alike(folder: Path) -> None:  # noqa: ARG001
    alone_on_all: Any = smdl.refit_head(Net(), [Tuples(31)[row] for row in range(31)], copy=True)
    for data in (Tuples(31), begun("observed")):
        loader, model = (data, DistributedDataParallel(Net())) if isinstance(data, Tuples) else data[:2]
        if isinstance(data, tuple):
            take(steps(*data), 5)
        smdl.refit_head(model, loader)
        heads = everywhere(model.module.head.weight.detach())
        assert torch.equal(heads[0], heads[1])
        assert not torch.allclose(heads[0], Net().head.weight, atol=1e-3)
        if isinstance(data, Tuples):
            assert torch.allclose(heads[0], alone_on_all.head.weight, atol=1e-4), "each rank forwards half of the data"


CHECKS = [
    other_data_or_another_loss_on_a_rank_is_refused,
    no_sample_is_on_two_ranks_and_counts_are_equal,
    every_rank_has_the_same_state,
    one_file_resumes_every_rank,
    one_rank_may_save_alone,
    choices_for_all_ranks_are_those_of_one_process,
    ranks_that_choose_together_choose_what_one_process_does,
    an_epoch_left_half_way_is_over_on_every_rank,
    the_last_batch_of_an_epoch_counts_if_the_loop_asks_for_no_more,
    observations_of_one_rank_only_reach_both,
    losses_of_tokens_reach_both,
    weights_of_one_rank_only_reach_both,
    ranks_that_disagree_are_told,
    what_cannot_be_divided_is_refused,
    a_stream_is_selected_from_on_each_rank,
    scoring_waits_for_no_other_rank,
    wrapped_and_plain_models_are_observed,
    labels_are_judged_alike_on_every_rank,
    a_label_that_the_loss_ignores_and_probabilities_stop_no_rank,
    a_sharded_model_is_scored,
    models_are_unwrapped,
    workers_read_the_batches_of_their_rank,
    a_state_goes_to_one_rank_and_back,
    a_head_is_refitted_alike,
    a_lost_rank_stops_the_other,
]
