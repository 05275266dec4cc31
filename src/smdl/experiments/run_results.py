"""A single training run, in the shape of an experiment's results: one arm, one seed, nothing to compare with."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from smdl.experiments.plots import column
from smdl.training.files import read_json, read_lines

NEEDED = ("steps", "test_error", "test_loss")
PARTS = ("data", "scoring", "selection", "training")


def is_run(folder: Path) -> bool:
    """Whether a folder holds a training run, however far it came."""
    return (folder / "config.yaml").exists() and (folder / "metrics.jsonl").exists()


def read_run(folder: Path) -> dict[str, Any]:
    """What the run's files say; what is damaged is a problem."""
    config, problems = _config(folder)
    epochs, unread = _epochs(folder)
    problems += unread
    failed, summary = read_json(folder / "failed.json"), read_json(folder / "summary.json")
    if isinstance(failed, dict):
        problems.append(f"diverged: {failed.get('error', '')}")
    elif not isinstance(summary, dict):
        problems.append("not finished: it has no summary.json, or a damaged one")
    strategy, seed = _strategy(config), config.get("seed", 0)
    data = config.get("data")
    name = data.get("name") if isinstance(data, dict) else None
    environment = summary.get("environment") if isinstance(summary, dict) else None
    return {
        "title": f"{name or folder.name}, {strategy}, seed {seed}",
        "baseline": strategy,
        "against": {},
        "equal": {},
        "arms": [strategy],
        "primary": "run",
        "protocols": ["run"],
        "calibration": {strategy: _cost(epochs)},
        "runs": [{"arm": strategy, "protocol": "run", "seed": seed, "folder": ".", "epochs": epochs, "problem": None}],
        "problems": problems,
        "config": config,
        "overrides": {},
        "environment": environment if isinstance(environment, dict) else {},
        "facts": _facts(epochs),
    }


def _strategy(config: dict[str, Any]) -> str:
    """What the run is called: of smdl, its objective."""
    name, objective = str(config.get("strategy", "run")), config.get("objective")
    if name != "smdl" or not isinstance(objective, dict):
        return name
    own = any(value is not None for value in objective.values())
    return f"smdl {objective.get('preset') or ('with own weights' if own else 'recommended')}"


def _config(folder: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        return {}, [f"config.yaml is damaged: {' '.join(str(error).split())}"]
    return (config, []) if isinstance(config, dict) else ({}, ["config.yaml is damaged: it is no mapping"])


def _epochs(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """(the records up to the first that is damaged, what is wrong)."""
    try:
        records = read_lines(folder / "metrics.jsonl")
        lines = len((folder / "metrics.jsonl").read_text().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        return [], [f"metrics.jsonl is damaged: {error}"]
    numbers = np.array([column(records, name) for name in NEEDED])  # (3, E)
    whole = int(np.isfinite(numbers).all(axis=0).cumprod().sum())
    if whole < lines:
        return records[:whole], [f"metrics.jsonl is damaged from line {whole + 1} of {lines} on"]
    return records, [] if records else ["metrics.jsonl is empty: no epoch was finished"]


def _cost(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds a step as the run itself measured them, in the shape of a calibration."""
    steps = int(epochs[-1]["steps"]) if epochs else 0
    spent = [record.get("seconds") for record in epochs]
    spent = [seconds for seconds in spent if isinstance(seconds, dict)]
    parts = {part: float(np.nansum(column(spent, part))) / max(1, steps) for part in PARTS}
    return {
        "seconds_per_step": sum(parts.values()),
        "parts": parts,
        "steps_per_epoch": int(epochs[0]["steps"]) if epochs else 1,
    }


def _facts(epochs: list[dict[str, Any]]) -> dict[str, tuple[float, str]]:
    """The run in a few numbers: what it is -> (value, as people read it)."""
    if not epochs:
        return {}
    last, found = epochs[-1], {}
    for split in ("test", "train"):
        error, loss = (float(column([last], f"{split}_{what}")[0]) for what in ("error", "loss"))
        if not math.isnan(error):
            found[f"{split} accuracy"] = (100 * (1 - error), f"{1 - error:.2%}")
        if not math.isnan(loss):
            found[f"{split} loss"] = (loss, f"{loss:.4f}")
    seconds = _cost(epochs)["seconds_per_step"] * last["steps"]
    return {
        **found,
        "epochs": (len(epochs), str(len(epochs))),
        "steps": (last["steps"], f"{last['steps']:,}"),
        "seconds, without evaluation": (seconds, f"{seconds:,.1f}"),
    }
