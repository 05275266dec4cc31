"""How often a run used each training sample: counts.npy and usage_snapshot.npz. Damaged files are reported and
skipped."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from smdl.experiments.records import Results
from smdl.experiments.runs import read_summary

#: Which samples a snapshot shows: those used most often, and those used least often.
KINDS = ("most", "least")
#: Usage differs from now on: the largest distance between two curves of the share of use, samples sorted by use.
UNEVEN = 0.05
LABELLED = ("labels", "counts")


@dataclass(frozen=True)
class Samples:
    """Some training samples: images (N, C, H, W) as bytes, class numbers and counts (N,)."""

    images: np.ndarray
    labels: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Snapshot:
    """usage_snapshot.npz: samples in two dimensions, and those used most and least often."""

    seed: int
    points: np.ndarray  # (N, 2)
    labels: np.ndarray  # (N,)
    counts: np.ndarray  # (N,)
    samples: dict[str, Samples]  # by KINDS


@dataclass
class Usage:
    """How often an arm used each sample."""

    counts: list[np.ndarray] = field(default_factory=list)  # (N,) per seed
    snapshot: Snapshot | None = None  # of the first run that has one
    classes: list[str] = field(default_factory=list)

    @property
    def all_counts(self) -> np.ndarray:
        """The counts of all seeds, one after the other."""
        return np.concatenate(self.counts)

    def name_of(self, number: int) -> str:
        """Return the name of a class."""
        return self.classes[number] if 0 <= number < len(self.classes) else str(number)


def aligned(usage: dict[str, Usage], baseline: str) -> dict[str, Usage]:
    """Turn, mirror and scale the map of every arm onto the baseline's (Procrustes). Each run has a network of its own,
    so there are no common axes, and only the arrangement of the samples can be compared. A map of other samples stays
    as it is."""
    order = sorted(usage, key=lambda arm: arm != baseline)
    first = next((snapshot for arm in order if (snapshot := usage[arm].snapshot)), None)
    found = {}
    for arm, used in usage.items():
        snapshot = used.snapshot
        if first is not None and snapshot is not None and np.array_equal(snapshot.labels, first.labels):
            snapshot = replace(snapshot, points=_onto(snapshot.points, first.points))
        found[arm] = replace(used, snapshot=snapshot)
    return found


def _onto(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return points (N, 2) with the centre and the size of the target, turned and mirrored to be nearest to it."""
    centred, goal = points - points.mean(axis=0), target - target.mean(axis=0)
    left, _, right = np.linalg.svd(centred.T @ goal)
    size = np.linalg.norm(goal) / max(float(np.linalg.norm(centred)), 1e-12)
    return size * centred @ left @ right + target.mean(axis=0)


def uneven(usage: dict[str, Usage], baseline: str) -> list[str]:
    """Return the arms that prefer samples, and others than the baseline does; with them the baseline, if it prefers
    samples too. Of even use, the most used samples are a matter of chance."""
    known = {arm: used.all_counts for arm, used in usage.items() if used.counts}
    if baseline not in known or len(usage) == 1:
        return list(usage)
    prefer = [arm for arm, counts in known.items() if _apart(counts, _even(counts)) > UNEVEN]
    other = {arm for arm in prefer if _apart(known[arm], known[baseline]) > UNEVEN}
    return [arm for arm in prefer if arm in other or (arm == baseline and other)]


def _even(counts: np.ndarray) -> np.ndarray:
    """Return counts of the same sum that are as even as can be."""
    return (np.arange(len(counts)) + counts.sum()) // len(counts)


def _apart(counts: np.ndarray, others: np.ndarray) -> float:
    """Return the largest distance between the shares of use of the least used samples."""
    return float(np.abs(_shares(counts) - _shares(others)).max())


def _shares(counts: np.ndarray) -> np.ndarray:
    """Return the share of use of the least used samples, for 101 fractions of the samples."""
    shares = np.concatenate([[0.0], np.cumsum(np.sort(counts))]) / max(1, int(counts.sum()))
    return np.interp(np.linspace(0, 1, 101), np.linspace(0, 1, len(shares)), shares)


def read_usage(folder: Path, results: Results, protocol: str) -> tuple[dict[str, Usage], list[str]]:
    """Return (the usage of each arm under a protocol, problems)."""
    found, problems = {}, []
    for arm in results.arms:
        found[arm] = Usage()
        for run in results.finished(arm, protocol):
            at = folder / run.folder
            wrong = _add(found[arm], at, run.seed)
            problems += [f"{arm}, seed {run.seed}, {at.name}: {text}" for text in wrong]
    return found, problems


def _add(usage: Usage, folder: Path, seed: int) -> list[str]:
    """Add a run to the usage of its arm; return its problems."""
    problems = []
    try:
        usage.counts.append(_checked_counts(np.load(folder / "counts.npy", allow_pickle=False)))
    except FileNotFoundError:
        problems.append("counts.npy is missing")
    except Exception as error:  # numpy and zipfile raise many kinds of errors on damaged files
        problems.append(f"counts.npy is damaged: {error}")
    if not usage.classes:
        names = (read_summary(folder) or {}).get("classes")
        usage.classes = [str(name) for name in names] if isinstance(names, list) else []
    if usage.snapshot is None and (folder / "usage_snapshot.npz").exists():  # only image data has one
        try:
            usage.snapshot = _read_snapshot(folder / "usage_snapshot.npz", seed)
        except Exception as error:  # numpy and zipfile raise many kinds of errors on damaged files
            problems.append(f"usage_snapshot.npz is damaged: {error}")
    return problems


def _checked_counts(counts: np.ndarray) -> np.ndarray:
    if counts.ndim != 1 or not len(counts) or not np.issubdtype(counts.dtype, np.integer) or counts.min() < 0:
        raise ValueError(
            f"counts must be whole numbers ≥ 0, one per sample, got {counts.dtype} of shape {counts.shape}"
        )
    return counts


def _read_snapshot(path: Path, seed: int) -> Snapshot:
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        points = file["map"]
        if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
            raise ValueError(f"map must be finite numbers of shape (N, 2), got shape {points.shape}")
        samples = {}
        for kind in KINDS:
            images = file[f"{kind}_images"]
            if images.ndim != 4 or images.dtype != np.uint8 or not images.size:
                raise ValueError(f"{kind}_images must be bytes, (N, C, H, W), got {images.dtype} {images.shape}")
            labels, counts = (_whole(file, f"{kind}_{what}", len(images)) for what in LABELLED)
            samples[kind] = Samples(images, labels, counts)
        labels, counts = (_whole(file, f"map_{what}", len(points)) for what in LABELLED)
        return Snapshot(seed, points, labels, counts, samples)


def _whole(file: np.lib.npyio.NpzFile, name: str, size: int) -> np.ndarray:
    array = file[name]
    if array.shape != (size,) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers of shape {(size,)}, got {array.shape}")
    return array
