"""Training of priors."""

from __future__ import annotations

from basis.training.config import TrainConfig
from basis.training.run import train

__all__ = [
    "TrainConfig",
    "train",
]
