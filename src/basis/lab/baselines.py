"""The baselines by name."""

from __future__ import annotations

from collections.abc import Callable

from basis.lab.baseline import Average, Baseline
from basis.lab.gan import SD
from basis.lab.nes import NES, Regression
from basis.lab.nmf import NMF, ConvNMF

BASELINES: dict[str, Callable[[], Baseline]] = {
    "average": Average,
    "nmf": NMF,
    "conv-nmf": ConvNMF,
    "s-d": SD,
    "nes": NES,
    "nes-supervised": lambda: NES(supervised=True),
    "regression": Regression,
}
"""Every baseline by the name that commands use."""
