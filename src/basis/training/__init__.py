"""Training of score priors."""

from basis.training._muon import Muon
from basis.training._trainer import (
    TrainConfig,
    Trainer,
    discrete_sigmas,
    focused_sigmas,
    read_log,
    read_state,
)

__all__ = [
    "Muon",
    "TrainConfig",
    "Trainer",
    "discrete_sigmas",
    "focused_sigmas",
    "read_log",
    "read_state",
]
