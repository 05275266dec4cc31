"""Logs: what the files of a run of an experiment say, and what is wrong with them."""

import math
from pathlib import Path
from statistics import mean
from typing import Any

from smdl.training.files import read_json, read_lines

Epochs = list[dict[str, Any]]


def _right(error: float | None) -> float:
    return math.nan if error is None else 100 * (1 - error)  # None where train_evaluation is 0


def _number(value: float | None) -> float:
    return math.nan if value is None else value


#: Quantities of a run, as percentages where they are fractions: name -> how it is read off the epochs' records.
MEASURES = {
    "final_accuracy": lambda epochs: _right(epochs[-1]["test_error"]),
    "mean_accuracy": lambda epochs: mean(_right(record["test_error"]) for record in epochs),
    "final_loss": lambda epochs: epochs[-1]["test_loss"],
    "mean_loss": lambda epochs: mean(record["test_loss"] for record in epochs),
    "final_train_accuracy": lambda epochs: _right(epochs[-1]["train_error"]),
    "mean_train_accuracy": lambda epochs: mean(_right(record["train_error"]) for record in epochs),
    "final_train_loss": lambda epochs: _number(epochs[-1]["train_loss"]),
    "mean_train_loss": lambda epochs: mean(_number(record["train_loss"]) for record in epochs),
    "class_balance": lambda epochs: mean(record["class_balance"] for record in epochs),
}


def read_run(folder: Path, steps: int | None) -> tuple[Epochs, str | None]:
    """(the epochs' records, what is wrong with the run)."""
    failed = read_json(folder / "failed.json")
    if failed is not None:
        return [], f"diverged: {failed.get('error', '') if isinstance(failed, dict) else failed}"
    if not folder.exists():
        return [], "not begun"
    try:
        epochs = read_lines(folder / "metrics.jsonl")
        for record in epochs:
            _check(record)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        return [], f"its metrics.jsonl is damaged: {error!r}"
    if summary(folder) is None:
        return [], "not finished"
    if not epochs:
        return [], "its metrics.jsonl is empty"
    if [record.get("epoch") for record in epochs] != list(range(len(epochs))):
        return [], "its metrics.jsonl is damaged: epochs are missing or written twice, as by two processes at once"
    if epochs[-1]["steps"] != steps:
        return [], f"its metrics.jsonl is damaged: it ends at step {epochs[-1]['steps']} of {steps}"
    return epochs, None


def _check(record: dict[str, Any]) -> None:
    """Whatever a report reads off a record is a number, and finite where a network that trains has one."""
    for name, measure in MEASURES.items():
        value = float(measure([record]))
        if math.isinf(value) or (math.isnan(value) and "train" not in name):
            raise ValueError(f"{name} is {value}")
    float(seconds_of([record]))
    int(record["steps"])


def summary(folder: Path) -> dict[str, Any] | None:
    """summary.json, where it is whole: the run is finished."""
    found = read_json(folder / "summary.json")
    return found if isinstance(found, dict) and isinstance(found.get("environment"), dict) else None


def seconds_of(epochs: Epochs) -> float:
    """Of training as the run logged them, without evaluation; nan where a record lacks them."""
    spent = [record.get("seconds") or {"training": math.nan} for record in epochs]
    return sum(seconds for parts in spent for name, seconds in parts.items() if name != "evaluation")
