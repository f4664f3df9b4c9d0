"""Source separation with deep generative priors.

A separation is a **prior** (what a source looks like), a **mixing** (how the sources became what
was observed) and a **sampler** (how the posterior is explored):

    prior = basis.load_prior("mnist")
    result = basis.separate(mixture, prior, alphas=(1.0, 1.0), effort="balanced", seed=0)
    result.sources  # (batch, 2, 1, 28, 28), in [0, 1]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from basis._errors import BasisError
from basis._version import __version__

if TYPE_CHECKING:
    from basis import (
        data,
        families,
        jobs,
        metrics,
        mixings,
        nn,
        priors,
        samplers,
        separation,
        store,
        training,
    )
    from basis.jobs import colorize_job, open_store, separate_job
    from basis.mixings import (
        Mixing,
        convolution,
        downsample,
        grey,
        grey_mixture,
        linear,
        mixture,
        mixtures,
    )
    from basis.priors import DenoiserPrior, GaussianMixture, Prior
    from basis.samplers import Sampler
    from basis.separation import (
        Plan,
        Progress,
        Ranking,
        Result,
        Round,
        colorize,
        sample,
        separate,
        separate_each,
    )
    from basis.store import list_priors, load_prior
    from basis.training import train

# Public names load where they are first used, so that `import basis` and `basis --help` answer at
# once. The names of `basis.mixings` are found there.
_HOMES = {
    "DenoiserPrior": "basis.priors",
    "GaussianMixture": "basis.priors",
    "Plan": "basis.separation",
    "Prior": "basis.priors",
    "Progress": "basis.separation",
    "Ranking": "basis.separation",
    "Result": "basis.separation",
    "Round": "basis.separation",
    "Sampler": "basis.samplers",
    "colorize": "basis.separation",
    "colorize_job": "basis.jobs",
    "list_priors": "basis.store",
    "load_prior": "basis.store",
    "open_store": "basis.jobs",
    "sample": "basis.separation",
    "separate": "basis.separation",
    "separate_each": "basis.separation",
    "separate_job": "basis.jobs",
    "train": "basis.training",
}
_ROOMS = (
    "data",
    "families",
    "jobs",
    "metrics",
    "mixings",
    "nn",
    "priors",
    "samplers",
    "separation",
    "store",
    "training",
)

__all__ = [
    "BasisError",
    "DenoiserPrior",
    "GaussianMixture",
    "Mixing",
    "Plan",
    "Prior",
    "Progress",
    "Ranking",
    "Result",
    "Round",
    "Sampler",
    "__version__",
    "colorize",
    "colorize_job",
    "convolution",
    "data",
    "downsample",
    "families",
    "grey",
    "grey_mixture",
    "jobs",
    "linear",
    "list_priors",
    "load_prior",
    "metrics",
    "mixings",
    "mixture",
    "mixtures",
    "nn",
    "open_store",
    "priors",
    "sample",
    "samplers",
    "separate",
    "separate_each",
    "separate_job",
    "separation",
    "store",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"basis.{name}")
    elif name.startswith("_"):
        raise AttributeError(f"module 'basis' has no attribute {name!r}")
    else:
        found = importlib.import_module("basis.mixings")
        if name not in found.__all__:
            raise AttributeError(f"module 'basis' has no attribute {name!r}")
        value = getattr(found, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
