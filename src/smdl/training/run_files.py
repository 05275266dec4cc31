"""The files that a run leaves in its folder: its config, the use of each sample, the trained weights, the summary."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from smdl.common import storage
from smdl.training.usage_snapshot import write_usage_snapshot

if TYPE_CHECKING:
    from smdl.training.loop import TrainingRun


def write_config(folder: Path, values: dict[str, Any]) -> None:
    """Write config.yaml."""
    storage.write_bytes(folder / "config.yaml", yaml.safe_dump(values, sort_keys=False).encode())


def write_counts(folder: Path, counts: np.ndarray) -> None:
    """Write counts.npy: how often each sample was used."""
    with storage.replacing(folder / "counts.npy") as file:
        np.save(file, counts, allow_pickle=False)


def write_summary(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
    """Write summary.json, which says that the run is finished. Return it with the checksum of metrics.jsonl."""
    summary = {**summary, "metrics_sha256": storage.digest(folder / "metrics.jsonl")}
    storage.write_json(folder / "summary.json", summary, checksum=True)
    return summary


def write_results(run: "TrainingRun") -> dict[str, Any]:
    """Write the weights, the snapshot of the used samples and the summary of a finished run. Return the summary."""
    from safetensors.torch import save

    with run.evaluated_model():
        weights = {name: tensor.contiguous() for name, tensor in run.model.state_dict().items()}
        storage.write_bytes(run.folder / "model.safetensors", save(weights))
    write_usage_snapshot(run.folder / "usage_snapshot.npz", run.splits.train, run.model, run.counts.numpy())
    records, parts = run.records, run.records[-1]["seconds"]
    summary = {
        "final": {name: value for name, value in records[-1].items() if "loss" in name or "error" in name},
        "mean_test_error": float(np.mean([record["test_error"] for record in records])),
        "epochs": len(records),
        "steps": run.step,
        "seconds": {name: sum(record["seconds"][name] for record in records) for name in parts},
        "forwards": sum(record["forwards"] for record in records),
        "samples": sum(record["samples"] for record in records),
        "classes": run.splits.classes,
        "environment": run.environment,
        "folder": str(run.folder),
    }
    return write_summary(run.folder, summary)
