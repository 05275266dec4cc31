"""The results of an experiment. Everything comes from plan.yaml, calibration.json and the files of the runs."""

import csv
import io
import math
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median_low
from typing import Any

from smdl.common.storage import read_json, write_bytes, write_json
from smdl.experiments.comparison_plan import ComparisonPlan, FolderError, read_plan
from smdl.experiments.paired_tests import gains_of, primary_tests, secondary_tests, values_of
from smdl.experiments.records import Comparison, DataFacts, Overhead, Results, Row, RunRecord, runs_of
from smdl.experiments.regimes import arm_name, baseline_of
from smdl.experiments.runs import GROUPED, MEASURES, Epoch, measured, read_run, read_summary, training_seconds
from smdl.experiments.statistics import Estimate, estimate
from smdl.experiments.verdicts import answer, at_chance, data_facts, finding

#: Range of the logged time, relative to the baseline's, within which equal time is believed.
TIME_RATIO = (0.9, 1.1)
#: What the results take from the plan as it is.
PLANNED = (
    "title", "caption", "baseline", "against", "primary", "protocols", "seeds", "earlier_seeds", "looks", "minutes",
    "planned_steps", "methods", "regimes", "endpoints", "metric", "higher_is_better", "learning_rates"
)  # fmt: skip


def collect(folder: Path) -> Results:
    """Read the results of an experiment from its folder."""
    plan = read_plan(folder)
    path = folder / "calibration.json"
    calibration = read_json(path)
    if calibration is None and path.exists():
        raise FolderError(f"{path} is damaged: run the same command again, which measures it again")
    if calibration is None or not plan.fits(calibration) or not plan.runs:
        raise FolderError(f"{folder} was interrupted before its calibration was finished: run the same command again")
    try:
        return _collect(folder, plan, calibration)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise FolderError(f"plan.yaml or calibration.json in {folder} is damaged: {error!r}") from error


def write(folder: Path, results: Results) -> None:
    """Write results.json and results.csv."""
    write_json(folder / "results.json", asdict(results))
    text = io.StringIO()
    writer = csv.writer(text)
    runs = [(run, measured(run.epochs)) for run in results.runs if run.epochs and not run.problem]
    names = list(dict.fromkeys(name for _, found in runs for name in found)) or list(MEASURES)
    writer.writerow(["protocol", "arm", "seed", "steps", *names])
    for run, found in runs:
        writer.writerow([run.protocol, run.arm, run.seed, run.steps, *(found.get(name) for name in names)])
    write_bytes(folder / "results.csv", text.getvalue().encode())


def verdict(plan: ComparisonPlan, tests: list[Comparison], equal: str) -> str:
    """Say what the tests at the primary endpoint found."""
    tests = [test for test in tests if test.protocol == plan.primary and not plan.is_oracle(test.arm)]
    rival = "each against its own baseline" if plan.against else f"against {plan.baseline}"
    start = f"At equal {equal}, {rival} over {plan.seeds} seeds{_shortened(plan)}"
    if all(test.verdict == "chance" for test in tests):
        return f"{start}: nothing was learned: every arm is at chance level. Train longer, or change the learning rate."
    return f"{start}: {'; '.join(finding(test, bool(plan.against)) for test in tests)}."


def _shortened(plan: ComparisonPlan) -> str:
    """Say how much shorter than planned the runs are."""
    if plan.planned_steps is None or plan.minutes is None:
        return ""
    return f", shortened from {plan.planned_steps:,} to {plan.base['steps']:,} steps to fit {plan.minutes:g} minutes"


