"""What more labels would bring: a learning curve through the accuracies on the check rows.

The curve is error(n) = b · n^(−c). Its points share their check rows, so the rows are resampled, not the points: each
resample gives its own curve. The interval has the spread of these curves, and what the curve itself is wrong by.
"""

import math
from typing import NamedTuple

import numpy as np

#: Resamples of the check rows; half of a 95 % interval in standard deviations.
RESAMPLES, Z = 400, 1.959964
#: Standard deviation of what a power law is wrong by: a share of the gain, and at least this much accuracy. Chosen on
#: six tasks so that the intervals hold the truth; docs/labelling.md says how often they do on others.
MODEL_ERROR, LEAST_ERROR = 0.5, 0.01
#: Fewest points of a curve and check rows of a forecast.
POINTS, CHECKS = 4, 20


class Accuracy(NamedTuple):
    """A share of right predictions with its 95 % interval.

    biased    it was measured on rows that were chosen, by cross-validation: not the accuracy on the pile
    """

    value: float
    low: float
    high: float
    rows: int
    biased: bool = False

    def __str__(self) -> str:
        text = f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f}, {self.rows} rows)"
        return f"{text}, cross-validation of the chosen rows, biased" if self.biased else text


class Forecast(NamedTuple):
    """The accuracy to expect with more labels, and the gain; each with its 95 % interval."""

    labels: int
    value: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float

    def __str__(self) -> str:
        low, high = 100 * self.gain_low, 100 * self.gain_high
        return f"{100 * self.gain:+.1f} points ({low:+.1f} to {high:+.1f}) by {self.labels} labels"


def wilson(right: int, rows: int, biased: bool = False) -> Accuracy:
    """Return the share with Wilson's interval, which is right for small numbers and shares near 0 or 1."""
    z, share = Z, right / rows
    middle = (share + z * z / (2 * rows)) / (1 + z * z / rows)
    half = z / (1 + z * z / rows) * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    return Accuracy(share, max(0.0, middle - half), min(1.0, middle + half), rows, biased)


def prefix_sizes(labels: int, classes: int) -> np.ndarray:
    """Return the numbers of labels at which the curve is measured, at most 8: in equal ratios, the last is all."""
    least = min(labels, max(8, classes))
    return np.unique(np.geomspace(max(1, least), labels, 8).round().astype(int)) if labels else np.empty(0, int)


class LearningCurve:
    """Right and wrong predictions on the check rows after some of the labels, and the power law through them.

    sizes    (P,) numbers of labels
    right    (P, K) whether check row k was predicted rightly after sizes[p] labels
    """

    def __init__(self, sizes: np.ndarray, right: np.ndarray, seed: int = 0) -> None:
        self.sizes, self.right = np.asarray(sizes, float), np.asarray(right, float)
        count = self.right.shape[1]
        drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        errors = ((1.0 - self.right) @ drawn.T + 0.5) / (count + 1.0)  # (P, R); never 0, so that it has a logarithm
        self.level, self.slope = _power_law(self.sizes, errors)

    def gain(self, labels: float) -> tuple[float, float]:
        """Return the gain of accuracy to expect at this number of labels, and half of its interval."""
        ratio = math.log(labels / self.sizes[-1])
        gains = np.exp(self.level) - np.exp(self.level + self.slope * ratio)
        mean = float(gains.mean())
        return mean, Z * math.sqrt(float(gains.var()) + (MODEL_ERROR * mean) ** 2 + LEAST_ERROR**2)

    def forecast(self, labels: int) -> Forecast:
        """Return what to expect at this number of labels."""
        level = wilson(int(self.right[-1].sum()), self.right.shape[1])
        gain, half = self.gain(labels)
        value = min(1.0, level.value + gain)
        low = max(0.0, value - math.hypot(level.value - level.low, half))
        high = min(1.0, value + math.hypot(level.high - level.value, half))
        return Forecast(labels, value, low, high, gain, gain - half, gain + half)

    def needed(self, accuracy: float) -> int | None:
        """Return the number of labels that reaches an accuracy; None if it would be more than a million."""
        now, last = float(self.right[-1].mean()), self.sizes[-1]
        for labels in np.unique(np.geomspace(last, max(last, 1e6), 600).round()):
            if now + self.gain(labels)[0] >= accuracy:
                return int(labels)
        return None


def _power_law(sizes: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit log error = level + slope · log(n / last n), slope ≤ 0, to each column of errors, (P, R). Later points count
    more, in proportion to their labels."""
    places, weights = np.log(sizes / sizes[-1]), sizes / sizes.sum()
    centred = places - weights @ places
    logs = np.log(errors)
    mean = weights @ logs
    slope = np.minimum((weights * centred) @ (logs - mean) / ((weights * centred**2).sum() or 1.0), 0.0)
    return mean - slope * (weights @ places), slope
