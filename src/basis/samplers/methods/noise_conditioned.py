"""The paper's ablation of its noise: annealed ascent to a mode instead of sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from basis.samplers.methods.basis import Basis


@dataclass(frozen=True)
class NoiseConditioned(Basis):
    """Annealed ascent: BASIS with its noise left out ("noise conditioning" only).

    It does not sample the posterior; it is here to show what the noise of BASIS is for.
    """

    name: ClassVar[str] = "noise-conditioned"

    temperature: float = 0.0
    """scales the injected noise; 0 turns sampling into annealed ascent"""
