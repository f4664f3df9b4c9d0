"""Training of priors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis._discover import lazy_door

if TYPE_CHECKING:
    from basis.training._class_draws import draw_told
    from basis.training._config import TrainConfig
    from basis.training._dual_score import DualScore, normalise
    from basis.training._ladder import PAPER_SIGMAS, plot_ladder, train_ladder
    from basis.training._muon import Muon, orthogonalise
    from basis.training._objectives import Denoising, Likelihood
    from basis.training._plot import plot_log
    from basis.training._sigmas import (
        discrete_sigmas,
        focused_sigmas,
        likelihood_sigmas,
        one_sigma,
    )
    from basis.training._state_files import read_log, read_state
    from basis.training._teaching import Lessons, Taught, TaughtEnergy
    from basis.training._train import train
    from basis.training._trainer import Trainer
    from basis.training._variance import fit_variance
    from basis.training._visited import Visited

# The command line asks for the settings alone, which must not cost an import of torch.
_HOMES = {
    "Denoising": "_objectives",
    "DualScore": "_dual_score",
    "Likelihood": "_objectives",
    "Muon": "_muon",
    "PAPER_SIGMAS": "_ladder",
    "Lessons": "_teaching",
    "Taught": "_teaching",
    "TaughtEnergy": "_teaching",
    "TrainConfig": "_config",
    "Trainer": "_trainer",
    "Visited": "_visited",
    "discrete_sigmas": "_sigmas",
    "draw_told": "_class_draws",
    "fit_variance": "_variance",
    "focused_sigmas": "_sigmas",
    "likelihood_sigmas": "_sigmas",
    "normalise": "_dual_score",
    "one_sigma": "_sigmas",
    "orthogonalise": "_muon",
    "plot_ladder": "_ladder",
    "plot_log": "_plot",
    "read_log": "_state_files",
    "read_state": "_state_files",
    "train": "_train",
    "train_ladder": "_ladder",
}

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
__getattr__ = lazy_door(__name__, _HOMES)
