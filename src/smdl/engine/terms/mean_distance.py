"""MeanDistance: the distance to the mean of the pool."""

import numpy as np

from smdl.engine import arithmetic
from smdl.engine.pool import host
from smdl.engine.terms.term import ModularTerm


class MeanDistance(ModularTerm):
    """MD(x) = ‖x − mean of V‖: Eq. 6 as it is printed, where outliers win."""

    def scores(self) -> np.ndarray:
        features = host(self.geometry.scaled_features[0])
        mean = arithmetic.column_sums(features) / len(features)
        return np.sqrt(arithmetic.squared_distances(features, mean))
