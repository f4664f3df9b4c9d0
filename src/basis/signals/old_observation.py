"""The previous interface of observations, until its last users have changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from basis.errors import BasisError
from basis.signals.arrays import as_floats, as_tensor, crop_and_resize, to_batch, to_channels
from basis.signals.numpy_files import NUMPY, load_arrays, pick
from basis.signals.observation import Observation, as_observation, read


@dataclass(frozen=True, eq=False)
class MixtureFile:
    """Observed mixtures with known sources and alphas."""

    mixture: Tensor
    sources: Tensor | None = None
    alphas: Tensor | None = None


def read_mixture(path: Any, *, dims: int | None = None, most: int | None = None) -> MixtureFile:
    """As `read`."""
    path = Path(path)
    options = {} if path.suffix.lower() in NUMPY else {"max_pixels": most}
    found = read(path, **options)
    if dims not in (None, 2) and found.batched is None:
        missing = dims + 2 - found.values.ndim
        if not 0 <= missing <= 2:
            raise BasisError(f"{path} contains an array of shape {tuple(found.values.shape)}")
        return MixtureFile(found.values[(None,) * missing], None, found.alphas)
    found = as_observation(found)
    return MixtureFile(found.values, found.sources, found.alphas)


def write_mixture(path: Any, mixture: MixtureFile) -> None:
    """As `Observation.save`."""
    m = mixture
    Observation(m.mixture, True, alphas=m.alphas, sources=m.sources).save(path)


def read_observation(given: Any, wanted: tuple[int, ...] | None = None, **options: Any) -> Tensor:
    """As `as_observation`."""
    if isinstance(given, MixtureFile):
        values = given.mixture
    else:
        values = as_observation(given, wanted).values
    return values if wanted is None else fit_observation(values, wanted, **options)


def fit_observation(
    m: Tensor,
    wanted: tuple[int, ...],
    *,
    convert: bool = False,
    invert: bool = False,
    resize: bool = False,
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Tensor:
    """As `read` with its conversions."""
    if m.ndim == 4 and m.shape[1] == 3 and wanted[0] == 1 and not convert:
        m = m[:, :1] if (m - m[:, :1]).abs().amax() <= 1e-6 else m
    if (convert or resize) and not (m.ndim == 4 and len(wanted) == 3):
        raise BasisError(f"convert and resize take pictures, not signals of shape {wanted}")
    if convert:
        m = to_channels(m, wanted[0])
    if resize and tuple(m.shape[2:]) != wanted[1:]:
        m = crop_and_resize(m, wanted[1], wanted[2])
    if invert:
        if low is None or high is None or m.min() < low - 1e-6 or m.max() > high + 1e-6:
            raise BasisError("invert takes values from 0 to 1")
        m = low + high - m
    return m


def read_image(path: Any, *, channels: int | None = None, most: int | None = None) -> Tensor:
    """One picture, (c, h, w)."""
    path = Path(path)
    if path.suffix.lower() in NUMPY:
        values = as_floats(as_tensor(pick(load_arrays(path), ("image",), path), path), path)
        values = to_batch(values, path)
    else:
        values = read(path, max_pixels=most).values[None]
    if len(values) != 1:
        raise BasisError(f"{path} contains {len(values)} images; one is needed here")
    return to_channels(values[0], channels)
