"""Priors: what a source looks like."""

from basis.priors._base import Prior
from basis.priors._denoiser import DenoiserPrior
from basis.priors._functions import FunctionPrior, from_denoiser, from_log_prob, from_score
from basis.priors._gaussian import GaussianMixture
from basis.priors._likelihood import Ladder, LikelihoodPrior
from basis.priors._store import (
    PriorEntry,
    add_prior,
    build_module,
    describe_module,
    list_priors,
    load_prior,
    read_card,
    save_prior,
    write_prior,
)
from basis.priors._tiled import Tiled

__all__ = [
    "DenoiserPrior",
    "FunctionPrior",
    "GaussianMixture",
    "Ladder",
    "LikelihoodPrior",
    "Prior",
    "PriorEntry",
    "Tiled",
    "add_prior",
    "build_module",
    "describe_module",
    "from_denoiser",
    "from_log_prob",
    "from_score",
    "list_priors",
    "load_prior",
    "read_card",
    "save_prior",
    "write_prior",
]
