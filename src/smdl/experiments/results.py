"""Results: what the files of an experiment say. Reads files, never the program that wrote them."""

import csv
import io
import math
from pathlib import Path
from statistics import mean, median_low
from typing import Any

import yaml

from smdl.experiments.compare import Experiment, Plan
from smdl.experiments.runner import folder_of
from smdl.experiments.statistics import Estimate, difference, estimate, holm
from smdl.training.files import read_json, read_lines, replacing, write_json

#: Quantities of a run, as percentages where they are fractions: name -> how it is read off the epochs' records.
MEASURES = {
    "final_accuracy": lambda epochs: 100 * (1 - epochs[-1]["test_error"]),
    "mean_accuracy": lambda epochs: mean(100 * (1 - record["test_error"]) for record in epochs),
    "final_loss": lambda epochs: epochs[-1]["test_loss"],
    "mean_loss": lambda epochs: mean(record["test_loss"] for record in epochs),
    "final_train_accuracy": lambda epochs: _percent_right(epochs[-1]["train_error"]),
    "final_train_loss": lambda epochs: math.nan if epochs[-1]["train_loss"] is None else epochs[-1]["train_loss"],
}
LEVEL = 0.05


def _percent_right(error: float | None) -> float:
    return math.nan if error is None else 100 * (1 - error)  # None where train_evaluation is 0


class ResultsError(ValueError):
    """A folder that holds no experiment."""


def collect(folder: Path) -> dict[str, Any]:
    """Everything a report shows, as plain values: results.json."""
    experiment, problems = _open(folder), []
    plan = experiment.plan
    runs = []
    for arm in plan.arms:
        for protocol in plan.protocols:
            for config in experiment.configs(arm, protocol):
                at = folder_of(experiment.store, config)
                epochs, problem = _read_run(at, config.steps)
                if problem:
                    problems.append(f"{arm}, seed {config.seed}, equal {protocol}: {problem}")
                name = str(at.relative_to(folder)) if at.is_relative_to(folder) else str(at)
                runs.append({"arm": arm, "protocol": protocol, "seed": config.seed, "folder": name,
                             "steps": config.steps, "epochs": epochs, "problem": problem})  # fmt: skip
    rows = [_row(experiment, arm, protocol, runs) for protocol in plan.protocols for arm in plan.arms]
    tests = [test for protocol in plan.protocols for test in _tests(plan, protocol, runs)]
    environment = next((found["environment"] for run in runs if (found := _summary(folder / run["folder"]))), {})
    return {
        "title": plan.title,
        "caption": plan.caption,
        "paper": _with_ours(plan.paper, rows),
        "baseline": plan.baseline,
        "against": plan.against,
        "primary": "time" if "time" in plan.protocols else plan.protocols[0],
        "protocols": plan.protocols,
        "arms": list(plan.arms),
        "seeds": plan.seeds,
        "verdict": verdict(plan, tests, len({run["folder"] for run in runs if run["problem"]})),
        "rows": rows,
        "tests": tests,
        "calibration": experiment.calibration,
        "runs": runs,
        "problems": sorted(set(problems)),
        "config": plan.base,
        "overrides": plan.arms,
        "environment": environment,
    }


def write(folder: Path, results: dict[str, Any]) -> None:
    """results.json and results.csv."""
    write_json(folder / "results.json", results)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["protocol", "arm", "seed", "steps", *MEASURES])
    for run in results["runs"]:
        if run["epochs"] and not run["problem"]:
            measured = [measure(run["epochs"]) for measure in MEASURES.values()]
            writer.writerow([run["protocol"], run["arm"], run["seed"], run["steps"], *measured])
    with replacing(folder / "results.csv") as file:
        file.write(text.getvalue().encode())


