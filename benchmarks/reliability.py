"""Repeat the checks behind docs/reliability.md and count them: pools compared with the equations, wrong calls, wrong
commands, generated training loops, tables of several writers (those of pandas if it is installed).

    python benchmarks/reliability.py [--pools 500] [--loops 500] [--tables 200]
"""

import argparse
import contextlib
import importlib.util
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests import specification, test_bad_calls  # noqa: E402
from tests.cli import test_bad_commands  # noqa: E402
from tests.files import test_exact  # noqa: E402
from tests.loading.candidates import test_observed_loops  # noqa: E402

import smdl  # noqa: E402
from smdl.cli.commands import main as smdl_command  # noqa: E402

DISTANCES = ("euclidean", "cosine", "correlation", "gaussian")
SET_TERMS = ("redundancy", "facility_location", "feature_coverage", "log_determinant", "class_balance")
MODULAR = ("uncertainty", "mean_closeness", "feature_match")


def random_case(rng: np.random.Generator) -> tuple[smdl.Pool, smdl.Objective, int, str, int]:
    """Return a pool on a dyadic grid, where arithmetic is exact, an objective, and how to maximise it."""
    n, width, classes = int(rng.integers(2, 24)), int(rng.choice([1, 2, 4, 8])), int(rng.choice([2, 4]))
    pool = smdl.Pool(
        rng.integers(0, 7, (n, width)) * 0.25,
        rng.multinomial(8, np.full(classes, 1 / classes), n) / 8,
        rng.integers(0, classes, n),
        reference=rng.integers(0, 5, (n, 4)) / 4,
    )
    terms = [*rng.choice(SET_TERMS, rng.integers(0, 3), replace=False), *rng.choice(MODULAR, 1)]
    space = "features" if "feature_coverage" in terms else str(rng.choice(["features", "gradients"]))
    weights = {str(term): float(rng.choice([0.25, 0.5, 1.0])) for term in terms}
    objective = smdl.Objective(distance=str(rng.choice(DISTANCES)), space=space, **weights)  # type: ignore[arg-type]
    optimizer = str(rng.choice(["naive", "lazy", "stochastic"]))
    return pool, objective, int(rng.integers(1, max(2, n // 2))), optimizer, int(rng.choice([1, 3]))


def compare_pools(count: int) -> tuple[int, int]:
    """Return (pools on which the picks are those of the plain loops, all pools)."""
    rng, equal = np.random.default_rng(0), 0
    for seed in range(count):
        pool, objective, size, optimizer, partitions = random_case(rng)
        options = {"optimizer": optimizer, "partitions": partitions, "seed": seed}
        wanted, _ = specification.select(pool, objective, size, **options)
        equal += smdl.select(pool, objective, size, **options).indices.tolist() == wanted
    return equal, count


def wrong_calls() -> tuple[int, int]:
    """Return (wrong calls of the Python interface that give one clear line, all of them)."""
    clear = 0
    for case in test_bad_calls.CASES:
        name, argument, value = case.values
        function, call, _ = test_bad_calls.CALLS[str(name)]
        try:
            function(**{**call, str(argument): value})
        except (TypeError, ValueError) as error:
            clear += "\n" not in str(error)
    return clear, len(test_bad_calls.CASES)


def wrong_commands() -> tuple[int, int]:
    """Return (wrong command lines that give one line and exit code 2, all of them)."""
    clear = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["SMDL_CACHE"] = folder
        for argv in test_bad_commands.COMMANDS:
            errors = io.StringIO()
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                code = smdl_command(argv)
            clear += code == 2 and len(errors.getvalue().strip().splitlines()) == 1
    return clear, len(test_bad_commands.COMMANDS)


def for_each(count: int, drawn: Sequence[st.SearchStrategy[Any]], check: Callable[..., None]) -> None:
    """Call `check` with this many examples, the same in every run."""
    once = settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    once(hypothesis.seed(0)(given(st.tuples(*drawn))(lambda example: check(*example))))()


def generated_loops(count: int) -> dict[str, tuple[int, int]]:
    """Return, of generated models and training loops of smdl.Observed, those in which every kept row was right."""
    tried: list[test_observed_loops.Run] = []

    def check(story: test_observed_loops.Story, number: int) -> None:
        torch.manual_seed(number)
        tried.append(test_observed_loops.Run(story))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tried[-1].tell()

    for_each(count, (test_observed_loops.STORIES, st.integers(0, 1000)), check)  # raises an error for a wrong row
    steps, rows = sum(len(run.story.steps) for run in tried), sum(run.compared for run in tried)
    refused = sum(run.refused for run in tried)
    name = f"loops of smdl.Observed, {steps} steps, {rows} kept rows, {refused} models refused"
    return {name: (len(tried), len(tried))}


def tables(count: int) -> dict[str, tuple[int, int]]:
    """Return, of tables of each writer, those whose ids, groups and features are in the output of smdl select; the
    others are refused by an error."""
    writers = dict(test_exact.WRITERS)
    if importlib.util.find_spec("pandas") is not None:
        from tests.integrations import test_pandas

        writers |= test_pandas.WRITERS
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, (writer, columns) in writers.items():
            kept: list[bool] = []
            for_each(count, columns, lambda *drawn, kept=kept, writer=writer: kept.append(writer(*drawn)))
            found[f"tables by {name}: kept to the letter, the others refused"] = (sum(kept), len(kept))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", type=int, default=500)
    parser.add_argument("--loops", type=int, default=500)
    parser.add_argument("--tables", type=int, default=200)
    options = parser.parse_args()
    print("| check | passed | cases |\n| --- | --- | --- |")
    for name, (passed, count) in {
        "picks equal to the plain loops, random pools": compare_pools(options.pools),
        "wrong Python calls: one clear line": wrong_calls(),
        "wrong commands: one line, exit code 2": wrong_commands(),
        **generated_loops(options.loops),
        **tables(options.tables),
    }.items():
        print(f"| {name} | {passed} | {count} |", flush=True)


if __name__ == "__main__":
    main()
