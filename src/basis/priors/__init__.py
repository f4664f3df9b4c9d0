"""Priors: what a source looks like."""

from __future__ import annotations

from basis.priors.card import LIKELY, Card, Energies, quantiles
from basis.priors.denoiser import DenoiserPrior, network_prior
from basis.priors.functions import FunctionPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.guidance import Autoguided, join_by_noise
from basis.priors.likelihood import FlowLikelihood, LikelihoodPrior, with_likelihood
from basis.priors.prior import Prior
from basis.priors.spectrum import Spectrum, measure_spectrum
from basis.priors.tiled import Tiled, large_enough

__all__ = [
    "LIKELY",
    "Autoguided",
    "Card",
    "DenoiserPrior",
    "Energies",
    "FlowLikelihood",
    "FunctionPrior",
    "GaussianMixture",
    "LikelihoodPrior",
    "Prior",
    "Spectrum",
    "Tiled",
    "join_by_noise",
    "large_enough",
    "measure_spectrum",
    "network_prior",
    "quantiles",
    "with_likelihood",
]
