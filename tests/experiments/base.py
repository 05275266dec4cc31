"""A configuration that trains in a moment."""

from smdl.experiments.arms import overrides_of, with_overrides
from smdl.training.config import DataConfig, ModelConfig, TrainConfig

BASE = TrainConfig(
    data=DataConfig(train_size=80, test_size=60),
    model=ModelConfig("mlp", width=0.25),
    batch_size=20,
    epochs=2,
    train_evaluation=40,
    threads=1,
)
UNIFORM = with_overrides(BASE, overrides_of("uniform"))