def _collect(folder: Path, plan: ComparisonPlan, calibration: dict[str, Any]) -> Results:
    runs = []
    for planned in plan.runs:
        files = read_run(folder / planned.folder, planned.steps)
        problem = files.problems[0] if files.problems else None
        epochs = [] if problem else files.epochs
        runs.append(
            RunRecord(planned.arm, planned.protocol, planned.seed, planned.folder, planned.steps, epochs, problem)
        )
    rows = [_row(plan, calibration, arm, protocol, runs) for protocol in plan.protocols for arm in plan.arms]
    data = {arm: _data(folder, plan, calibration, arm) for arm in plan.arms}
    tests = [test for protocol in plan.protocols for test in primary_tests(plan, protocol, runs, data)]
    equal = {protocol: _equal(protocol, rows) for protocol in plan.protocols}
    problems = {f"{run.arm}, seed {run.seed}, equal {run.protocol}: {run.problem}" for run in runs if run.problem}
    return Results(
        **{name: getattr(plan, name) for name in PLANNED},
        paper=_with_ours(plan.paper, rows),
        equal=equal,
        arms=list(plan.arms),
        data=data[plan.baseline],
        answer=_answer(plan, tests, equal[plan.primary]),
        verdict=verdict(plan, tests, equal[plan.primary]),
        rows=rows,
        tests=tests,
        secondary=[test for protocol in plan.protocols for test in secondary_tests(plan, protocol, rows, runs)],
        gains=gains_of(plan, runs),
        calibration=calibration,
        runs=runs,
        problems=[*sorted(problems), *_chance_problems(rows, equal, data)],
        warnings=_warnings(plan, rows),
        config=plan.base,
        overrides=plan.arms,
        environment=_environment(plan, [folder / run.folder for run in runs]),
    )


def _answer(plan: ComparisonPlan, tests: list[Comparison], equal: str) -> str:
    """Answer "should I use it here?", regime by regime if there are several."""
    tests = [test for test in tests if test.protocol == plan.primary and not plan.is_oracle(test.arm)]
    if not plan.regimes:
        return answer(tests, equal, "its own baseline" if plan.against else plan.baseline)
    found = []
    for regime in plan.regimes:
        mine = [
            replace(test, arm=method, against=baseline_of(plan.methods))
            for method in plan.methods
            for test in tests
            if test.arm == arm_name(method, regime)
        ]
        found.append(f"{regime.capitalize()}: {answer(mine, equal, baseline_of(plan.methods))}")
    return "\n".join(found)


def _equal(protocol: str, rows: list[Row]) -> str:
    """Name what a protocol makes equal: equal steps are equal epochs where batches differ in size."""
    steps = {row.steps for row in rows if row.protocol == protocol}
    return "epochs" if protocol == "steps" and len(steps) > 1 else protocol


def _data(folder: Path, plan: ComparisonPlan, calibration: dict[str, Any], arm: str) -> DataFacts:
    """Return what the accuracies are measured on; the number of classes from a run where the calibration is older."""
    found = calibration[arm]
    classes = found.get("classes")
    if classes is None:
        names = ((read_summary(folder / run.folder) or {}).get("classes") for run in plan.runs)
        classes = next((len(known) for known in names if isinstance(known, list)), None)
    return data_facts(found.get("samples"), found.get("test_samples"), classes, found.get("largest_class"))


def _chance_problems(rows: list[Row], equal: dict[str, str], data: dict[str, DataFacts]) -> list[str]:
    """Name the arms that learned nothing."""
    return [
        f"{row.arm}, equal {equal[row.protocol]}: final accuracy {row.final_accuracy.mean:.2f} % is at chance level"
        f" ({data[row.arm].chance:.2f} %)"
        for row in rows
        if at_chance(row.final_accuracy.mean, data[row.arm])
    ]


def _warnings(plan: ComparisonPlan, rows: list[Row]) -> list[str]:
    """Say what makes the numbers less certain than they look."""
    low, high = TIME_RATIO
    found = [
        f"{row.arm}, equal time: the runs logged {row.by_the_log:.2f} × the baseline’s time, outside {low:g}–{high:g}:"
        " time was not equal, or the machine was busy"
        for row in rows
        if row.protocol == "time"
        and row.by_the_log is not None
        and not low <= row.by_the_log / plan.shares.get(row.arm, 1.0) <= high
    ]
    if plan.earlier_seeds:
        found.append(
            f"seeds: {', later '.join(map(str, [*plan.earlier_seeds, plan.seeds]))}. The number was changed when"
            " results were known; the intervals do not allow for that"
        )
    return found