def verdict(plan: Plan, tests: list[dict[str, Any]], missing: int = 0) -> str:
    """One sentence, about the primary endpoint alone."""
    protocol = "time" if "time" in plan.protocols else plan.protocols[0]
    parts = [_said(test, bool(plan.against)) for test in tests if test["protocol"] == protocol]
    if not parts:
        return f"Nothing to compare with {plan.baseline} yet."
    short = f" ({missing} of the runs are missing)" if missing else ""
    rival = "each against its own baseline" if plan.against else f"against {plan.baseline}"
    return f"At equal {protocol}, {rival} over {plan.seeds} seeds{short}: {'; '.join(parts)}."


def _said(test: dict[str, Any], named: bool = False) -> str:
    arm, gap, half, p = test["arm"], test["difference"], test["half"], test["p_holm"]
    arm = f"{arm} (against {test['against']})" if named else arm
    if gap is None:
        return f"{arm} has no finished run"
    if p is None:
        return f"{arm} {gap:+.2f} points, from too few seeds to tell"
    if p < LEVEL:
        return f"{arm} is {'better' if gap > 0 else 'worse'} by {abs(gap):.2f} ± {half:.2f} points"
    if abs(gap) > half:  # the interval is one comparison's, the p-value all comparisons'
        return f"not settled for {arm} ({gap:+.2f} ± {half:.2f} points, p = {p:.2f} over all comparisons)"
    return f"no difference seen for {arm} ({gap:+.2f} ± {half:.2f} points)"


def _open(folder: Path) -> Experiment:
    path = folder / "plan.yaml"
    try:
        values = yaml.safe_load(path.read_text())
        store = folder / values.pop("store")
        experiment = Experiment(folder, Plan(**values), store)
    except FileNotFoundError:
        raise ResultsError(f"{folder} holds no experiment: it has no plan.yaml") from None
    except (yaml.YAMLError, TypeError, AttributeError, KeyError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path} is damaged: {error}") from error
    experiment.calibration = read_json(folder / "calibration.json")
    if not isinstance(experiment.calibration, dict) or set(experiment.calibration) != set(experiment.plan.arms):
        raise ResultsError(f"{folder} was interrupted before its calibration: start it again to go on")
    return experiment


def _read_run(folder: Path, steps: int | None) -> tuple[list[dict[str, Any]], str | None]:
    """(the epochs' records, what is wrong with the run)."""
    failed = read_json(folder / "failed.json")
    if failed is not None:
        return [], f"diverged: {failed.get('error', '') if isinstance(failed, dict) else failed}"
    if not folder.exists():
        return [], "not begun"
    try:
        epochs = read_lines(folder / "metrics.jsonl")
        for record in epochs:
            for measure in MEASURES.values():
                measure([record])
            int(record["steps"])
    except (KeyError, TypeError, ValueError, UnicodeDecodeError, OSError) as error:
        return [], f"its metrics.jsonl is damaged: {error!r}"
    if _summary(folder) is None:
        return [], "not finished"
    if not epochs:
        return [], "its metrics.jsonl is empty"
    if [record.get("epoch") for record in epochs] != list(range(len(epochs))):
        return [], "its metrics.jsonl is damaged: epochs are missing or written twice, as by two processes at once"
    if epochs[-1]["steps"] != steps:
        return [], f"its metrics.jsonl is damaged: it ends at step {epochs[-1]['steps']} of {steps}"
    return epochs, None


def _summary(folder: Path) -> dict[str, Any] | None:
    found = read_json(folder / "summary.json")
    return found if isinstance(found, dict) and "environment" in found else None


def _of(runs: list[dict[str, Any]], arm: str, protocol: str) -> list[dict[str, Any]]:
    return [run for run in runs if run["arm"] == arm and run["protocol"] == protocol and not run["problem"]]


