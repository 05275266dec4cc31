"""Two ranks in every library: each sample is on one rank, and a run that is resumed takes the same steps."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.two_ranks import EPOCHS, SAVED, STEPS_PER_EPOCH

pytestmark = pytest.mark.integrations
ROOT = Path(__file__).parent.parent.parent


def run(library, folder, *arguments):
    """Return what each of the two ranks has written."""
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", "localhost:0", "-m", "tests.integrations.two_ranks"]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *launch, library, str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    name = "resumed" if arguments else "whole"
    return [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_two_ranks_share_every_step_and_resume_to_the_same_weights(library, tmp_path):
    pytest.importorskip(library)
    first, second = run(library, tmp_path)
    assert len(first["steps"]) == len(second["steps"]) == EPOCHS * STEPS_PER_EPOCH
    for mine, other in zip(first["steps"], second["steps"], strict=True):
        assert len(mine) == len(other) == 4
        assert not set(mine) & set(other)
    epoch = [row for steps in (first["steps"], second["steps"]) for rows in steps[:STEPS_PER_EPOCH] for row in rows]
    assert sorted(epoch) == list(range(40)), "the first epoch of Observed is a plain pass"
    assert first["weights"] == second["weights"]
    for whole, resumed in zip((first, second), run(library, tmp_path, "resume"), strict=True):
        assert resumed["steps"] == whole["steps"][SAVED:]
        assert resumed["weights"] == whole["weights"]
