"""Strategies by name."""

from collections.abc import Callable

from smdl.strategies.loss_rank import LossRank
from smdl.strategies.strategy import Strategy
from smdl.strategies.submodular import Submodular
from smdl.strategies.uniform import Uniform

#: A strategy of your own: a class, and a line here (`STRATEGIES["mine"] = Mine`).
STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "loss": LossRank,
    "smdl": Submodular,
    "uniform": Uniform,
}
