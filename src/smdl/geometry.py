"""Geometry: the points of a pool and their distances, as an objective measures them."""

from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from smdl import arithmetic
from smdl.distances import FeatureSpace, Metric, in_safe_range
from smdl.gradients import GradientSpace
from smdl.pool import Pool
from smdl.similarity import Graph, Points, nearest, points_of, similarity_matrix

if TYPE_CHECKING:
    from smdl.objective import Objective

#: Up to this many samples facility location holds its similarities, (N, N) float32; above, it computes them again.
DENSE = 8192


class Geometry:
    """What the terms of an objective share, each part computed when a term first needs it."""

    def __init__(self, objective: "Objective", pool: Pool) -> None:
        self.objective, self.pool = objective, pool
        self._moved: dict[str, Tensor] = {}

    @cached_property
    def scaled_features(self) -> tuple[Tensor, float]:
        """Features whose squares neither overflow nor vanish, and the power of two they were multiplied by."""
        gradients = self.objective.space == "gradients" and self.pool.bias
        return in_safe_range(self.pool.features, self.pool.largest, least=1.0 if gradients else 0.0)

    @cached_property
    def space(self) -> FeatureSpace | GradientSpace:
        features, scale = self.scaled_features
        in_gradients = self.objective.space == "gradients"
        return GradientSpace(self.pool, features, scale) if in_gradients else FeatureSpace(features)

    @property
    def sigma(self) -> float | None:
        """The bandwidth in units of the space."""
        sigma = self.objective.sigma
        return None if sigma is None else sigma * self.scaled_features[1]

    @cached_property
    def metric(self) -> Metric:
        space = self.space
        if self.objective.distance == "correlation" and isinstance(space, FeatureSpace):
            space = FeatureSpace(torch.from_numpy(arithmetic.centred(space.host)).to(self.pool.device))
        return Metric(self.pool, space, self.objective.distance, self.sigma)

    @cached_property
    def points(self) -> Points:
        return points_of(self.metric)

    @cached_property
    def graph(self) -> Graph | None:
        """The neighbours facility location is restricted to."""
        k = self.objective.neighbours
        if k is None or k >= len(self.pool):
            return None
        return nearest(self.points, k, torch.get_num_threads())

    @cached_property
    def similarities(self) -> np.ndarray | None:
        """The dense matrix of facility location, if the pool is small enough to hold it."""
        if self.graph is not None or len(self.pool) > DENSE:
            return None
        return similarity_matrix(self.points)

    def on_device(self, name: str) -> Tensor:
        """Return `similarities` or a part of `graph` on the pool's device; it is moved there once."""
        if name not in self._moved:
            self._moved[name] = torch.from_numpy(attrgetter(name)(self)).to(self.pool.device)
        return self._moved[name]