def _environment(plan: ComparisonPlan, folders: list[Path]) -> dict[str, Any]:
    """Return the environment of the first finished run, and the commits of all: runs may be shared, and older."""
    found = [summary["environment"] for folder in dict.fromkeys(folders) if (summary := read_summary(folder))]
    if not found:
        return {}
    commits = Counter(str(environment.get("commit")) for environment in found)
    names = [commit if len(commits) == 1 else f"{commit} ({count} runs)" for commit, count in commits.items()]
    command = {"command": plan.command} if plan.command else {}
    return {**found[0], "commit": ", ".join(names), **command}


def _row(plan: ComparisonPlan, calibration: dict[str, Any], arm: str, protocol: str, runs: list[RunRecord]) -> Row:
    mine, cost = runs_of(runs, arm, protocol), calibration[arm]
    steps = next(run.steps for run in plan.runs if (run.arm, run.protocol) == (arm, protocol))
    goal = values_of(runs, plan.own_baseline(arm), protocol, "final_accuracy")  # a metric of the user has no curve
    own = list(dict.fromkeys(name for run in mine for name in measured(run.epochs)))
    more = own or [plan.metric] if plan.metric else [name for name in GROUPED if name in own]
    reached = [_steps_to(run.epochs, fmean(goal.values())) for run in mine] if goal else []
    hits = [step for step in reached if step is not None]
    typical = median_low(hits) if hits else None

    def values(name: str) -> Estimate:
        return estimate(list(values_of(runs, arm, protocol, name).values()))

    second, reference, refit = (cost.get(name) for name in ("seconds_per_step", "reference_seconds", "refit_seconds"))
    return Row(
        arm=arm,
        protocol=protocol,
        seeds=len(mine),
        steps=steps,
        seconds=second and steps * second + (reference or 0.0) + (refit or 0.0),
        seconds_per_step=second,
        seconds_per_epoch=second and second * cost["steps_per_epoch"],
        by_the_log=_by_the_log(plan, calibration, arm, protocol, runs) if second else None,
        overhead=_overhead(cost, calibration[plan.own_baseline(arm)]) if second else None,
        forwards_per_step=cost.get("forwards_per_step"),
        steps_to_baseline=typical,
        seconds_to_baseline=typical and second and typical * second,
        reached_baseline=None if plan.metric else f"{len(hits)}/{len(mine)}",
        reference_seconds=reference,
        refit_seconds=refit,
        metrics={name: values(name) for name in more},
        **{name: estimate([]) if plan.metric else values(name) for name in MEASURES},
    )


def _by_the_log(
    plan: ComparisonPlan, calibration: dict[str, Any], arm: str, protocol: str, runs: list[RunRecord]
) -> float | None:
    """Return the ratio of an arm's logged seconds to the baseline's, each with the seconds of its reference model. Only
    a check: runs may share the machine."""
    spent = []
    for name in (arm, plan.own_baseline(arm)):
        logged = [training_seconds(run.epochs) for run in runs_of(runs, name, protocol)]
        spent.append((fmean(logged) if logged else math.nan) + (calibration[name].get("reference_seconds") or 0.0))
    ratio = spent[0] / (spent[1] or math.nan)
    return ratio if math.isfinite(ratio) else None


def _overhead(cost: dict[str, Any], reference: dict[str, Any]) -> Overhead:
    unit = reference["seconds_per_step"]
    scoring, selection = (cost["parts"][name] / unit for name in ("scoring", "selection"))
    return Overhead(scoring, selection, cost["seconds_per_step"] / unit - 1)


def _steps_to(epochs: list[Epoch], accuracy: float) -> int | None:
    """Return the steps at the first evaluation that is at least as good."""
    return next((record["steps"] for record in epochs if 100 * (1 - record["test_error"]) >= accuracy), None)


def _with_ours(paper: dict[str, Any] | None, rows: list[Row]) -> dict[str, Any] | None:
    """Add our number to each cell of the paper's table; at equal steps where there are such runs, as in the paper."""
    if not paper:
        return None
    found = {row.arm: row for row in sorted(rows, key=lambda row: row.protocol == "steps")}

    def ours(cell: dict[str, Any]) -> Any:
        return getattr(found[cell["arm"]], cell["measure"]) if cell["arm"] in found else None

    filled = [{**row, "cells": [{**cell, "ours": ours(cell)} for cell in row["cells"]]} for row in paper["rows"]]
    return {**paper, "rows": filled}
