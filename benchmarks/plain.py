"""Straightforward versions of the selections: Algorithm 1 in NumPy, greedy loops in torch."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Scores(NamedTuple):
    """F(a | S) = modular + coefficient · min distance to S, where the distance is `bound` if S is empty."""

    features: np.ndarray  # (N, D)
    modular: np.ndarray  # (N,)
    coefficient: float
    bound: float


def get_mini_batch(scores: Scores, size: int, partitions: int, epsilon: float, seed: int) -> np.ndarray:
    """Algorithm 1: partition, maximise each part, merge, maximise again."""
    rng = np.random.default_rng(seed)
    parts = np.array_split(rng.permutation(len(scores.features)), partitions)
    merged = np.concatenate([_greedy(scores, part, size, epsilon, rng) for part in parts])
    return _greedy(scores, merged, size, epsilon, rng)


def _greedy(scores: Scores, part: np.ndarray, size: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Lazier-than-lazy greedy: draw R in every step and measure every candidate of R against all of S."""
    features, modular, coefficient, bound = scores
    sample = math.ceil(len(part) / size * math.log(1 / epsilon))
    selected, remaining = [], part
    for _ in range(size):
        drawn = rng.choice(remaining, min(sample, len(remaining)), replace=False)
        batch = features[selected]  # once per step, not once per candidate: as fast as plain NumPy gets
        best, winner = -math.inf, -1
        for candidate in drawn:
            gap = np.linalg.norm(batch - features[candidate], axis=1).min() if selected else bound
            gain = modular[candidate] + coefficient * gap
            if gain > best:
                best, winner = gain, int(candidate)
        selected.append(winner)
        remaining = remaining[remaining != winner]
    return np.array(selected)


def farthest(features: Tensor, modular: Tensor, coefficient: float, bound: float, size: int, first: int) -> np.ndarray:
    """Naive greedy over modular scores and distances in torch. Start at `first`, or at the best score if it is −1."""
    picks, nearest = [], torch.full((len(features),), bound)
    gains = modular.clone()
    for _ in range(size):
        pick = first if first >= 0 and not picks else int(gains.argmax())
        picks.append(pick)
        nearest = torch.minimum(nearest, (features - features[pick]).norm(dim=1))
        gains = modular + coefficient * nearest
        gains[picks] = -math.inf
    return np.array(picks)


def farthest_point(features: Tensor, size: int, first: int) -> np.ndarray:
    """Farthest-point sampling in six lines of torch. A pick has distance 0, so it is not picked again."""
    picks, nearest = [first], (features - features[first]).square().sum(1)
    while len(picks) < size:
        pick = int(nearest.argmax())
        picks.append(pick)
        nearest = torch.minimum(nearest, (features - features[pick]).square().sum(1))
    return np.array(picks)


def facility_location(points: Tensor, bound: float, size: int) -> np.ndarray:
    """Naive greedy for facility location in torch, its similarities included."""
    similarities = 1.0 - torch.cdist(points, points) / bound
    picks, best = [], torch.zeros(len(points))
    for _ in range(size):
        gains = (similarities - best).clamp(min=0).sum(1)
        gains[picks] = -math.inf
        pick = int(gains.argmax())
        picks.append(pick)
        best = torch.maximum(best, similarities[pick])
    return np.array(picks)


def gradients(features: Tensor, errors: Tensor) -> Tensor:
    """Last-layer gradients e ⊗ [f, 1] written out, (N, C · (D + 1))."""
    ones = torch.cat([features, torch.ones(len(features), 1)], 1)
    return (errors[:, :, None] * ones[:, None, :]).flatten(1)
