"""The examples for training libraries run, and show what they promise."""

import sys
import types
from typing import Any

import pytest

from smdl.training import loop
from tests.test_examples import EXAMPLES, run  # noqa: F401
from tests.training.test_loop import RUNS

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("library", ["accelerate", "lightning", "transformers"])
def test_the_example_resumes_to_the_same_weights(library, run, tmp_path):  # noqa: F811
    pytest.importorskip(library)
    printed = run(f"trainer_{library}.py", "--out", tmp_path / "run")
    assert "resumed" in printed
    assert "the same weights" in printed


def test_the_example_of_skorch_compares_two_methods(run):  # noqa: F811
    pytest.importorskip("skorch")
    printed = run("trainer_skorch.py")
    assert printed.count("accuracy 0.") == 2


def test_the_example_of_a_tracker_sends_every_epoch(tmp_path, monkeypatch):
    """wandb itself is large and is not installed: a stand-in takes its three calls."""
    calls = []

    class Run:
        def log(self, numbers, step):
            calls.append((step, numbers["test_error"]))

        def finish(self):
            calls.append("finished")

    stand_in: Any = types.ModuleType("wandb")
    stand_in.init = lambda **settings: calls.append(settings["mode"]) or Run()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))
    loop.train(RUNS["uniform"], tmp_path / "run", tracker="wandb_tracker:WeightsAndBiases")
    assert calls[0] == "offline"
    assert [call[0] for call in calls[1:-1]] == [7, 14, 21]
    assert calls[-1] == "finished"
