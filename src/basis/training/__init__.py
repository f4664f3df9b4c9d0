"""Training of score priors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basis.training._config import TrainConfig
    from basis.training._ladder import Rung, ladder_weights, plot_ladder, train_ladder
    from basis.training._muon import Muon
    from basis.training._objectives import Denoising, Likelihood
    from basis.training._plot import plot_log
    from basis.training._trainer import (
        Trainer,
        discrete_sigmas,
        focused_sigmas,
        likelihood_sigmas,
        one_sigma,
        read_log,
        read_state,
    )
    from basis.training._variance import fit_variance

# The command line asks for the settings alone, which must not cost an import of torch.
_HOMES = {
    "Denoising": "_objectives",
    "Likelihood": "_objectives",
    "Muon": "_muon",
    "Rung": "_ladder",
    "TrainConfig": "_config",
    "Trainer": "_trainer",
    "discrete_sigmas": "_trainer",
    "fit_variance": "_variance",
    "focused_sigmas": "_trainer",
    "ladder_weights": "_ladder",
    "likelihood_sigmas": "_trainer",
    "one_sigma": "_trainer",
    "plot_ladder": "_ladder",
    "plot_log": "_plot",
    "read_log": "_trainer",
    "read_state": "_trainer",
    "train_ladder": "_ladder",
}

__all__ = [
    "Denoising",
    "Likelihood",
    "Muon",
    "Rung",
    "TrainConfig",
    "Trainer",
    "discrete_sigmas",
    "fit_variance",
    "focused_sigmas",
    "ladder_weights",
    "likelihood_sigmas",
    "one_sigma",
    "plot_ladder",
    "plot_log",
    "read_log",
    "read_state",
    "train_ladder",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'basis.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"basis.training.{_HOMES[name]}"), name)
