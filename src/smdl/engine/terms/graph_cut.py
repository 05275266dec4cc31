"""GraphCut: samples that are similar to the whole pool and not to each other."""

from smdl.engine import similarity_sums
from smdl.engine.geometry import Geometry
from smdl.engine.terms.pair_sums import PairSums


class GraphCut(PairSums):
    """F(S) = Σ_{i ∈ S} Σ_{j ∈ V} s_ij − λ Σ_{i, j ∈ S} s_ij with s = 1 − φ/D ≥ 0 and λ = `overlap`.

    Submodular for every λ, and monotone for λ ≤ ½. F is divided by the greatest Σ_{j ∈ V} s_ij. With `sample=m` the sum
    over V is n/m times the sum over m random samples.

    With a query Q, F(S) = 2λ Σ_{i ∈ S} Σ_{q ∈ Q} s_iq: the mutual information, which is modular. With away_from P,
    F(S) = F(S) − 2λ Σ_{i ∈ S} Σ_{p ∈ P} s_ip: the conditional gain, which need not be monotone.
    """

    covers = beside = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        overlap, pool = geometry.objective.overlap, self.pool
        self.rate = overlap
        if pool.query is not None:
            self.first = 2.0 * overlap * similarity_sums.sums_to_others(geometry, "query")
            self.rate = 0.0
            self.unit = float(self.first.max())
            return
        sums = similarity_sums.row_sums(geometry) * (len(pool) / similarity_sums.count_of(geometry))
        self.unit = 0.0 if similarity_sums.all_alike(geometry) else float(sums.max())
        self.first = sums - overlap * self.itself
        if pool.away_from is not None:
            self.first = self.first - 2.0 * overlap * similarity_sums.sums_to_others(geometry, "away_from")
