"""The labelling contest: which rows to label, ours against every peer.

    python benchmarks/labelling_data.py ... --out DIR             # the features, once
    python benchmarks/labelling.py run --data DIR --out runs.jsonl [--tasks A,B] [--methods A,B] [--kinds A,B]
    python benchmarks/labelling.py tables --out runs.jsonl
    python benchmarks/labelling.py forecast --data DIR
    python benchmarks/labelling.py speed

run        appends one line per task, kind, method and seed; what is there already is left out, so it resumes
tables     prints the tables of docs/labelling.md from these lines
forecast   how often the intervals of `Labels.forecast` hold the truth
speed      CPU seconds of six rounds with 10,000 × 384 rows: ours and TypiClust

kinds: `rounds` six rounds of one label per class (at least 20; digits 10); `cold` 1, 2 and 5 labels per class at once,
without a model; `random_start` the first round is random; `wrong` a fifth of the answers is wrong; `outliers` a fifth
of the pile is noise; `large` six rounds of 8 % of the pile each. A seed is a draw of the pile and of the test rows.
"""

import argparse
import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelling_peers import PEERS
from smdl.common.storage import append_line
from smdl.engine.objective import Objective
from smdl.engine.pool import Pool
from smdl.engine.selection import select
from smdl.experiments.statistics import estimate, paired_difference
from smdl.labelling.forecast import LearningCurve, prefix_sizes
from smdl.labelling.probe import STRENGTH, Probe
from smdl.labelling.simulation import METHODS, Draw, Pile, draw, facility_location, random, run_rounds, savings

TASKS = ("banking77", "clinc150", "hate_speech", "digits", "cifar10", "gtsrb", "letter", "satimage")
KINDS = ("rounds", "cold", "random_start", "wrong", "outliers", "large")
ROUNDS, PILE = 6, 3000
COLD = (
    "random",
    "facility_location",
    "k_center",
    "skactiveml.TypiClust",
    "skactiveml.ProbCover",
    "skactiveml.MaxHerding",
)
FEW = ("random", "labels", "facility_location", "margin")


def paper(pile: Pile, size: int) -> np.ndarray:
    """The paper's objective over the probabilities of the probe, without a reference model: U, R and MC."""
    if pile.probabilities is None:
        return facility_location(pile, size)
    pool = Pool(pile.features, probabilities=pile.probabilities)
    weights = Objective(uncertainty=0.2, redundancy=0.1, mean_closeness=0.5)
    return select(pool, weights, size, initial=pile.labelled, seed=pile.seed).on_host().indices


ALL = {**METHODS, "paper": paper, **PEERS}


def batch_size(task: str, classes: int) -> int:
    return 10 if task == "digits" else max(20, classes)


