"""The terms of an objective, one file per term: its equation, its torch form and its compiled form."""

from typing import Any

from smdl.engine.terms.class_balance import ClassBalance
from smdl.engine.terms.disparity_min import DisparityMin
from smdl.engine.terms.disparity_sum import DisparitySum
from smdl.engine.terms.facility_location import FacilityLocation
from smdl.engine.terms.feature_coverage import FeatureCoverage
from smdl.engine.terms.feature_match import FeatureMatch
from smdl.engine.terms.graph_cut import GraphCut
from smdl.engine.terms.log_determinant import LogDeterminant
from smdl.engine.terms.mean_closeness import MeanCloseness
from smdl.engine.terms.mean_distance import MeanDistance
from smdl.engine.terms.probabilistic_set_cover import ProbabilisticSetCover
from smdl.engine.terms.redundancy import Redundancy
from smdl.engine.terms.saturated_coverage import SaturatedCoverage
from smdl.engine.terms.set_cover import SetCover
from smdl.engine.terms.sum_redundancy import SumRedundancy
from smdl.engine.terms.uncertainty import Uncertainty
from smdl.engine.terms.utility import Utility

#: Every term by the name of its weight, in the order in which they are added.
TERMS: dict[str, type[Any]] = {
    "uncertainty": Uncertainty,
    "mean_closeness": MeanCloseness,
    "mean_distance": MeanDistance,
    "feature_match": FeatureMatch,
    "utility": Utility,
    "redundancy": Redundancy,
    "facility_location": FacilityLocation,
    "feature_coverage": FeatureCoverage,
    "log_determinant": LogDeterminant,
    "class_balance": ClassBalance,
    "graph_cut": GraphCut,
    "saturated_coverage": SaturatedCoverage,
    "set_cover": SetCover,
    "probabilistic_set_cover": ProbabilisticSetCover,
    "sum_redundancy": SumRedundancy,
    "disparity_sum": DisparitySum,
    "disparity_min": DisparityMin,
}
