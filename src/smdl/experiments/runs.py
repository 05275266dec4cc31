"""The files of a training run: read, checked, and reported where they are damaged. Nothing here imports torch."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from smdl.common.storage import digest, read_json

Epoch = dict[str, Any]  # a line of metrics.jsonl
#: A larger value has no mean and no interval: its square is not a number any more.
LARGEST = 1e100


@dataclass
class RunFiles:
    """What a run's folder holds: its undamaged epochs, summary.json if the run is finished, and the problems."""

    epochs: list[Epoch]
    summary: dict[str, Any] | None
    problems: list[str]


def _accuracy(error: float | None) -> float:
    return math.nan if error is None else 100 * (1 - error)  # None where train_evaluation is 0


def _number(value: float | None) -> float:
    return math.nan if value is None else value


#: Quantities of a run, fractions as percentages: name -> how it is computed from the epochs.
MEASURES = {
    "final_accuracy": lambda epochs: _accuracy(epochs[-1]["test_error"]),
    "mean_accuracy": lambda epochs: fmean(_accuracy(record["test_error"]) for record in epochs),
    "final_loss": lambda epochs: epochs[-1]["test_loss"],
    "mean_loss": lambda epochs: fmean(record["test_loss"] for record in epochs),
    "final_train_accuracy": lambda epochs: _accuracy(epochs[-1]["train_error"]),
    "mean_train_accuracy": lambda epochs: fmean(_accuracy(record["train_error"]) for record in epochs),
    "final_train_loss": lambda epochs: _number(epochs[-1]["train_loss"]),
    "mean_train_loss": lambda epochs: fmean(_number(record["train_loss"]) for record in epochs),
    "class_balance": lambda epochs: fmean(record["class_balance"] for record in epochs),
}
#: Accuracies by groups after the last epoch, %: name -> the error in metrics.jsonl. Older runs have none.
GROUPED = {
    "balanced_accuracy": "test_balanced_error",
    "rare_accuracy": "test_rare_error",
    "worst_accuracy": "test_worst_error",
}


def measured(epochs: list[Epoch]) -> dict[str, float]:
    """Return the quantities of a run: MEASURES and GROUPED, or what a training function of the user returned."""
    last = epochs[-1]
    if last.get("metrics") is not None:
        return dict(last["metrics"])
    grouped = {name: _accuracy(last[error]) for name, error in GROUPED.items() if last.get(error) is not None}
    return {**{name: measure(epochs) for name, measure in MEASURES.items()}, **grouped}


def is_run(folder: Path) -> bool:
    """Whether a folder holds a training run, finished or not."""
    return (folder / "config.yaml").exists() and (folder / "metrics.jsonl").exists()


def read_run(folder: Path, steps: int | None = None) -> RunFiles:
    """Read a run's folder. With `steps`, a run that ends elsewhere is damaged. The gravest problem comes first."""
    if not folder.exists():
        return RunFiles([], None, ["not begun"])
    failed, summary = read_json(folder / "failed.json"), read_summary(folder)
    metrics = folder / "metrics.jsonl"
    epochs, damage = _read_epochs(metrics)
    problems = []
    if failed is not None:
        problems.append(f"diverged: {failed.get('error', '') if isinstance(failed, dict) else failed}")
    if damage:
        problems.append(f"metrics.jsonl is damaged{damage}")
    elif epochs and summary and summary.get("metrics_sha256") not in (None, digest(metrics)):
        problems.append("metrics.jsonl is damaged: it does not have the checksum that summary.json names")
    if failed is None and summary is None:
        problems.append("not finished: summary.json is missing or damaged")
    if not epochs and not damage:
        problems.append("metrics.jsonl is empty: no epoch was finished")
    if steps is not None and epochs and not problems and epochs[-1]["steps"] != steps:
        problems.append(f"metrics.jsonl is damaged: it ends at step {epochs[-1]['steps']} of {steps}")
    return RunFiles(epochs, summary, problems)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return summary.json; None if it is missing or damaged, which means that the run is not finished."""
    found = read_json(folder / "summary.json")
    return found if isinstance(found, dict) and isinstance(found.get("environment"), dict) else None


def read_config(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return (config.yaml as plain values, problems)."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        return {}, [f"config.yaml is damaged: {' '.join(str(error).split())}"]
    return (config, []) if isinstance(config, dict) else ({}, ["config.yaml is damaged: it is not a mapping"])


def training_seconds(epochs: list[Epoch]) -> float:
    """Sum the seconds of training that a run logged, without evaluation; nan where a record has none."""
    spent = [record.get("seconds") or {"training": math.nan} for record in epochs]
    return sum(seconds for parts in spent for name, seconds in parts.items() if name != "evaluation")


def _read_epochs(path: Path) -> tuple[list[Epoch], str]:
    """Return (the records before the first damaged one, what is wrong)."""
    epochs: list[Epoch] = []
    try:
        lines = path.read_text().splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        return [], f": {error}"
    for line in lines:
        try:
            record = json.loads(line)
            _check(record, len(epochs))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return epochs, f" from line {len(epochs) + 1} of {len(lines)} on: {error!r}"
        epochs.append(record)
    return epochs, ""


def _check(record: Epoch, epoch: int) -> None:
    """Raise unless everything that a report reads from a record is a number, and finite where it must be."""
    if record["epoch"] != epoch:
        raise ValueError(f"epoch {epoch} is missing or written twice, as by two processes at once")
    for name, found in measured([record]).items():
        value = float(found)
        if abs(value) > LARGEST or (math.isnan(value) and "train" not in name):
            raise ValueError(f"{name} is {value}")
    float(training_seconds([record]))
    int(record["steps"])
