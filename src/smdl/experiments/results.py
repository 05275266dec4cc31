"""The results of an experiment. Everything comes from plan.yaml, calibration.json and the files of the runs."""

import csv
import io
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median_low
from typing import Any

from smdl.experiments.plan import FolderError, Plan, read_plan
from smdl.experiments.records import Comparison, Overhead, Results, Row, Run
from smdl.experiments.runs import MEASURES, Epoch, read_run, read_summary, training_seconds
from smdl.experiments.statistics import difference, estimate, holm
from smdl.training.files import read_json, replacing, write_json

#: Level of the tests.
LEVEL = 0.05


def collect(folder: Path) -> Results:
    """Read the results of an experiment from its folder."""
    plan = read_plan(folder)
    calibration = read_json(folder / "calibration.json")
    if not plan.fits(calibration) or not plan.runs:
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
    writer.writerow(["protocol", "arm", "seed", "steps", *MEASURES])
    for run in results.runs:
        if run.epochs and not run.problem:
            measured = [measure(run.epochs) for measure in MEASURES.values()]
            writer.writerow([run.protocol, run.arm, run.seed, run.steps, *measured])
    with replacing(folder / "results.csv") as file:
        file.write(text.getvalue().encode())


def verdict(plan: Plan, tests: list[Comparison], equal: str) -> str:
    """Say in one sentence what the tests at the primary endpoint found."""
    parts = [_finding(test, bool(plan.against)) for test in tests if test.protocol == plan.primary]
    rival = "each against its own baseline" if plan.against else f"against {plan.baseline}"
    return f"At equal {equal}, {rival} over {plan.seeds} seeds: {'; '.join(parts)}."


def _finding(test: Comparison, named: bool) -> str:
    gap, half, p = test.difference, test.half, test.p_holm
    arm = f"{test.arm} (against {test.against})" if named else test.arm
    failed = [f"{count} of {name}’s runs" for name, count in test.failed.items() if count]
    left_out = f", {' and '.join(failed)} left out: not finished, diverged or damaged" if failed else ""
    if gap is None:
        return f"{' and '.join(test.empty)} has no finished run"
    if p is None or half is None:
        return f"{arm} {gap:+.2f} points, too few seeds to tell{left_out}"
    if p < LEVEL:
        return f"{arm} is {'better' if gap > 0 else 'worse'} by {abs(gap):.2f} ± {half:.2f} points{left_out}"
    if abs(gap) > half:  # the interval is for one comparison, the p-value for all of them
        return f"not settled for {arm} ({gap:+.2f} ± {half:.2f} points, p = {p:.2f} over all comparisons){left_out}"
    return f"no difference seen for {arm} ({gap:+.2f} ± {half:.2f} points){left_out}"


def _collect(folder: Path, plan: Plan, calibration: dict[str, Any]) -> Results:
    runs = []
    for planned in plan.runs:
        files = read_run(folder / planned.folder, planned.steps)
        problem = files.problems[0] if files.problems else None
        epochs = [] if problem else files.epochs
        runs.append(Run(planned.arm, planned.protocol, planned.seed, planned.folder, planned.steps, epochs, problem))
    rows = [_row(plan, calibration, arm, protocol, runs) for protocol in plan.protocols for arm in plan.arms]
    tests = [test for protocol in plan.protocols for test in _tests(plan, protocol, runs)]
    equal = {protocol: _equal(protocol, rows) for protocol in plan.protocols}
    problems = {f"{run.arm}, seed {run.seed}, equal {run.protocol}: {run.problem}" for run in runs if run.problem}
    return Results(
        title=plan.title,
        caption=plan.caption,
        paper=_with_ours(plan.paper, rows),
        baseline=plan.baseline,
        against=plan.against,
        primary=plan.primary,
        protocols=plan.protocols,
        equal=equal,
        arms=list(plan.arms),
        seeds=plan.seeds,
        verdict=verdict(plan, tests, equal[plan.primary]),
        rows=rows,
        tests=tests,
        calibration=calibration,
        runs=runs,
        problems=sorted(problems),
        config=plan.base,
        overrides=plan.arms,
        environment=_environment(plan, [folder / run.folder for run in runs]),
    )


def _equal(protocol: str, rows: list[Row]) -> str:
    """Name what a protocol makes equal: equal steps are equal epochs where batches differ in size."""
    steps = {row.steps for row in rows if row.protocol == protocol}
    return "epochs" if protocol == "steps" and len(steps) > 1 else protocol


