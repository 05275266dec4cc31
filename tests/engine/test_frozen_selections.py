"""Selections that must never change: the indices were recorded at commit 64e5214, on a dyadic grid."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smdl

FROZEN: dict[str, list[int]] = json.loads((Path(__file__).parent / "frozen_selections.json").read_text())
SAMPLES = 240
OBJECTIVES: dict[str, dict[str, Any]] = {
    "paper": {"uncertainty": 0.2, "redundancy": 0.1, "mean_closeness": 0.5, "feature_match": 0.2},
    "recommended": {"facility_location": 1.0, "space": "gradients"},
    "redundancy, cosine": {"redundancy": 1.0, "distance": "cosine"},
    "redundancy, correlation": {"redundancy": 1.0, "uncertainty": 0.25, "distance": "correlation"},
    "facility location, gaussian": {"facility_location": 1.0, "distance": "gaussian"},
    "facility location, neighbours": {"facility_location": 1.0, "neighbours": 8},
    "coverage, log": {"feature_coverage": 1.0, "concave": "log"},
    "determinant": {"log_determinant": 1.0, "kernel": "gaussian"},
    "class balance": {"class_balance": 1.0, "uncertainty": 0.5},
    "mixture": {"facility_location": 0.5, "redundancy": 0.5, "mean_closeness": 0.1},
    "candidates": {"uncertainty": 0.5, "redundancy": 0.5, "normalize": "candidates"},
}
CALLS: dict[str, dict[str, Any]] = {
    "auto": {},
    "naive": {"optimizer": "naive"},
    "lazy": {"optimizer": "lazy"},
    "stochastic": {"optimizer": "stochastic", "seed": 7},
    "partitions": {"optimizer": "stochastic", "partitions": 4, "epsilon": 0.1, "seed": (3, 1, 4)},
    "adaptive": {"size": (4, 20), "size_penalty": 0.4},
    "among": {"among": list(range(0, SAMPLES, 3)), "exclude": [0, 3, 6]},
}


@pytest.fixture(scope="module")
def pool() -> smdl.Pool:
    """Numbers of Python's own generator, whose `random()` is the same in every version."""
    draw = random.Random(2026).random

    def grid(levels: int, step: float, width: int) -> np.ndarray:
        rows = [[int(levels * draw()) * step for _ in range(width)] for _ in range(SAMPLES)]
        return np.array(rows, np.float32)

    features, reference = grid(17, 0.125, 16), grid(9, 0.25, 8)
    votes = np.array([np.bincount([int(4 * draw()) for _ in range(8)], minlength=4) for _ in range(SAMPLES)])
    labels = np.array([int(4 * draw()) for _ in range(SAMPLES)])
    return smdl.Pool(features, (votes / 8).astype(np.float32), labels, reference=reference)


@pytest.mark.parametrize("name", FROZEN)
def test_selection_is_the_one_recorded(pool: smdl.Pool, name: str):
    objective, _, call = name.partition(" / ")
    options = {"size": 16, **CALLS[call]}
    chosen = smdl.select(pool, smdl.Objective(**OBJECTIVES[objective]), **options)
    assert chosen.indices.tolist() == FROZEN[name]


def test_every_objective_and_call_is_recorded():
    undefined = {"candidates / lazy"}  # per-step scores have no lazy bound
    assert set(FROZEN) == {f"{objective} / {call}" for objective in OBJECTIVES for call in CALLS} - undefined
