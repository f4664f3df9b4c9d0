"""Training of priors."""

from __future__ import annotations

from basis.training.config import TrainConfig
from basis.training.export import plot_log
from basis.training.ladder import PAPER_SIGMAS, plot_ladder, train_ladder
from basis.training.muon import Muon, orthogonalise
from basis.training.objectives import (
    Denoising,
    DualScore,
    Likelihood,
    discrete_sigmas,
    draw_told,
    focused_sigmas,
    likelihood_sigmas,
    normalise,
    one_sigma,
)
from basis.training.run import train
from basis.training.state import read_log, read_state
from basis.training.teacher import Lessons, Taught, TaughtEnergy, Visited
from basis.training.trainer import Trainer
from basis.training.variance import fit_variance

__all__ = [
    "PAPER_SIGMAS",
    "Denoising",
    "DualScore",
    "Lessons",
    "Likelihood",
    "Muon",
    "Taught",
    "TaughtEnergy",
    "TrainConfig",
    "Trainer",
    "Visited",
    "discrete_sigmas",
    "draw_told",
    "fit_variance",
    "focused_sigmas",
    "likelihood_sigmas",
    "normalise",
    "one_sigma",
    "orthogonalise",
    "plot_ladder",
    "plot_log",
    "read_log",
    "read_state",
    "train",
    "train_ladder",
]
