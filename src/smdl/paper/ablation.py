"""Ablations: vary one thing. The paper's sweeps with its values, and those that it left open."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from smdl.common.messages import unknown
from smdl.common.progress import Display
from smdl.experiments.arms import Overrides, merged, overrides_of
from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.experiments.experiment import run_plan
from smdl.experiments.records import Results
from smdl.experiments.results import collect
from smdl.paper.sweeps import ABOUT
from smdl.training.config import TrainConfig, to_dict

MODULAR = ("uncertainty", "mean_closeness", "feature_match")
TERMS = ("uncertainty", "redundancy", "mean_closeness", "feature_match")

Arms = dict[str, Overrides]


def weighted(**weights: float) -> Overrides:
    """Return the paper's method with these weights. Weights of 0 are left out, so that equal arms are trained once."""
    return {**overrides_of("paper"), "objective": {term: weight for term, weight in weights.items() if weight}}


def _varied(
    label: Callable[[Any], str], change: Callable[[Any], Overrides], methods: tuple[str, ...] = ("paper",)
) -> Callable[[list[Any]], Arms]:
    """Return a function that makes the arms of some values: each value in each of the methods."""
    return lambda values: {
        f"{method}, {label(value)}": merged(overrides_of(method), change(value))
        for value in values
        for method in methods
    }


def _switched(what: str) -> Callable[[bool], str]:
    return lambda on: f"{'with' if on else 'without'} {what}"


def _terms(values: list[Any]) -> Arms:
    return {
        "paper": overrides_of("paper"),
        **{f"SMDL-{1 + TERMS.index(term)}, {term}": weighted(**{term: 1.0}) for term in values},
    }


def _weights(values: list[Any]) -> Arms:
    """The first stage: λ2 = 0.5, one of the others varied, the rest 0."""
    arms = {}
    for term in MODULAR:
        for value in values:
            arms[f"{_lambda(term)} = {value}"] = weighted(redundancy=0.5, **{term: float(value)})
    return arms


def _lambda(term: str) -> str:
    return f"λ{1 + TERMS.index(term)}"


#: name -> (the paper's values or ours, arms)
SWEEPS: dict[str, tuple[list[Any], Callable[[list[Any]], Arms]]] = {
    "weights": ([0, 0.2, 0.5, 0.8, 1.0], _weights),
    "distance": (
        ["euclidean", "cosine", "correlation", "gaussian"],
        _varied("{}".format, lambda value: {"objective": {"distance": value}}),
    ),
    "learning-rate": (
        [0.1, 0.01, 0.001],
        _varied("lr {}".format, lambda value: {"optimizer": {"lr": float(value)}}, ("uniform", "paper")),
    ),
    "batch-size": (
        [50, 100, 200],
        _varied("batch {}".format, lambda value: {"batch_size": int(value)}, ("uniform", "paper")),
    ),
    "refresh": ([1, 5, 10, 20], _varied("refresh {}".format, lambda value: {"candidates": {"every": int(value)}})),
    "terms": (list(TERMS), _terms),
    "pool-factor": (
        [1.5, 2, 3, 5, 8],
        _varied("pool {}x".format, lambda value: {"candidates": {"factor": float(value)}}, ("observed",)),
    ),
    "normalisation": (
        ["pool", "candidates"],
        _varied("over {}".format, lambda value: {"objective": {"normalize": value}}),
    ),
    "replacement": (
        [False, True],
        _varied(_switched("replacement"), lambda value: {"candidates": {"replacement": value}}),
    ),
    "batchnorm": (
        [True, False],
        _varied(_switched("BatchNorm"), lambda on: {"model": {"batchnorm": on}}, ("uniform", "paper", "observed")),
    ),
}


def _checked(sweep: str, values: list[Any], usual: list[Any]) -> list[Any]:
    """Values from a command line: numbers where the sweep has numbers, else of those it knows."""
    if isinstance(usual[0], bool | str):
        known = [str(value).lower() for value in usual]
        for value in values:
            if str(value).lower() not in known:
                raise ValueError(unknown(f"value for {sweep}", value, known))
        return [usual[known.index(str(value).lower())] for value in values]
    try:
        return [float(value) if isinstance(usual[0], float) or sweep == "weights" else int(value) for value in values]
    except ValueError as error:
        raise ValueError(f"values for {sweep} must be numbers such as {usual[-1]}, got {', '.join(values)}") from error


def plan_of(sweep: str, base: TrainConfig, seeds: int, values: list[Any] | None = None, **words: Any) -> ComparisonPlan:
    """The plan of a sweep (of `weights`, its first stage), uniform batches beside it: one baseline, or one for each
    value where the sweep varies SGD as well. Words are a plan's caption and paper."""
    if sweep not in SWEEPS:
        raise ValueError(unknown("ablation", sweep, SWEEPS))
    usual, arms = SWEEPS[sweep]
    made = arms(_checked(sweep, values, usual) if values else usual)
    own = {arm: rival for arm in made if (rival := f"uniform, {arm.partition(', ')[2]}") in made and rival != arm}
    if not own:
        made = {"uniform": overrides_of("uniform"), **made}
    return ComparisonPlan(
        f"{sweep}: {ABOUT[sweep]}",
        to_dict(base),
        made,
        baseline=next(iter(made)),
        against=own,
        seeds=seeds,
        protocols=["steps"],
        timed=False,
        **words,
    )


def ablate(
    sweep: str,
    base: TrainConfig,
    out: Path,
    *,
    seeds: int = 3,
    values: list[Any] | None = None,
    store: Path | None = None,
    jobs: int = 1,
    caption: str = "",
    paper: dict[str, Any] | None = None,
    display: Display | None = None,
) -> Path:
    """Run a sweep; returns its folder. `weights` adds its second stage: the best of the first, λ2 varied."""
    plan = plan_of(sweep, base, seeds, values, caption=caption, paper=paper)
    options = {"store": store, "jobs": jobs, "display": display}
    experiment = run_plan(plan, out, **options)
    if sweep != "weights":
        return experiment.folder
    best = best_weights(collect(experiment.folder))
    second = {f"λ2 = {value}": weighted(redundancy=float(value), **best) for value in values or SWEEPS["weights"][0]}
    shown = ", ".join(f"{_lambda(term)} = {value:g}" for term, value in best.items())
    arms = {**plan.arms, **{arm: change for arm, change in second.items() if any(change["objective"].values())}}
    both = replace(plan, title=f"{plan.title}; stage two with {shown}", arms=arms)
    return run_plan(both, out.with_name(f"{out.name}-both-stages"), **{**options, "store": experiment.store}).folder


def best_weights(results: Results) -> dict[str, float]:
    """Each modular weight's value with the highest mean final accuracy in the first stage; on the test set, as in the
    paper."""
    best = {}
    for term in MODULAR:
        rows = [row for row in results.rows if row.arm.startswith(f"{_lambda(term)} = ")]
        winner = max(rows, key=lambda row: row.final_accuracy.mean or 0.0)
        best[term] = float(winner.arm.partition(" = ")[2])
    return best