def _row(experiment: Experiment, arm: str, protocol: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table: estimates over seeds, and costs from the calibration."""
    mine, plan, calibration = _of(runs, arm, protocol), experiment.plan, experiment.calibration
    assert calibration is not None
    cost, reference = calibration[arm], calibration[plan.baseline]
    steps = experiment.steps_of(arm, protocol)
    goal = _values(_of(runs, plan.rivals.get(arm, arm), protocol), "final_accuracy")
    reached = [_steps_to(run["epochs"], mean(goal)) for run in mine] if goal else []
    hits = sorted(steps for steps in reached if steps is not None)
    typical = median_low(hits) if hits else None
    second = cost.get("seconds_per_step")  # None in a comparison that was not timed
    return {
        "arm": arm,
        "protocol": protocol,
        "seeds": len(mine),
        "steps": steps,
        "seconds": second and steps * second,
        "seconds_per_step": second,
        "seconds_per_epoch": second and second * cost["steps_per_epoch"],
        "by_the_log": _by_the_log(mine, _of(runs, plan.baseline, protocol)) if second else None,
        "overhead": _overhead(cost, reference) if second else None,
        "forwards_per_step": cost.get("forwards_per_step"),
        "steps_to_baseline": typical,
        "seconds_to_baseline": typical and second and typical * second,
        "reached_baseline": f"{len(hits)}/{len(mine)}",
        **{name: _plain(estimate(_values(mine, name))) for name in MEASURES},
    }


def _by_the_log(mine: list[dict[str, Any]], baseline: list[dict[str, Any]]) -> float | None:
    """Seconds of training that the runs themselves logged, over the baseline's: a check of equal time, no more, for
    runs may go side by side."""
    if not mine or not baseline:
        return None
    seconds, unit = (mean(_logged(run["epochs"]) for run in runs) for runs in (mine, baseline))
    share = seconds / (unit or math.nan)
    return share if math.isfinite(share) else None


def _logged(epochs: list[dict[str, Any]]) -> float:
    """Seconds of a run without evaluation; nan where a record lacks them."""
    spent = [record.get("seconds") or {"training": math.nan} for record in epochs]
    return sum(seconds for parts in spent for name, seconds in parts.items() if name != "evaluation")


def _with_ours(paper: dict[str, Any] | None, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The paper's numbers, ours beside each; at equal steps where there are such runs: that is its protocol."""
    if not paper:
        return None
    found = {row["arm"]: row for row in sorted(rows, key=lambda row: row["protocol"] == "steps")}

    def ours(cell: dict[str, Any]) -> Any:
        return found[cell["arm"]][cell["measure"]] if cell["arm"] in found else None

    filled = [{**row, "cells": [{**cell, "ours": ours(cell)} for cell in row["cells"]]} for row in paper["rows"]]
    return {**paper, "rows": filled}


def _overhead(cost: dict[str, Any], reference: dict[str, Any]) -> dict[str, float]:
    """Over a step of the baseline, in such steps."""
    unit = reference["seconds_per_step"]
    parts = {name: cost["parts"][name] / unit for name in ("scoring", "selection")}
    return {**parts, "total": cost["seconds_per_step"] / unit - 1}


def _values(runs: list[dict[str, Any]], measure: str) -> list[float]:
    return [MEASURES[measure](run["epochs"]) for run in runs]


def _steps_to(epochs: list[dict[str, Any]], accuracy: float) -> int | None:
    """Steps at the first evaluation that is at least as good."""
    return next((record["steps"] for record in epochs if 100 * (1 - record["test_error"]) >= accuracy), None)


def _tests(plan: Plan, protocol: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Welch's test of an arm's final accuracy against its baseline's, Holm over the comparisons."""
    finals = {arm: _values(_of(runs, arm, protocol), "final_accuracy") for arm in plan.arms}
    found = [difference(finals[arm], finals[rival]) for arm, rival in plan.rivals.items()]
    adjusted = holm([gap.p for gap in found])
    return [
        {
            "arm": arm,
            "against": rival,
            "protocol": protocol,
            "difference": None if math.isnan(gap.mean) else gap.mean,
            "half": gap.half,
            "p": gap.p,
            "p_holm": p,
        }
        for (arm, rival), gap, p in zip(plan.rivals.items(), found, adjusted, strict=True)
    ]


def _plain(value: Estimate) -> dict[str, Any]:
    finite = math.isfinite(value.mean)
    return {"mean": value.mean if finite else None, "half": value.half if finite else None, "count": value.count}
