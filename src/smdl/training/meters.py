"""Sums over the steps of an epoch. They are a part of the checkpoint, so a resumed epoch counts all of its steps."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: What the time of a run is spent on.
PHASES = ("data", "scoring", "selection", "training", "refit", "evaluation")


@dataclass
class Meters:
    """Sums over the steps of an epoch."""

    batches: int = 0
    samples: int = 0
    loss: float = 0.0
    wrong: int = 0
    gradient_norm: float = 0.0
    class_balance: float = 0.0
    class_counts: list[int] = field(default_factory=list)
    forwards: int = 0
    terms: dict[str, float] | None = None  # of the epoch's first batch
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def add(self, loss: float, wrong: int, gradient_norm: float, labels: np.ndarray, classes: int) -> None:
        """Add a training step."""
        counts = np.bincount(labels, minlength=classes)
        self.batches += 1
        self.samples += len(labels)
        self.loss += loss * len(labels)
        self.wrong += wrong
        self.gradient_norm += gradient_norm
        self.class_balance += balance(counts)
        self.class_counts = (counts + np.asarray(self.class_counts or [0], int)).tolist()

    def means(self) -> dict[str, Any]:
        """Return the means of the epoch. They are over its training batches, so a method that prefers hard samples has
        higher loss and error."""
        batches, samples = max(1, self.batches), max(1, self.samples)
        return {
            "batch_loss": self.loss / samples,
            "batch_error": self.wrong / samples,
            "gradient_norm": self.gradient_norm / batches,
            "class_balance": self.class_balance / batches,
            "class_counts": self.class_counts,
            "samples": self.samples,
            "forwards": self.forwards,
            "terms": self.terms,
            "seconds": {name: round(spent, 6) for name, spent in self.seconds.items()},
        }

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return asdict(self)


def balance(counts: np.ndarray) -> float:
    """Return the ratio of the entropy of class counts to its maximum: 1 is even, 0 is a single class."""
    total = counts.sum()
    most = math.log(min(len(counts), total)) if total else 0.0
    shares = counts[counts > 0] / max(1, total)
    return float(-(shares * np.log(shares)).sum() / most) if most > 0 else 1.0


def gradient_norm(parameters: Any) -> float:
    """Return ‖∂loss/∂weights‖ of the batch."""
    grads: list[Tensor] = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return float(torch.stack([grad.norm() for grad in grads]).norm()) if grads else 0.0
