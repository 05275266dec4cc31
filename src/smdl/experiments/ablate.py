"""Ablations: vary one thing. The paper's sweeps with its values, and those that it left open."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from smdl.errors import unknown
from smdl.experiments.arms import Overrides, merged, overrides_of
from smdl.experiments.experiment import run_plan
from smdl.experiments.plan import Plan
from smdl.experiments.records import Results
from smdl.experiments.results import collect
from smdl.experiments.sweeps import ABOUT
from smdl.training.config import TrainConfig, to_dict
from smdl.training.progress import Display

MODULAR = ("uncertainty", "mean_closeness", "feature_match")
TERMS = ("uncertainty", "redundancy", "mean_closeness", "feature_match")

Arms = dict[str, Overrides]


def paper_arm(**changes: Any) -> Overrides:
    """Return the paper's arm with some values changed."""
    return merged(overrides_of("paper"), changes)


def weighted(**weights: float) -> Overrides:
    """Return the paper's method with these weights. Weights of 0 are left out, so that equal arms are trained once."""
    return paper_arm(objective={term: weight for term, weight in weights.items() if weight})


def _distance(values: list[Any]) -> Arms:
    return {f"paper, {value}": paper_arm(objective={"distance": value}) for value in values}


def _learning_rate(values: list[Any]) -> Arms:
    arms = {}
    for value in values:
        change = {"optimizer": {"lr": float(value)}}
        arms[f"uniform, lr {value}"] = merged(overrides_of("uniform"), change)
        arms[f"paper, lr {value}"] = paper_arm(**change)
    return arms


def _batch_size(values: list[Any]) -> Arms:
    arms = {}
    for value in values:
        arms[f"uniform, batch {value}"] = merged(overrides_of("uniform"), {"batch_size": int(value)})
        arms[f"paper, batch {value}"] = paper_arm(batch_size=int(value))
    return arms


def _refresh(values: list[Any]) -> Arms:
    return {f"paper, refresh {value}": paper_arm(candidates={"every": int(value)}) for value in values}


def _terms(values: list[Any]) -> Arms:
    return {
        "paper": overrides_of("paper"),
        **{f"SMDL-{1 + TERMS.index(term)}, {term}": weighted(**{term: 1.0}) for term in values},
    }


def _pool_factor(values: list[Any]) -> Arms:
    base = overrides_of("recommended")
    return {f"recommended, pool {v}x": merged(base, {"candidates": {"factor": float(v)}}) for v in values}


def _normalisation(values: list[Any]) -> Arms:
    return {f"paper, over {value}": paper_arm(objective={"normalize": value}) for value in values}


def _replacement(values: list[Any]) -> Arms:
    names = {"false": "without", "true": "with"}
    return {
        f"paper, {names[str(value).lower()]} replacement": paper_arm(
            candidates={"replacement": str(value).lower() == "true"}
        )
        for value in values
    }


def _batchnorm(values: list[Any]) -> Arms:
    arms = {}
    for value in values:
        on = str(value).lower() == "true"
        for name in ("uniform", "paper", "recommended"):
            arms[f"{name}, {'with' if on else 'without'} BatchNorm"] = merged(
                overrides_of(name), {"model": {"batchnorm": on}}
            )
    return arms


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
    "distance": (["euclidean", "cosine", "correlation", "gaussian"], _distance),
    "learning-rate": ([0.1, 0.01, 0.001], _learning_rate),
    "batch-size": ([50, 100, 200], _batch_size),
    "refresh": ([1, 5, 10, 20], _refresh),
    "terms": (list(TERMS), _terms),
    "pool-factor": ([1.5, 2, 3, 5, 8], _pool_factor),
    "normalisation": (["pool", "candidates"], _normalisation),
    "replacement": ([False, True], _replacement),
    "batchnorm": ([True, False], _batchnorm),
}


def _checked(sweep: str, values: list[Any], usual: list[Any]) -> list[Any]:
    """Values from a command line: numbers where the sweep has numbers, else of those it knows."""
    if isinstance(usual[0], bool | str):
        known = [str(value).lower() for value in usual]
        for value in values:
            if str(value).lower() not in known:
                raise ValueError(unknown(f"value for {sweep}", value, known))
        return [str(value).lower() for value in values]
    try:
        return [float(value) if isinstance(usual[0], float) or sweep == "weights" else int(value) for value in values]
    except ValueError as error:
        raise ValueError(f"values for {sweep} must be numbers such as {usual[-1]}, got {', '.join(values)}") from error


def plan_of(sweep: str, base: TrainConfig, seeds: int, values: list[Any] | None = None, **words: Any) -> Plan:
    """The plan of a sweep (of `weights`, its first stage), uniform batches beside it: one baseline, or one for each
    value where the sweep varies SGD as well. Words are a plan's caption and paper."""
    if sweep not in SWEEPS:
        raise ValueError(unknown("ablation", sweep, SWEEPS))
    usual, arms = SWEEPS[sweep]
    made = arms(_checked(sweep, values, usual) if values else usual)
    own = {arm: rival for arm in made if (rival := f"uniform, {arm.partition(', ')[2]}") in made and rival != arm}
    if not own:
        made = {"uniform": overrides_of("uniform"), **made}
    return Plan(
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
