"""Chosen: what a run's files say about the samples it trained on. What is damaged is said, and left out."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from smdl.experiments.plots import finished_runs
from smdl.training.files import read_json

KINDS = ("most", "least")


@dataclass
class Chosen:
    """Of an arm: how often each sample was used, a run at a time; and the portrait of its first run."""

    counts: list[np.ndarray] = field(default_factory=list)  # (N,) a seed
    portrait: dict[str, np.ndarray] = field(default_factory=dict)  # what training.usage_snapshot wrote
    seed: int | None = None  # of the portrait
    classes: list[str] = field(default_factory=list)

    @property
    def all_counts(self) -> np.ndarray:
        """Of every seed, one after the other."""
        return np.concatenate(self.counts)

    def name_of(self, number: int) -> str:
        """A class by its number."""
        return self.classes[number] if 0 <= number < len(self.classes) else str(number)


def read_chosen(folder: Path, results: dict[str, Any], protocol: str) -> tuple[dict[str, Chosen], list[str]]:
    """(what each arm chose under a protocol, what could not be read)."""
    found, problems = {}, []
    for arm in results["arms"]:
        found[arm] = Chosen()
        for run in finished_runs(results, arm, protocol):
            at = folder / run["folder"]
            wrong = _add(found[arm], at, run["seed"])
            problems += [f"{arm}, seed {run['seed']}, {at.name}: {said}" for said in wrong]
    return found, problems


def _add(chosen: Chosen, folder: Path, seed: int) -> list[str]:
    """Take in a run; returns what is wrong with its files."""
    problems = []
    try:
        chosen.counts.append(_counts(np.load(folder / "counts.npy", allow_pickle=False)))
    except FileNotFoundError:
        problems.append("it has no counts.npy")
    except Exception as error:  # numpy and zipfile raise whatever damage leads them to
        problems.append(f"its counts.npy is damaged: {error}")
    if not chosen.classes:
        summary = read_json(folder / "summary.json")
        names = summary.get("classes") if isinstance(summary, dict) else None
        chosen.classes = [str(name) for name in names] if isinstance(names, list) else []
    if not chosen.portrait and (folder / "usage_snapshot.npz").exists():  # data that is no images has none
        try:
            chosen.portrait, chosen.seed = _portrait(folder / "usage_snapshot.npz"), seed
        except Exception as error:  # numpy and zipfile raise whatever damage leads them to
            problems.append(f"its usage_snapshot.npz is damaged: {error}")
    return problems


def _counts(counts: np.ndarray) -> np.ndarray:
    if counts.ndim != 1 or not len(counts) or not np.issubdtype(counts.dtype, np.integer) or counts.min() < 0:
        raise ValueError(f"counts must be whole numbers ≥ 0, one a sample, got {counts.dtype} of shape {counts.shape}")
    return counts


def _portrait(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a portrait, checked."""
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        arrays = {name: file[name] for name in ("map", "map_labels", "map_counts")}
        for kind in KINDS:
            arrays |= {f"{kind}_{what}": file[f"{kind}_{what}"] for what in ("images", "labels", "counts")}
    rows = len(arrays["map"])
    if arrays["map"].shape != (rows, 2) or not np.isfinite(arrays["map"]).all():
        raise ValueError(f"map must be finite numbers of shape (N, 2), got shape {arrays['map'].shape}")
    for kind in KINDS:
        images = arrays[f"{kind}_images"]
        if images.ndim != 4 or images.dtype != np.uint8 or not images.size:
            raise ValueError(f"{kind}_images must be bytes of shape (N, C, H, W), got {images.dtype} {images.shape}")
    sizes = {"map": rows} | {kind: len(arrays[f"{kind}_images"]) for kind in KINDS}
    for name in ("map_labels", "map_counts", *(f"{kind}_{what}" for kind in KINDS for what in ("labels", "counts"))):
        wanted = (sizes[name.partition("_")[0]],)
        if arrays[name].shape != wanted or not np.issubdtype(arrays[name].dtype, np.integer):
            raise ValueError(f"{name} must be whole numbers of shape {wanted}, got {arrays[name].shape}")
    return arrays
