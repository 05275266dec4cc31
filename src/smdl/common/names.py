"""The names that public functions take, as types, so that editors complete them. A test holds that each type has the
names of its table."""

from typing import Literal

Balance = Literal["classes", "errors", "none"]
ConcaveName = Literal["sqrt", "log", "ratio"]
DistanceName = Literal["euclidean", "cosine", "correlation", "gaussian"]
FeatureType = Literal["float16", "bfloat16", "float32"]
KernelName = Literal["linear", "cosine", "gaussian"]
KeptRow = Literal["central", "first"]
LossName = Literal["cross_entropy", "binary_cross_entropy", "mean_squared_error", "bce", "mse"]
MethodName = Literal[
    "uniform",
    "balanced",
    "progressive",
    "weighted",
    "loss",
    "infobatch",
    "evolved_sampling",
    "importance",
    "selective_backprop",
    "divbs",
    "rho_loss",
    "paper",
    "paper_subset",
    "paper_distance",
    "paper_released",
    "recommended",
    "observed",
    "fresh",
]
Normalisation = Literal["pool", "candidates"]
ObjectiveName = Literal[
    "labels",
    "paper",
    "paper_subset",
    "gradients",
    "uncertainty",
    "mean_closeness",
    "mean_distance",
    "feature_match",
    "utility",
    "redundancy",
    "facility_location",
    "feature_coverage",
    "log_determinant",
    "class_balance",
    "graph_cut",
    "saturated_coverage",
    "set_cover",
    "probabilistic_set_cover",
    "sum_redundancy",
    "disparity_sum",
    "disparity_min",
]
OptimizerName = Literal["auto", "naive", "lazy", "stochastic", "subset", "bidirectional"]
PoolingName = Literal["first", "flatten", "last", "mean"]
RanksChoice = Literal["local", "global"]
Reduction = Literal["mean", "none", "sum"]
SharesName = Literal["uniform", "input"]
SpaceName = Literal["features", "gradients"]
