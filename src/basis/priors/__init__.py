"""Priors: what a source looks like."""

from basis.priors._card import Card
from basis.priors._denoiser import DenoiserPrior
from basis.priors._energies import LIKELY, Energies, quantiles
from basis.priors._flow_likelihood import FlowLikelihood, with_likelihood
from basis.priors._functions import FunctionPrior, from_denoiser, from_log_prob, from_score
from basis.priors._gaussian import GaussianMixture
from basis.priors._guided import Guided, led_away
from basis.priors._joined import join_by_noise
from basis.priors._likelihood import Ladder, LikelihoodPrior
from basis.priors._measured_spectrum import measure_spectrum
from basis.priors._prior import Prior
from basis.priors._spectrum import Spectrum
from basis.priors._tiled import Tiled, large_enough

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
