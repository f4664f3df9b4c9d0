"""Priors: what a source looks like."""

from __future__ import annotations

from basis.priors.card import LIKELY, Card, Energies, quantiles
from basis.priors.denoiser import DenoiserPrior
from basis.priors.functions import FunctionPrior, from_denoiser, from_log_prob, from_score
from basis.priors.gaussian import GaussianMixture
from basis.priors.guidance import Guided, join_by_noise, led_away
from basis.priors.likelihood import FlowLikelihood, Ladder, LikelihoodPrior, with_likelihood
from basis.priors.measured import measure_spectrum
from basis.priors.prior import Prior
from basis.priors.spectrum import Spectrum
from basis.priors.tiled import Tiled, large_enough

__all__ = [
    "LIKELY",
    "Card",
    "DenoiserPrior",
    "Energies",
    "FlowLikelihood",
    "FunctionPrior",
    "GaussianMixture",
    "Guided",
    "Ladder",
    "LikelihoodPrior",
    "Prior",
    "Spectrum",
    "Tiled",
    "from_denoiser",
    "from_log_prob",
    "from_score",
    "join_by_noise",
    "large_enough",
    "led_away",
    "measure_spectrum",
    "quantiles",
    "with_likelihood",
]
