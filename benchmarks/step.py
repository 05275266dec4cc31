"""Time what a training step pays for its selection, everything included, and compare with an earlier commit.

python benchmarks/step.py [--before COMMIT] [--rounds N]

One call makes a Pool of torch tensors, selects a third of it by the objective of `observed`, and returns the Selection,
as the strategy of a loader does. Both commits run in processes of their own, one thread each, and take turns. A turn
is 100 calls. The table shows medians over all turns of the median call of a turn, the range of the ratio over turns,
and how many of 300 random pools get the same picks from both commits.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import IO

#: candidates, features, classes
CASES = ((150, 64, 10), (96, 64, 10), (384, 64, 10), (150, 512, 100), (384, 512, 100))
CALLS, POOLS, TARGET = 100, 300, 0.2
ROOT = Path(__file__).parent.parent


class Worker:
    """A process that runs one commit's smdl and answers one line per line."""

    def __init__(self, source: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--work"]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *question: object) -> list:
        pipe_in, pipe_out = self.process.stdin, self.process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        print(json.dumps(question), file=pipe_in, flush=True)
        return json.loads(pipe_out.readline())


def work(questions: IO[str]) -> None:
    """Answer ("time", case) with the seconds of calls, ("picks", case, seeds) with the picks of random pools."""
    import gc
    import time

    import numpy as np
    import torch

    import smdl
    from smdl.loading.strategies.submodular import Submodular

    torch.set_num_threads(1)
    strategy = Submodular()

    def tensors(case: list[int], seed: int) -> tuple[torch.Tensor, ...]:
        n, width, classes = case
        rng = torch.Generator().manual_seed(seed)
        features = torch.randn(n, width, generator=rng).relu()
        probabilities = (2 * torch.randn(n, classes, generator=rng)).softmax(1)
        return features, probabilities, torch.randint(classes, (n,), generator=rng), torch.rand(n, generator=rng)

    def call(given: tuple[torch.Tensor, ...], rng: np.random.Generator) -> smdl.Selection:
        pool = smdl.Pool(*given, bias=True)
        return strategy.select(pool, np.arange(len(pool)), len(pool) // 3, rng)

    for line in questions:
        what, case, count = json.loads(line)
        rng = np.random.default_rng(0)
        if what == "picks":
            answer = [call(tensors(case, seed), rng).indices.tolist() for seed in range(count)]
        else:
            given, answer = tensors(case, 0), []
            gc.collect()
            for _ in range(count):
                start = time.perf_counter()
                call(given, rng)
                answer.append(time.perf_counter() - start)
        print(json.dumps(answer), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="HEAD", help="the commit to compare the working tree with")
    parser.add_argument("--rounds", type=int, default=40, help="turns per side")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(sys.stdin)
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", options.before, "src"], stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        race(Worker(Path(folder) / "src"), Worker(ROOT / "src"), options.before, options.rounds)


def race(before: Worker, after: Worker, commit: str, rounds: int) -> None:
    print(f"| candidates, D, C | {commit}, ms | now, ms | least, ms | ratio (range) | same picks | target |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        picks = [side.ask("picks", case, POOLS) for side in (before, after)]
        same = sum(one == other for one, other in zip(*picks, strict=True))
        turns = [[1000 * median(side.ask("time", case, CALLS)) for side in (before, after)] for _ in range(rounds)]
        old, new = (median(side) for side in zip(*turns, strict=True))
        ratios = sorted(b / a for a, b in turns)
        least = min(b for _, b in turns)
        goal = ("met" if new <= TARGET else "missed") + f" (≤ {TARGET} ms)" if case == CASES[0] else ""
        spread = f"{median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
        print(f"| {case} | {old:.3f} | {new:.3f} | {least:.3f} | {spread} | {same} of {POOLS} | {goal} |", flush=True)


if __name__ == "__main__":
    main()
