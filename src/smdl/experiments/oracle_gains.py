"""How much there is to gain in a regime: what perfect knowledge gains, and the share of it that each method gains."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from smdl.experiments.statistics import FEWEST_SEEDS, LEVEL, MARGIN, paired_difference, pairs_of

Values = Mapping[int, float]  # seed -> a quantity of its run
#: What a measure is called in a sentence.
MEASURE_NAMES = {
    "final_accuracy": "accuracy",
    "balanced_accuracy": "accuracy of all classes alike",
    "rare_accuracy": "accuracy of the rare groups",
}


@dataclass(frozen=True)
class Share:
    """The part of perfect knowledge's gain that a method gains, with its 95 % interval."""

    method: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Gain:
    """What the oracle gains over the baseline of a regime, by one measure."""

    regime: str  # empty without regimes
    protocol: str
    measure: str
    difference: float | None
    half: float | None
    equivalent: bool  # surely within the margin
    shares: list[Share] = field(default_factory=list)  # of the methods, where the gain excludes zero
    own: bool = False  # whether a training function of the user returned the measure: these are no points

    @property
    def excludes_zero(self) -> bool:
        """Whether perfect knowledge surely gains or loses."""
        return self.half is not None and abs(self.difference or 0.0) > self.half


def gain(
    regime: str,
    protocol: str,
    measure: str,
    baseline: Values,
    oracle: Values,
    methods: Mapping[str, Values],
    looks: int,
    margin: float = MARGIN,
    own: bool = False,
    higher_is_better: bool = True,
) -> Gain:
    """Compare the oracle of a regime with its baseline, and the methods with both, over the seeds that all have."""
    pairs = pairs_of(oracle, baseline)
    gap = paired_difference(*pairs, looks)
    equal = gap.half is None and gap.mean == 0 and len(pairs[0]) >= FEWEST_SEEDS
    equivalent = equal or (gap.half_90 is not None and abs(gap.mean or 0.0) + gap.half_90 <= margin)
    found = Gain(regime, protocol, measure, gap.mean, gap.half, equivalent, own=own)
    if found.excludes_zero and ((gap.mean or 0.0) > 0) == higher_is_better:
        found.shares.extend(_shares(baseline, oracle, methods))
    return found


def gains_nothing(gains: Sequence[Gain]) -> bool:
    """Whether perfect knowledge is equivalent to the baseline by every measure of a regime."""
    return bool(gains) and all(gain.equivalent for gain in gains)


def _shares(baseline: Values, oracle: Values, methods: Mapping[str, Values]) -> list[Share]:
    found = []
    for method, values in methods.items():
        seeds = sorted(baseline.keys() & oracle.keys() & values.keys())
        if len(seeds) < FEWEST_SEEDS:
            continue
        mine, whole = (np.array([one[seed] - baseline[seed] for seed in seeds]) for one in (values, oracle))
        low, high = _fieller(mine, whole)
        found.append(Share(method, float(mine.mean() / whole.mean()), low, high))
    return found


def _fieller(mine: np.ndarray, whole: np.ndarray) -> tuple[float, float]:
    """Return Fieller's interval of the ratio of two means of pairs: the ratios r for which the mean of mine − r · whole
    is not significantly different from 0. It is unbounded where the mean of `whole` may be 0."""
    count = len(mine)
    factor = float(stats.t.isf(LEVEL / 2, count - 1)) ** 2 / count
    covariance = np.cov(mine, whole)
    a = float(whole.mean() ** 2 - factor * covariance[1, 1])
    b = float(mine.mean() * whole.mean() - factor * covariance[0, 1])
    c = float(mine.mean() ** 2 - factor * covariance[0, 0])
    if a <= 0:
        return -math.inf, math.inf
    root = math.sqrt(max(0.0, b * b - a * c))
    return (b - root) / a, (b + root) / a


def sentences(gains: Sequence[Gain]) -> list[str]:
    """Say for each regime what perfect knowledge gains, and which share of it each method gains."""
    lines = []
    for regime in dict.fromkeys(gain.regime for gain in gains):
        mine = [gain for gain in gains if gain.regime == regime]
        if gains_nothing(mine):
            text = f"knowing what is hidden gains nothing ({' and '.join(map(_amount, mine))})."
        else:
            text = f"perfect knowledge gains {'; '.join(map(_sentence, mine))}."
        text = f"{regime}: {text}" if regime else text
        lines.append(text[0].upper() + text[1:])
    return lines


def _sentence(gain: Gain) -> str:
    text = _amount(gain)
    if not gain.excludes_zero:
        return f"{text} (equivalent to no gain)" if gain.equivalent else f"{text} (not known: too few seeds)"
    shares = [
        f"{share.method} {100 * share.share:.0f} % ({100 * share.low:.0f} to {100 * share.high:.0f})"
        for share in sorted(gain.shares, key=lambda share: -share.share)
    ]
    return text + (f", of which {', '.join(shares)}" if shares else "")


def _amount(gain: Gain) -> str:
    forms = ("+.3g", ".2g") if gain.own else ("+.1f", ".1f")
    half = "" if gain.half is None else f" ± {gain.half:{forms[1]}}"
    number = "–" if gain.difference is None else f"{gain.difference:{forms[0]}}{half}{'' if gain.own else ' points'}"
    return f"{number.replace('-', '−')} in {gain.measure if gain.own else MEASURE_NAMES[gain.measure]}"
