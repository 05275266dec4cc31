"""Meters: what an epoch adds up, step by step; part of the checkpoint, so that a resumed epoch counts whole."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Where the seconds of a run go.
PARTS = ("data", "scoring", "selection", "training", "evaluation")


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
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))

    def add(self, loss: float, wrong: int, gradient_norm: float, labels: np.ndarray, classes: int) -> None:
        """A training step."""
        counts = np.bincount(labels, minlength=classes)
        self.batches += 1
        self.samples += len(labels)
        self.loss += loss * len(labels)
        self.wrong += wrong
        self.gradient_norm += gradient_norm
        self.class_balance += balance(counts)
        self.class_counts = (counts + np.asarray(self.class_counts or [0], int)).tolist()

    def means(self) -> dict[str, Any]:
        """Of the epoch; of its batches as they were trained on, so a strategy that seeks hard samples looks worse."""
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
        """Plain values."""
        return asdict(self)


def balance(counts: np.ndarray) -> float:
    """Entropy of a batch's class counts over the most it could be: 1 is even, 0 is one class alone."""
    total = counts.sum()
    most = math.log(min(len(counts), total)) if total else 0.0
    shares = counts[counts > 0] / max(1, total)
    return float(-(shares * np.log(shares)).sum() / most) if most > 0 else 1.0


def gradient_norm(parameters: Any) -> float:
    """‖∂loss/∂weights‖ of the batch."""
    grads: list[Tensor] = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return float(torch.stack([grad.norm() for grad in grads]).norm()) if grads else 0.0