def _environment(plan: Plan, folders: list[Path]) -> dict[str, Any]:
    """Return the environment of the first finished run, and the commits of all: runs may be shared, and older."""
    found = [summary["environment"] for folder in dict.fromkeys(folders) if (summary := read_summary(folder))]
    if not found:
        return {}
    commits = Counter(str(environment.get("commit")) for environment in found)
    names = [commit if len(commits) == 1 else f"{commit} ({count} runs)" for commit, count in commits.items()]
    command = {"command": plan.command} if plan.command else {}
    return {**found[0], "commit": ", ".join(names), **command}


def _of(runs: list[Run], arm: str, protocol: str) -> list[Run]:
    return [run for run in runs if run.arm == arm and run.protocol == protocol and not run.problem]


def _values(runs: list[Run], measure: str) -> list[float]:
    return [MEASURES[measure](run.epochs) for run in runs]


def _row(plan: Plan, calibration: dict[str, Any], arm: str, protocol: str, runs: list[Run]) -> Row:
    mine, cost = _of(runs, arm, protocol), calibration[arm]
    steps = next(run.steps for run in plan.runs if (run.arm, run.protocol) == (arm, protocol))
    goal = _values(_of(runs, plan.rivals.get(arm, arm), protocol), "final_accuracy")
    reached = [_steps_to(run.epochs, fmean(goal)) for run in mine] if goal else []
    hits = [step for step in reached if step is not None]
    typical = median_low(hits) if hits else None
    second = cost.get("seconds_per_step")
    return Row(
        arm=arm,
        protocol=protocol,
        seeds=len(mine),
        steps=steps,
        seconds=second and steps * second,
        seconds_per_step=second,
        seconds_per_epoch=second and second * cost["steps_per_epoch"],
        by_the_log=_by_the_log(mine, _of(runs, plan.baseline, protocol)) if second else None,
        overhead=_overhead(cost, calibration[plan.baseline]) if second else None,
        forwards_per_step=cost.get("forwards_per_step"),
        steps_to_baseline=typical,
        seconds_to_baseline=typical and second and typical * second,
        reached_baseline=f"{len(hits)}/{len(mine)}",
        **{name: estimate(_values(mine, name)) for name in MEASURES},
    )


def _by_the_log(mine: list[Run], baseline: list[Run]) -> float | None:
    """Return the ratio of the logged seconds to the baseline's. Only a check: runs may share the machine."""
    if not mine or not baseline:
        return None
    seconds, unit = (fmean(training_seconds(run.epochs) for run in runs) for runs in (mine, baseline))
    ratio = seconds / (unit or math.nan)
    return ratio if math.isfinite(ratio) else None


def _overhead(cost: dict[str, Any], reference: dict[str, Any]) -> Overhead:
    unit = reference["seconds_per_step"]
    scoring, selection = (cost["parts"][name] / unit for name in ("scoring", "selection"))
    return Overhead(scoring, selection, cost["seconds_per_step"] / unit - 1)


def _steps_to(epochs: list[Epoch], accuracy: float) -> int | None:
    """Return the steps at the first evaluation that is at least as good."""
    return next((record["steps"] for record in epochs if 100 * (1 - record["test_error"]) >= accuracy), None)


def _tests(plan: Plan, protocol: str, runs: list[Run]) -> list[Comparison]:
    finals = {arm: _values(_of(runs, arm, protocol), "final_accuracy") for arm in plan.arms}
    found = [difference(finals[arm], finals[rival]) for arm, rival in plan.rivals.items()]
    adjusted = holm([gap.p for gap in found])
    return [
        Comparison(
            arm=arm,
            against=rival,
            protocol=protocol,
            failed={name: plan.seeds - len(finals[name]) for name in (arm, rival)},
            empty=[name for name in (arm, rival) if not finals[name]],
            difference=gap.mean,
            half=gap.half,
            p=gap.p,
            p_holm=p,
        )
        for (arm, rival), gap, p in zip(plan.rivals.items(), found, adjusted, strict=True)
    ]


def _with_ours(paper: dict[str, Any] | None, rows: list[Row]) -> dict[str, Any] | None:
    """Add our number to each cell of the paper's table; at equal steps where there are such runs, as in the paper."""
    if not paper:
        return None
    found = {row.arm: row for row in sorted(rows, key=lambda row: row.protocol == "steps")}

    def ours(cell: dict[str, Any]) -> Any:
        return getattr(found[cell["arm"]], cell["measure"]) if cell["arm"] in found else None

    filled = [{**row, "cells": [{**cell, "ours": ours(cell)} for cell in row["cells"]]} for row in paper["rows"]]
    return {**paper, "rows": filled}
