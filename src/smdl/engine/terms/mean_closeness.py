"""MeanCloseness: the cosine to the mean of the pool."""

import numpy as np

from smdl.engine import arithmetic
from smdl.engine.pool import stored
from smdl.engine.terms.term import ModularTerm


class MeanCloseness(ModularTerm):
    """MC(x) = cos(x, mean of V), as the paper's text says: high near the centre of the data, so outliers lose."""

    def scores(self) -> np.ndarray:
        features = stored(self.geometry.scaled_features[0])
        return arithmetic.cosine_to(features, arithmetic.column_sums(features))
