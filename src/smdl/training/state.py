"""The state of a run, which a checkpoint holds: collected, checked and restored."""

from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from smdl.common.saved_state import check_form, check_keys
from smdl.training.checkpoint import CheckpointError
from smdl.training.generators import check_generators, generator_state, restore_generators
from smdl.training.meters import Meters

if TYPE_CHECKING:
    from smdl.training.loop import TrainingRun


def state_of(run: "TrainingRun") -> dict[str, Any]:
    """Return everything that a run needs to resume."""
    return {
        "epoch": run.epoch,
        "step": run.step,
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "loader": run.loader.state_dict(),
        "meters": run.meters.state(),
        "records": run.records,
        "counts": run.counts,
        "generators": generator_state(run.device),
    }


def restore(run: "TrainingRun", state: dict[str, Any]) -> None:
    """Continue from a state. One that does not fit this run is refused, and changes nothing."""
    try:
        _check(run, state)
        run.loader.load_state_dict(state["loader"])  # checks its own part
    except Exception as error:  # a value of a wrong type can fail in any way
        raise CheckpointError(f"{run.checkpoint} does not fit this run: {error}") from error
    run.epoch, run.step = state["epoch"], state["step"]
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.meters, run.records, run.counts = Meters(**state["meters"]), state["records"], state["counts"]
    restore_generators(state["generators"], run.device)


def _check(run: "TrainingRun", state: dict[str, Any]) -> None:
    """Raise unless a state has the form of this run's state and its numbers agree with each other."""
    own = state_of(run)
    check_keys("it", state, own)
    for name in ("epoch", "step", "model", "meters", "counts", "records"):
        check_form(name, state[name], own[name])
    _check_optimizer(run.optimizer, state["optimizer"])
    check_generators(state["generators"], run.device)
    meters, records, counts, loader = (state[name] for name in ("meters", "records", "counts", "loader"))
    for record in records:
        check_form("a record", record, {})
    steps, samples = [record["steps"] for record in records], [record["samples"] for record in records]
    over = state["epoch"] == run.epochs
    facts = {
        "epoch": (state["epoch"], [len(records)]),
        "the last step": (state["step"], [(steps[-1] if steps else 0) + meters["batches"]]),
        "the epochs of the records": ([record["epoch"] for record in records], [list(range(len(records)))]),
        "the steps of the records": (steps, [sorted(steps)]),
        "the sum of counts": (int(counts.sum()), [sum(samples) + meters["samples"]]),
        "the number of epochs": (max(state["epoch"], run.epochs), [run.epochs]),
        "the number of batches after the last epoch": (over * meters["batches"], [0]),
    }
    if not over:  # a run that is cut by `steps` ends in the middle of an epoch
        place = [state["epoch"], meters["batches"]], [state["epoch"] + 1, 0]
        facts["the place of the loader"] = [loader["epoch"], loader["step"]], place
    for name, (found, expected) in facts.items():
        if found not in expected:
            raise ValueError(f"{name} must be {' or '.join(map(str, expected))}, got {found}")


def _check_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Raise unless the state is that of an optimizer of the same kind and of weights of the same shapes."""
    check_form("optimizer", state, optimizer.state_dict())
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for number, values in state["state"].items():
        for name, value in values.items():
            if value is not None and value.ndim:  # a number, such as the step of Adam, has no dimension
                check_form(f"{name} of weight {number}", value, weights[number].detach())
