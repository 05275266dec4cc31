"""Select from 10⁵ to 10⁷ rows of a float16 memory map: `python benchmarks/scale.py --rows 100000 1000000 --width 384`

Each cell (rows, width, size, objective) runs in a process of its own, which measures seconds, CPU seconds and the
memory that is not the map. Finished cells are kept in a file of JSON lines and are not run again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import smdl

OBJECTIVES = ("facility_location", "redundancy", "feature_coverage", "log_determinant")
CLUSTERS = 500
CHUNK = 1 << 16

#: Up to this many rows the one-shot greedy on every row is run too, and the value is compared.
ONE_SHOT = 100_000


def write_map(path: Path, rows: int, width: int) -> None:
    """Write clustered features ≥ 0, part by part: clusters of very different sizes, with noise around the centres."""
    rng = np.random.default_rng(0)
    centres = rng.random((CLUSTERS, width), np.float32)
    shares = 1.0 / np.arange(1, CLUSTERS + 1)
    out = np.lib.format.open_memmap(path, "w+", np.float16, (rows, width))
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        cluster = rng.choice(CLUSTERS, count, p=shares / shares.sum())
        out[start : start + count] = centres[cluster] + 0.25 * rng.random((count, width), np.float32)
    out.flush()


def memory_beyond_map() -> float:
    """Return the GB that RLIMIT_DATA limits: memory that is not backed by a file, used or not."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmData")) / 1e6


def cell(path: str, objective: Any, size: int, one_shot: bool, groups: int) -> dict[str, Any]:
    """Run one selection in this process. With groups, rows belong to random ones, and each has the same quota."""
    features = np.load(path, mmap_mode="r")
    limits: dict[str, Any] = {}
    if groups:
        limits = {"groups": np.random.default_rng(0).integers(0, groups, len(features)), "per_group": size // groups}
    plan = smdl.explain(features, objective, size)
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the plan says how long it takes
        chosen = smdl.select(features, objective, None if groups else size, **limits)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = {
        "engine": plan.engine,
        "optimizer": plan.optimizer,
        "predicted_seconds": plan.seconds,
        "passes": plan.passes,
        "seconds": wall,
        "cpu_seconds": cpu,
        "gb_beyond_map": memory_beyond_map(),
        "value": chosen.value,
        "held_out": chosen.held_out,
        "random": random_value(chosen, size),
    }
    if one_shot and plan.engine == "sample":
        exact = smdl.Objective(**{objective: 1.0, "sample": len(features)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            best = smdl.select(features, exact, size, optimizer="lazy")
        found["share_of_one_shot"] = smdl.evaluate(features, exact, chosen.indices).value / best.value
    return found


def random_value(chosen: smdl.Selection, size: int) -> float | None:
    """Return the value of random rows, on the same sample; None unless facility location is measured on one."""
    if chosen.held_out is None or chosen._problem is None:
        return None
    term: Any = chosen._problem.set_terms["facility_location"]
    rows = np.random.default_rng(0).choice(len(term.pool), size, replace=False)
    return term.mean_coverage(torch.from_numpy(rows), term.geometry.covered)


def run_cells(options: argparse.Namespace) -> list[dict[str, Any]]:
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for rows in options.rows:
            path = Path(folder) / f"{rows}.npy"
            for size in options.sizes:
                for objective in options.objectives:
                    key = {"rows": rows, "width": options.width, "size": size, "objective": objective}
                    key |= {"groups": options.groups} if options.groups else {}
                    if any(key.items() <= found.items() and found.get("groups", 0) == options.groups for found in done):
                        continue
                    if not path.exists():
                        write_map(path, rows, options.width)
                    compare = options.one_shot and rows <= ONE_SHOT
                    done.append(key | _in_a_process(path, objective, size, compare, options.groups))
                    with options.out.open("a") as file:
                        file.write(json.dumps(done[-1]) + "\n")
            path.unlink(missing_ok=True)
    return done


def _in_a_process(path: Path, objective: Any, size: int, one_shot: bool, groups: int) -> dict[str, Any]:
    arguments = (str(path), objective, size, one_shot, groups)
    call = f"import json, scale; print(json.dumps(scale.cell(*{arguments!r})))"
    run = subprocess.run([sys.executable, "-c", call], cwd=Path(__file__).parent, capture_output=True, text=True)
    if run.returncode:
        return {"failed": run.stderr.strip().splitlines()[-1]}
    return json.loads(run.stdout.splitlines()[-1])


def table(done: list[dict[str, Any]]) -> str:
    names = ("rows", "width", "size", "objective", "engine", "seconds", "cpu_seconds", "predicted_seconds")
    names += ("gb_beyond_map", "passes", "value", "held_out", "random", "share_of_one_shot", "failed")
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for found in done:
        cells = [found.get(name) for name in names]
        text = ["–" if c is None else f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells]
        lines.append("| " + " | ".join(text) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--objectives", nargs="+", default=["facility_location", "redundancy"], choices=OBJECTIVES)
    parser.add_argument("--one-shot", action="store_true", help="compare with the greedy on every row, up to 10⁵ rows")
    parser.add_argument("--groups", type=int, default=0, help="choose with quotas: size / groups rows of each group")
    parser.add_argument("--folder", default=None, help="where the maps are written; the system's folder by default")
    parser.add_argument("--out", type=Path, default=Path("runs/bench/scale.jsonl"))
    options = parser.parse_args()
    print(table(run_cells(options)))


if __name__ == "__main__":
    main()
