"""The names that a separation is asked for by, without torch: a command line lists them at once."""

from __future__ import annotations

from typing import Literal, get_args

Choice = Literal["first", "energy", "likelihood", "both", "mean", "draw"]
"""How several samples become one answer."""
CHOICES: tuple[Choice, ...] = get_args(Choice)
"""Ways to make one answer of several samples."""

Effort = Literal["fast", "balanced", "best"]
"""The names of efforts."""
EFFORTS: dict[str, int] = dict(zip(get_args(Effort), (100, 300, 1000), strict=True))
"""Named efforts, in network calls per source."""
DEFAULT_EFFORT: Effort = "balanced"
"""The effort where neither an effort nor a sampler is given."""

SamplerName = Literal[
    "ancestral",
    "ascent",
    "basis",
    "dirac",
    "gibbs",
    "greedy",
    "langevin",
    "noise-conditioned",
    "posterior-ode",
    "posterior-sde",
]
"""The samplers of the package, for type checkers: those of `basis.samplers.SAMPLERS`."""
