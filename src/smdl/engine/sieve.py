"""select_stream: picks of rows that come in chunks, are seen once and do not stay (Sieve-Streaming)."""

import math
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.common.messages import names_checked, number, whole_number
from smdl.common.names import ObjectiveName
from smdl.engine.objective import Objective, Problem, as_objective
from smdl.engine.pool import Array, Pool, as_matrix, host, other_rows

#: Terms whose value is known from the picks alone, or from the picks and the rows to be represented.
STREAMED = ("facility_location", "feature_coverage", "log_determinant", "set_cover", "probabilistic_set_cover")


class StreamPicks(NamedTuple):
    """The picks of a stream, in the order in which they came.

    Attributes:
        indices: places in the stream, (≤ size,) int64.
        rows: features of the picks, (≤ size, D).
        gains: what each pick added, (≤ size,) float64.
        value: the sum of the gains.

    Examples:
        >>> import numpy as np, smdl
        >>> rng = np.random.default_rng(0)
        >>> picks = smdl.select_stream((rng.random((20, 4)) for _ in range(3)), "feature_coverage", 5)
        >>> len(picks.indices) <= 5, picks.rows.shape[1]
        (True, 4)
    """

    indices: np.ndarray  # (≤ size,) int64: places in the stream
    rows: np.ndarray  # (≤ size, D) features
    gains: np.ndarray  # (≤ size,) float64
    value: float


@dataclass
class _Sieve:
    """A guess of the best value, and the rows that are good enough for it."""

    guess: float
    places: list[int] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        return math.fsum(self.gains)

    def least(self, size: int) -> float:
        """Return the gain that a row must have to be added."""
        return (self.guess / 2.0 - self.value) / (size - len(self.places))


@names_checked
def select_stream(
    chunks: Iterable[Array],
    objective: Objective | ObjectiveName = "feature_coverage",
    size: int | None = None,
    *,
    represent: Array | None = None,
    epsilon: float = 0.1,
) -> StreamPicks:
    """Pick at most `size` rows of a stream in one pass. Only rows that may be picked are held, never the stream.

    Every guess (1 + ε)^i of the best value has a sieve: it adds a row whose gain is at least
    (guess/2 − value)/(picks that are left). The best sieve wins. Its value is at least ½ − ε of the best one (Sieve-
    Streaming, Badanidiyuru et al. 2014); greedy over all rows is usually better, so use `select` if the rows stay.

    Args:
        chunks: Features, (rows, D) each: arrays or tensors.
        objective: An Objective, or the name of a term. The terms are facility_location, feature_coverage,
            log_determinant, set_cover and probabilistic_set_cover: their values do not depend on rows that are gone.
        size: The most rows to pick.
        represent: Features of the rows that facility_location is to represent, (m, D), such as a random sample of
            earlier rows.
        epsilon: The step of the guesses. There are about ln(2 · size)/ε of them, and each may hold `size` rows.

    Returns:
        The picks: `indices` (places in the stream), `rows`, `gains`, `value`.

    Raises:
        ValueError: If the objective needs all rows, or if `represent` is missing or given without need.

    Examples:
        >>> import numpy as np, smdl
        >>> chunks = (np.eye(4, dtype=np.float32)[[k, k]] for k in range(4))  # eight rows, two of each kind
        >>> smdl.select_stream(chunks, "set_cover", 4).indices.tolist()
        [0, 2, 4, 6]
    """
    used, k = _check(as_objective(objective), represent), whole_number("size", size)
    step = number("epsilon", epsilon, "a number in (0, 1)", low=1e-6, high=1.0 - 1e-6)
    sieves: dict[int, _Sieve] = {}
    best, seen, width = 0.0, 0, None
    for chunk in chunks:
        rows = as_matrix("chunks", chunk)
        if len(rows) == 0:
            continue
        if width is not None and rows.shape[1] != width:
            raise ValueError(f"chunks must have as many columns as the first one: {width}, got {rows.shape[1]}")
        width = rows.shape[1]
        view = _View(used, represent, rows, list(sieves.values()))
        best = max(best, float(view.gains([], 0).max()))
        if best > 0:
            lowest, highest = (math.ceil(math.log(x) / math.log1p(step)) for x in (best, 2 * k * best))
            powers = range(lowest, highest + 1)
            sieves = {i: sieves.get(i) or _Sieve((1.0 + step) ** i) for i in powers}
            for sieve in sieves.values():
                view.fill(sieve, k, seen)
        seen += len(rows)
    if width is None:
        raise ValueError("chunks must have at least one row, got none")
    # sums in other orders differ in their last digits: of equal values the lowest guess counts
    found = max(sieves.values(), key=lambda sieve: float(f"{sieve.value:.9g}"), default=_Sieve(0.0))
    held = torch.stack(found.rows) if found.rows else torch.zeros(0, width)
    return StreamPicks(np.array(found.places, np.int64), host(held), np.array(found.gains), found.value)


