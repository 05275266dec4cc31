"""Data of the benchmarks: clustered, non-negative float32 features and the probabilities of ten classes."""

import numpy as np

import smdl

SEED = 0
WIDTH = 64  # d
CLASSES = 10  # C
CLUSTERS = 40
CHUNK = 4096


def features(n: int, seed: int = SEED, width: int = WIDTH) -> np.ndarray:
    """Return (n, width) float32 in [0, 1]: noisy clusters after a ReLU, with minimum 0 and maximum 1 in every column.

    Chunks are made in place, so that the process never holds more than the result. submodlib rescales its features to
    [0, 1]; with these columns that changes nothing, so all peers maximise the same function.
    """
    rng = np.random.default_rng((seed, n))
    centres = rng.standard_normal((CLUSTERS, width), dtype=np.float32)
    out = np.empty((n, width), np.float32)
    for start in range(0, n, CHUNK):
        rows = out[start : start + CHUNK]
        rng.standard_normal(out=rows, dtype=np.float32)
        rows *= 0.5
        rows += centres[rng.integers(CLUSTERS, size=len(rows))]
        np.maximum(rows, 0.0, out=rows)
    out /= out.max(axis=0)
    return out


def probabilities(n: int, seed: int = SEED) -> np.ndarray:
    """Return (n, 10) float32: the model is certain about some samples, and not about others."""
    rng = np.random.default_rng((seed, n, 1))
    out = np.empty((n, CLASSES), np.float32)
    for start in range(0, n, CHUNK):
        rows = out[start : start + CHUNK]
        rng.standard_normal(out=rows, dtype=np.float32)
        rows *= rng.uniform(0.2, 4.0, size=(len(rows), 1)).astype(np.float32)
        np.exp(rows, out=rows)
        rows /= rows.sum(axis=1, keepdims=True)
    return out


class Arrays:
    """The arrays of pools of one size. `pool()` returns a new pool, without scores from an earlier call."""

    def __init__(self, n: int, seed: int = SEED) -> None:
        self.features = features(n, seed)
        self.probabilities = probabilities(n, seed)
        self.reference = features(n, seed + 1)
        self.labels = np.random.default_rng((seed, n, 2)).integers(CLASSES, size=n)

    def pool(self) -> smdl.Pool:
        return smdl.Pool(self.features, self.probabilities, self.labels, reference=self.reference)
