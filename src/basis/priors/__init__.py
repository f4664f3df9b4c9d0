"""Priors: what a source looks like."""

from __future__ import annotations

from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import FlowLikelihood
from basis.priors.prior import Prior
from basis.priors.spectrum import Spectrum
from basis.priors.tiled import Tiled

__all__ = [
    "FlowLikelihood",
    "GaussianMixture",
    "Prior",
    "Spectrum",
    "Tiled",
]