def _check(objective: Objective, represent: Array | None) -> Objective:
    wrong = [name for name in objective.weights if name not in STREAMED]
    if wrong:
        raise ValueError(f"{wrong[0]} needs all rows at once; a stream has {', '.join(STREAMED)}")
    if objective.space != "features" or not objective.has_value:
        raise ValueError('a stream needs space="features" and normalize="pool"')
    located = "facility_location" in objective.weights
    if located != (represent is not None):
        raise ValueError("facility_location needs represent=, the rows to be represented; no other term reads them")
    if located and (objective.distance == "euclidean" or objective.neighbours is not None):
        raise ValueError(
            "facility_location of a stream needs a distance whose scale does not depend on the rows, and no neighbours:"
            ' distance="cosine", "correlation", or "gaussian" with sigma='
        )
    gaussian = (located and objective.distance == "gaussian") or (
        "log_determinant" in objective.weights and objective.kernel == "gaussian"
    )
    if gaussian and objective.sigma is None:
        raise ValueError("gaussian needs sigma= for a stream: the median distance is not known")
    return objective


class _View:
    """A chunk together with the rows that the sieves hold, as one pool."""

    def __init__(self, objective: Objective, represent: Array | None, chunk: Tensor, sieves: list[_Sieve]) -> None:
        held = [row for sieve in sieves for row in sieve.rows]
        self._at: dict[int, int] = {}  # of a held row in the pool
        for place, row in enumerate(held):
            self._at.setdefault(id(row), place)
        parts = [torch.stack(held)] if held else []
        self._start, self._chunk = len(held), chunk
        options: dict[str, Any] = {}
        features = torch.cat([*parts, chunk]) if parts else chunk
        if represent is not None:
            rows = other_rows("represent", represent, chunk.shape[1]).to(chunk.dtype).to(chunk.device)
            options["importance"] = torch.cat([torch.zeros(len(features)), torch.ones(len(rows))]).to(chunk.device)
            features = torch.cat([features, rows])
            objective = objective.changed(sample=len(rows))
        problem = Problem(objective, Pool(features, **options), "sample" if represent is not None else "rows")
        self._factors = {name: problem.coefficient(name) * term.scale for name, term in problem.set_terms.items()}
        self._terms, self._device = problem.set_terms, chunk.device

    def gains(self, batch: list[Tensor], first: int) -> np.ndarray:
        """Return F(a | batch) of the rows of the chunk from `first` on."""
        return self._gains(self._started(batch), first)

    def _started(self, batch: list[Tensor]) -> dict[str, Any]:
        terms = {name: copy(term) for name, term in self._terms.items()}
        members = [self._at[id(row)] for row in batch]
        table = torch.tensor([[*members, *range(self._start, self._start + len(self._chunk))]], device=self._device)
        for term in terms.values():
            term.start(table)
            for place in members:
                term.add(torch.tensor([place], device=self._device))
        return terms

    def _gains(self, terms: dict[str, Any], first: int) -> np.ndarray:
        rows = torch.arange(self._start + first, self._start + len(self._chunk), device=self._device)[None, :]
        found = sum(self._factors[name] * term.gains(rows)[0] for name, term in terms.items())
        return host(torch.as_tensor(found)).astype(np.float64)

    def fill(self, sieve: _Sieve, size: int, seen: int) -> None:
        """Add the rows of the chunk, one after the other, that are good enough for the sieve."""
        terms, first = None, 0
        while len(sieve.places) < size and first < len(self._chunk):
            terms = terms or self._started(sieve.rows)
            gains = self._gains(terms, first)
            enough = np.flatnonzero((gains >= sieve.least(size)) & (gains > 0))
            if len(enough) == 0:
                return
            place = first + int(enough[0])
            sieve.places.append(seen + place)
            sieve.gains.append(float(gains[enough[0]]))
            sieve.rows.append(self._chunk[place].clone())
            for term in terms.values():
                term.add(torch.tensor([self._start + place], device=self._device))
            first = place + 1
