"""Other methods of separation, measured beside the priors on the same mixtures.

A new one is one file and one row here.
"""

from collections.abc import Callable

from basis.baselines._average import Average
from basis.baselines._baseline import Baseline, FitOptions
from basis.baselines._conv_nmf import ConvNMF
from basis.baselines._gan import SD
from basis.baselines._nes import NES
from basis.baselines._nmf import NMF
from basis.baselines._regression import Regression

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

__all__ = [
    "BASELINES",
    "NES",
    "NMF",
    "SD",
    "Average",
    "Baseline",
    "ConvNMF",
    "FitOptions",
    "Regression",
]
