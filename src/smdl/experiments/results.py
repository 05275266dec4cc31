"""Results: what the files of an experiment say. Reads files, never the program that wrote them."""

import csv
import io
import math
from collections import Counter
from pathlib import Path
from statistics import mean, median_low
from typing import Any

import yaml

from smdl.experiments.compare import Experiment, Plan
from smdl.experiments.logs import MEASURES, read_run, seconds_of, summary
from smdl.experiments.runner import folder_of
from smdl.experiments.statistics import Estimate, difference, estimate, holm
from smdl.training.files import read_json, replacing, write_json

LEVEL = 0.05


class ResultsError(ValueError):
    """A folder that holds no experiment."""


def collect(folder: Path) -> dict[str, Any]:
    """Everything a report shows, as plain values: results.json."""
    try:
        return _collect(folder)
    except ResultsError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ResultsError(f"plan.yaml or calibration.json in {folder} is damaged: {error!r}") from error


def _collect(folder: Path) -> dict[str, Any]:
    experiment, problems = _open(folder), []
    plan = experiment.plan
    runs = []
    for arm in plan.arms:
        for protocol in plan.protocols:
            for config in experiment.configs(arm, protocol):
                at = folder_of(experiment.store, config)
                epochs, problem = read_run(at, config.steps)
                if problem:
                    problems.append(f"{arm}, seed {config.seed}, equal {protocol}: {problem}")
                name = str(at.relative_to(folder)) if at.is_relative_to(folder) else str(at)
                runs.append({"arm": arm, "protocol": protocol, "seed": config.seed, "folder": name,
                             "steps": config.steps, "epochs": epochs, "problem": problem})  # fmt: skip
    rows = [_row(experiment, arm, protocol, runs) for protocol in plan.protocols for arm in plan.arms]
    tests = [test for protocol in plan.protocols for test in _tests(plan, protocol, runs)]
    equal = {protocol: _equal(protocol, rows) for protocol in plan.protocols}
    return {
        "title": plan.title,
        "caption": plan.caption,
        "paper": _with_ours(plan.paper, rows),
        "baseline": plan.baseline,
        "against": plan.against,
        "primary": plan.primary,
        "protocols": plan.protocols,
        "equal": equal,
        "arms": list(plan.arms),
        "seeds": plan.seeds,
        "verdict": verdict(plan, tests, equal[plan.primary]),
        "rows": rows,
        "tests": tests,
        "calibration": experiment.calibration,
        "runs": runs,
        "problems": sorted(set(problems)),
        "config": plan.base,
        "overrides": plan.arms,
        "environment": _environment(plan, [folder / run["folder"] for run in runs]),
    }


def _equal(protocol: str, rows: list[dict[str, Any]]) -> str:
    """What a protocol makes equal: steps are epochs where batches differ in size."""
    steps = {row["steps"] for row in rows if row["protocol"] == protocol}
    return "epochs" if protocol == "steps" and len(steps) > 1 else protocol


def _environment(plan: Plan, folders: list[Path]) -> dict[str, Any]:
    """Of the first whole run, with the commits of all: runs may be shared with other experiments, and older."""
    found = [whole["environment"] for folder in dict.fromkeys(folders) if (whole := summary(folder))]
    if not found:
        return {}
    commits = Counter(str(environment.get("commit")) for environment in found)
    told = [commit if len(commits) == 1 else f"{commit} ({count} runs)" for commit, count in commits.items()]
    command = {"command": plan.command} if plan.command else {}
    return {**found[0], "commit": ", ".join(told), **command}


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


def verdict(plan: Plan, tests: list[dict[str, Any]], equal: str) -> str:
    """One sentence, about the primary endpoint alone."""
    parts = [_said(test, bool(plan.against)) for test in tests if test["protocol"] == plan.primary]
    rival = "each against its own baseline" if plan.against else f"against {plan.baseline}"
    return f"At equal {equal}, {rival} over {plan.seeds} seeds: {'; '.join(parts)}."


def _said(test: dict[str, Any], named: bool) -> str:
    gap, half, p = test["difference"], test["half"], test["p_holm"]
    arm = f"{test['arm']} (against {test['against']})" if named else test["arm"]
    failed = [f"{count} of {name}’s runs" for name, count in test["failed"].items() if count]
    left_out = f", {' and '.join(failed)} left out: not finished, diverged or damaged" if failed else ""
    if gap is None:
        return f"{' and '.join(test['empty'])} has no finished run"
    if p is None:
        return f"{arm} {gap:+.2f} points, from too few seeds to tell{left_out}"
    if p < LEVEL:
        return f"{arm} is {'better' if gap > 0 else 'worse'} by {abs(gap):.2f} ± {half:.2f} points{left_out}"
    if abs(gap) > half:  # the interval is one comparison's, the p-value all comparisons'
        return f"not settled for {arm} ({gap:+.2f} ± {half:.2f} points, p = {p:.2f} over all comparisons){left_out}"
    return f"no difference seen for {arm} ({gap:+.2f} ± {half:.2f} points){left_out}"


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
    seconds, unit = (mean(seconds_of(run["epochs"]) for run in runs) for runs in (mine, baseline))
    share = seconds / (unit or math.nan)
    return share if math.isfinite(share) else None


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
            "failed": {name: plan.seeds - len(finals[name]) for name in (arm, rival)},
            "empty": [name for name in (arm, rival) if not finals[name]],
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
