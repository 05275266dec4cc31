"""The learning rate as a function of the progress of a run. It has no state to save."""

import math

from smdl.training.config import ScheduleConfig


def rate(config: ScheduleConfig, done: float) -> float:
    """Return the factor of the base learning rate after the fraction `done` of the steps."""
    if done < config.warmup:
        return done / config.warmup
    left = (1 - done) / (1 - config.warmup)
    if config.name == "cosine":
        return (1 - math.cos(math.pi * left)) / 2
    if config.name == "linear":
        return left
    if config.name == "step":
        return config.gamma ** sum(done >= milestone for milestone in config.milestones)
    return 1.0
