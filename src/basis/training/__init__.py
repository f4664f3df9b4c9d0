"""Training of priors."""

from __future__ import annotations

from basis.training.config import TrainConfig
from basis.training.export import plot_log
from basis.training.ladder import PAPER_SIGMAS, train_ladder
from basis.training.muon import Muon
from basis.training.run import train
from basis.training.state import read_log
from basis.training.variance import fit_variance

__all__ = [
    "PAPER_SIGMAS",
    "Muon",
    "TrainConfig",
    "fit_variance",
    "plot_log",
    "read_log",
    "train",
    "train_ladder",
]