def load(data: Path, task: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(data / f"{task}.npz") as found:
        return (
            np.concatenate([found["train"], found["test"]]),
            np.concatenate([found["train_labels"], found["test_labels"]]),
        )


def one_run(kind: str, task: str, method: str, data: Draw, seed: int, classes: int) -> dict[str, Any]:
    """Return the labels, the accuracies and the seconds of one run."""
    size = batch_size(task, classes)
    rng = np.random.default_rng([seed, 9])
    if kind == "cold":
        return _cold(method, data, seed, classes)
    options: dict[str, Any] = {}
    if kind == "random_start" or method == "random":
        options["first"] = random(Pile(data.features, seed, classes), size)
    elif kind != "large":  # all others begin alike, so that they differ in what comes after
        options["first"] = facility_location(Pile(data.features, seed, classes), size)
    if kind == "wrong":
        wrong = data.targets.copy()
        changed = rng.permutation(len(wrong))[: len(wrong) // 5]
        wrong[changed] = (wrong[changed] + rng.integers(1, classes, size=len(changed))) % classes
        options["answer"] = lambda rows: wrong[rows]
    if kind == "outliers":
        data = _with_outliers(data, rng)
    if kind == "large":
        size = int(0.08 * len(data.features))
    return run_rounds(data, method, seed, size, ROUNDS, ALL, **options)._asdict()


def _with_outliers(data: Draw, rng: np.random.Generator) -> Draw:
    """Replace a fifth of the pile by noise of twice the spread of the data; a person still gives it some class."""
    features = data.features.copy()
    rows = rng.permutation(len(features))[: len(features) // 5]
    noise = rng.normal(size=(len(rows), features.shape[1]))
    features[rows] = features.mean(axis=0) + 2.0 * features.std(axis=0) * noise
    return data._replace(features=features.astype(np.float32))


def _cold(method: str, data: Draw, seed: int, classes: int) -> dict[str, Any]:
    probe = Probe(None, np.concatenate([data.features, data.test]))
    at_test = np.arange(len(data.features), len(data.features) + len(data.test))
    found: dict[str, Any] = {"method": method, "seed": seed, "labels": [], "accuracy": [], "seconds": []}
    for per_class in (1, 2, 5):
        started = time.process_time()
        rows = np.asarray(ALL[method](Pile(data.features, seed, classes), per_class * classes))
        found["seconds"].append(time.process_time() - started)
        right = probe.fit(rows, data.targets[rows], STRENGTH).probabilities(at_test).argmax(axis=1) == data.test_targets
        found["labels"].append(len(rows))
        found["accuracy"].append(100 * float(right.mean()))
    return found


def run(options: argparse.Namespace) -> None:
    done = {(each["kind"], each["task"], each["method"], each["seed"]) for each in records(options.out)}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    for kind in options.kinds:
        usual = COLD if kind == "cold" else tuple(ALL) if kind == "rounds" else FEW
        methods = [name for name in options.methods or usual if kind != "cold" or name in COLD]
        for seed in range(options.seeds):
            for task in options.tasks:
                missing = [name for name in methods if (kind, task, name, seed) not in done]
                if not missing:
                    continue
                features, targets = load(options.data, task)
                data, classes = draw(features, targets, seed, PILE), int(targets.max()) + 1
                if kind == "rounds" and seed == 0 and ("rounds", task, "all labels", 0) not in done:
                    append_line(options.out, {"kind": kind, "task": task, "commit": commit, **_everything(data)})
                for method in missing:
                    try:
                        found = one_run(kind, task, method, data, seed, classes)
                    except Exception as error:  # a peer that fails is told, and the others go on
                        print(f"{kind} {task} {method} {seed}: {type(error).__name__}: {error}", flush=True)
                        continue
                    append_line(options.out, {"kind": kind, "task": task, "commit": commit, **found})
                    last = f"{found['accuracy'][-1]:.1f} after {found['labels'][-1]}"
                    print(f"{kind} {task} {method} {seed}: {last}, {sum(found['seconds']):.1f} s", flush=True)


def _everything(data: Draw) -> dict[str, Any]:
    probe = Probe(None, np.concatenate([data.features, data.test]))
    at_test = np.arange(len(data.features), len(data.features) + len(data.test))
    fitted = probe.fit(np.arange(len(data.features)), data.targets, STRENGTH)
    right = fitted.probabilities(at_test).argmax(axis=1) == data.test_targets
    numbers = {"labels": [len(data.features)], "accuracy": [100 * float(right.mean())], "seconds": [0.0]}
    return {"method": "all labels", "seed": 0, **numbers}


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def area(record: dict[str, Any]) -> float:
    """Mean accuracy of rounds 2 to the last."""
    return float(np.mean(record["accuracy"][1:]))


def tables(options: argparse.Namespace) -> None:
    """Print the tables as Markdown."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for each in sorted(records(options.out), key=lambda each: each["seed"]):
        found[each["kind"], each["task"], each["method"]].append(each)
    print("commits:", ", ".join(sorted({each["commit"] for each in records(options.out)})))
    for kind in KINDS:
        tasks = [task for task in options.tasks if (kind, task, "random") in found]
        if not tasks:
            continue
        print(f"\n## {kind}\n")
        (_cold_table if kind == "cold" else _round_table)(found, kind, tasks)


def _round_table(found: dict, kind: str, tasks: list[str]) -> None:
    methods = [name for name in ALL if any((kind, task, name) in found for task in tasks)]
    most = max(len(found[kind, task, "random"]) for task in tasks)  # a number in brackets: fewer seeds than this
    print("| method | " + " | ".join(tasks) + " | mean | against random | labels saved | CPU s |")
    print("| --- " * (len(tasks) + 5) + "|")
    for name in methods:
        have = [task for task in tasks if found[kind, task, name]]
        cells, ratios, gaps = [], [], []
        for task in tasks:
            runs = found[kind, task, name]
            base = [each for each in found[kind, task, "random"] if each["seed"] in {run["seed"] for run in runs}]
            if task not in have:
                cells.append("–")
                continue
            found_area = estimate([area(each) for each in runs])
            half = "" if found_area.half is None else f" ± {found_area.half:.1f}"
            cells.append(f"{found_area.mean:.1f}{half}" + ("" if len(runs) == most else f" ({len(runs)})"))
            gap = paired_difference([area(each) for each in runs], [area(each) for each in base])
            gaps.append(gap)
            curve = np.mean([each["accuracy"] for each in runs], axis=0).tolist()
            target = float(np.mean([each["accuracy"][-1] for each in base]))
            needed = savings(curve, base[0]["labels"], target)
            ratios.append(base[0]["labels"][-1] / needed if needed else 1.0)
        full = len(have) == len(tasks)
        mean = f"{np.mean([np.mean([area(e) for e in found[kind, t, name]]) for t in tasks]):.1f}" if full else "–"
        better = sum(1 for gap in gaps if gap.half is not None and gap.mean - gap.half > 0)
        worse = sum(1 for gap in gaps if gap.half is not None and gap.mean + gap.half < 0)
        against = "" if name == "random" else f"{better} better, {worse} worse"
        seconds = np.mean([sum(each["seconds"]) for task in have for each in found[kind, task, name]])
        print(f"| {name} | {' | '.join(cells)} | {mean} | {against} | {np.median(ratios):.1f} × | {seconds:.1f} |")
    whole = [found[kind, task, "all labels"] for task in tasks]
    if all(whole):
        print("| all labels | " + " | ".join(f"{each[0]['accuracy'][0]:.1f}" for each in whole) + " | | | | |")
    for task in tasks:
        base = found[kind, task, "random"]
        runs = found[kind, task, "labels"]
        if len(runs) == len(base):
            curve = np.mean([each["accuracy"] for each in runs], axis=0).tolist()
            needed = savings(curve, base[0]["labels"], float(np.mean([each["accuracy"][-1] for each in base])))
            gap = paired_difference([area(each) for each in runs], [area(each) for each in base])
            print(f"  {task}: labels − random {gap.mean:+.1f} ± {gap.half:.1f};", end=" ")
            print(f"{needed and round(needed)} labels reach random's {base[0]['labels'][-1]}")


def _cold_table(found: dict, kind: str, tasks: list[str]) -> None:
    methods = [name for name in COLD if any((kind, task, name) in found for task in tasks)]
    print("| method | " + " | ".join(tasks) + " | CPU s |")
    print("| --- " * (len(tasks) + 2) + "|")
    for name in methods:
        cells = []
        for task in tasks:
            runs = found[kind, task, name]
            means = np.mean([each["accuracy"] for each in runs], axis=0) if runs else []
            cells.append(" / ".join(f"{value:.0f}" for value in means))
        seconds = [sum(each["seconds"]) for task in tasks for each in found[kind, task, name]]
        print(f"| {name} | {' | '.join(cells)} | {np.mean(seconds):.1f} |")


def forecast(options: argparse.Namespace) -> None:
    """Print how often the intervals hold what more labels really brought, and how far off the forecast was."""
    print("| task | accuracy held | gain held | gain off by, points | true gain, points |")
    print("| --- | --- | --- | --- | --- |")
    for task in options.tasks:
        features, targets = load(options.data, task)
        size, rows = batch_size(task, int(targets.max()) + 1), []
        for seed in range(options.seeds):
            data = draw(features, targets, seed, PILE)
            probe = Probe(None, np.concatenate([data.features, data.test]))
            at_test = np.arange(len(data.features), len(data.features) + len(data.test))
            chosen = facility_location(Pile(data.features, seed, 0), 8 * size)

            def right(count: int, probe=probe, chosen=chosen, data=data, at_test=at_test) -> np.ndarray:
                fitted = probe.fit(chosen[:count], data.targets[chosen[:count]], STRENGTH)
                return fitted.probabilities(at_test).argmax(axis=1) == data.test_targets

            for now in (2 * size, 4 * size):
                sizes = prefix_sizes(now, len(np.unique(data.targets[chosen[:now]])))
                seen = np.array([right(int(count)) for count in sizes])
                truth = {then: right(then).mean() for then in (now + size, 2 * now)}
                rows += _held(sizes, seen, truth, seed)
        held = np.array(rows)
        print(f"| {task} | {held[:, 0].mean():.0%} | {held[:, 1].mean():.0%} |", end=" ")
        print(f"{100 * np.abs(held[:, 2]).mean():.1f} | {100 * held[:, 3].mean():.1f} |", flush=True)


def _held(sizes: np.ndarray, seen: np.ndarray, truth: dict[int, float], seed: int) -> list[tuple[float, ...]]:
    rows = []
    for checks in (50, 100, 200):
        for repeat in range(4):
            picked = np.random.default_rng([seed, checks, repeat]).permutation(seen.shape[1])[:checks]
            curve = LearningCurve(sizes, seen[:, picked])
            for then, value in truth.items():
                each, gain = curve.forecast(then), value - seen[-1].mean()
                rows.append(
                    (each.low <= value <= each.high, each.gain_low <= gain <= each.gain_high, each.gain - gain, gain)
                )
    return rows


def speed(_: argparse.Namespace) -> None:
    """Print the CPU seconds of six rounds: 100 more of 10,000 × 384 rows each, after 500 labels."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(100, 384))
    features = (centres[rng.integers(100, size=10_000)] + rng.normal(size=(10_000, 384))).astype(np.float32)
    facility_location(Pile(features[:2000], 0, 100), 10)  # compiles
    totals = {}
    for name in ("labels", "skactiveml.TypiClust"):
        pile, seconds = Pile(features, 0, 100, rng.permutation(10_000)[:500], rng.integers(100, size=500)), []
        for _number in range(ROUNDS):
            pile.probabilities = rng.dirichlet(np.ones(100), size=10_000).astype(np.float32)
            started = time.process_time()
            rows = ALL[name](pile, 100)
            seconds.append(time.process_time() - started)
            pile.labelled = np.concatenate([pile.labelled, rows])
            pile.targets = np.concatenate([pile.targets, rng.integers(100, size=len(rows))])
        totals[name] = sum(seconds)
        print(f"{name}: {sum(seconds):.2f} CPU seconds, {' + '.join(f'{each:.2f}' for each in seconds)}", flush=True)
    print(f"ratio: {totals['skactiveml.TypiClust'] / totals['labels']:.1f} ×")


def _names(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions: dict[str, Callable[[argparse.Namespace], None]] = {
        "run": run, "tables": tables, "forecast": forecast, "speed": speed
    }  # fmt: skip
    parser.add_argument("action", choices=actions)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tasks", type=_names, default=list(TASKS))
    parser.add_argument("--methods", type=_names)
    parser.add_argument("--kinds", type=_names, default=["rounds", "cold"])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    actions[options.action](options)


if __name__ == "__main__":
    main()
