"""Which folder holds a plan, or a part of it, so that a command continues there."""

from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from smdl.common.storage import disk_errors, names, unused
from smdl.experiments.comparison_plan import ComparisonPlan, read_plan, write_plan
from smdl.experiments.runner import chosen_options
from smdl.training.config import TrainConfig, from_dict

#: Fields of a plan that may differ between two commands that resume the same experiment.
NOT_COMPARED = (
    "base", "seeds", "earlier_seeds", "looks", "decided", "planned_steps", "caption",
    "title", "paper", "command", "runs", "learning_rates"
)  # fmt: skip


def open_folder(out: Path, plan: ComparisonPlan) -> Path:
    """Return the folder of this plan. If `out` already holds it, or a part of it, continue there; if it holds anything
    else, use the next free name."""
    used = list(takewhile(lambda folder: not unused(folder), names(out)))
    held = (folder for part in (False, True) for folder in used if _holds(folder, plan, part))
    folder = next(held, None) or next(folder for folder in names(out) if unused(folder))
    if unused(folder):
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_plan(folder, plan)
    return folder


def _holds(folder: Path, plan: ComparisonPlan, part: bool = False) -> bool:
    """Whether the plan in a folder trains the same runs; with `part`, some of them. A damaged plan is another plan."""
    try:
        kept = read_plan(folder)
        if part:  # minutes are for a given number of arms
            fewer = plan.minutes is None and set(kept.arms) < set(plan.arms) and kept.baseline == plan.baseline
            return fewer and _compared(kept) == _compared(_part(plan, kept))
        return _compared(kept) == _compared(plan)
    except (ValueError, TypeError):
        return False


def _part(plan: ComparisonPlan, kept: ComparisonPlan) -> ComparisonPlan:
    """Return the plan with the arms of `kept` alone."""
    mine = {
        name: {arm: value for arm, value in getattr(plan, name).items() if arm in kept.arms}
        for name in ("arms", "against", "shares")
    }
    return replace(plan, **mine, methods=kept.methods, regimes=kept.regimes)


def _compared(plan: ComparisonPlan) -> dict[str, Any]:
    """Return the part of a plan that decides which runs it trains."""
    base = plan.base if plan.metric else chosen_options(from_dict(TrainConfig, {**plan.base}))
    if plan.minutes is not None:  # the steps follow from the minutes
        base = {name: value for name, value in base.items() if name != "steps"}
    return {**{name: value for name, value in asdict(plan).items() if name not in NOT_COMPARED}, "base": base}
