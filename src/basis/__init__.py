"""Source separation with deep generative priors.

A separation combines a **prior** (what a source looks like), a **mixing** (how the sources became
the observation) and a **sampler** (how the posterior is explored):

    result = basis.separate("two.png", "mnist")
    result.sources  # (batch, 2, 1, 28, 28), in the prior's value range
    print(result)
    result.save("separated/")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from basis._version import __version__
from basis.errors import BasisError

if TYPE_CHECKING:
    from basis import (
        adapters,
        jobs,
        lab,
        metrics,
        mixings,
        nn,
        plots,
        priors,
        samplers,
        search,
        signals,
        store,
        training,
    )
    from basis._check import check
    from basis._colorize import colorize
    from basis._mix import mix, test_mixtures
    from basis._sample import sample
    from basis._separate import separate
    from basis.jobs import colorize_job, open_store, separate_job
    from basis.mixings import (
        Mixing,
        convolution,
        downsample,
        grey,
        linear,
        mixture,
        mixtures,
    )
    from basis.priors import GaussianMixture, Prior
    from basis.progress import Progress
    from basis.result import Result
    from basis.samplers import Sampler
    from basis.search import Mode, Plan, Ranking, Round
    from basis.signals import Observation, read
    from basis.store import list_priors
    from basis.training import train

# Names are imported at first use, so that `import basis` and `basis --help` do not wait for torch.
_MODULES = {
    "GaussianMixture": "priors",
    "Mixing": "mixings",
    "Mode": "search",
    "Observation": "signals",
    "Plan": "search",
    "Prior": "priors",
    "Progress": "progress",
    "Ranking": "search",
    "Result": "result",
    "Round": "search",
    "Sampler": "samplers",
    "check": "_check",
    "colorize": "_colorize",
    "colorize_job": "jobs",
    "convolution": "mixings",
    "downsample": "mixings",
    "grey": "mixings",
    "linear": "mixings",
    "list_priors": "store",
    "mix": "_mix",
    "mixture": "mixings",
    "mixtures": "mixings",
    "open_store": "jobs",
    "read": "signals",
    "sample": "_sample",
    "separate": "_separate",
    "separate_job": "jobs",
    "test_mixtures": "_mix",
    "train": "training",
}
_SUBPACKAGES = (
    "adapters",
    "jobs",
    "lab",
    "metrics",
    "mixings",
    "nn",
    "plots",
    "priors",
    "samplers",
    "search",
    "signals",
    "store",
    "training",
)

__all__ = [
    "BasisError",
    "GaussianMixture",
    "Mixing",
    "Mode",
    "Observation",
    "Plan",
    "Prior",
    "Progress",
    "Ranking",
    "Result",
    "Round",
    "Sampler",
    "__version__",
    "adapters",
    "check",
    "colorize",
    "colorize_job",
    "convolution",
    "downsample",
    "grey",
    "jobs",
    "lab",
    "linear",
    "list_priors",
    "metrics",
    "mix",
    "mixings",
    "mixture",
    "mixtures",
    "nn",
    "open_store",
    "plots",
    "priors",
    "read",
    "sample",
    "samplers",
    "search",
    "separate",
    "separate_job",
    "signals",
    "store",
    "test_mixtures",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"basis.{_MODULES[name]}"), name)
    elif name in _SUBPACKAGES:
        value = importlib.import_module(f"basis.{name}")
    else:
        raise AttributeError(f"module 'basis' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
