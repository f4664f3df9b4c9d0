"""Mixture files: what was observed and, where known, what it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from basis._errors import BasisError
from basis._files import whole_file
from basis.data._arrays import NUMPY, load_arrays, pick
from basis.data._pictures import read_image
from basis.data._pixels import CHANNELS, as_batch, as_floats


@dataclass(frozen=True, eq=False)
class MixtureFile:
    """Observed mixtures, with the sources and weights where they are known.

    Signals have any number of axes and any range of values. Sources may have other channels than
    the mixture (a grey mixture of colour images).
    """

    mixture: Tensor = field(repr=False)
    """float32 (n, c, *size)"""
    sources: Tensor | None = field(default=None, repr=False)
    """float32 (n, k, C, *size), or None"""
    alphas: Tensor | None = None
    """float32 (k,), or None"""

    def __repr__(self) -> str:
        count, *shape = self.mixture.shape
        alphas = "" if self.alphas is None else f", alphas {self.alphas.tolist()}"
        truth = "" if self.sources is None else f", with {self.sources.shape[1]} sources"
        return f"MixtureFile({count} of {'x'.join(map(str, shape))}{alphas}{truth})"

    def __post_init__(self) -> None:
        if not _is_float(self.mixture) or self.mixture.ndim < 3:
            raise BasisError("mixture must be a float tensor (n, c, *size) of at least 3 axes")
        axes = {"mixture": self.mixture.ndim, "sources": self.mixture.ndim + 1, "alphas": 1}
        for name, count in axes.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not _is_float(value) or value.ndim != count:
                raise BasisError(f"{name} must be a float tensor of {count} axes")
            if not value.isfinite().all():
                raise BasisError(f"{name} holds NaN or infinite values; finite ones are accepted")
        mixture, sources, alphas = self.mixture, self.sources, self.alphas
        if sources is not None and (
            sources.shape[0] != mixture.shape[0] or sources.shape[3:] != mixture.shape[2:]
        ):
            raise BasisError(
                f"sources of shape {tuple(sources.shape)} do not fit mixtures of shape "
                f"{tuple(mixture.shape)}; (n, k, C, *size) is accepted for (n, c, *size)"
            )
        if sources is not None and alphas is not None and len(alphas) != sources.shape[1]:
            raise BasisError(
                f"there are {len(alphas)} alphas and {sources.shape[1]} sources; "
                "one for each is needed"
            )


def read_array(path: str | Path, *, dims: int | None = None) -> Tensor:
    """The mixtures in an .npy, or in an .npz under `mixture`, as float32 (n, c, *size).

    Floats are as they are, of any range; uint8 is divided by 255.

    Args:
        path: The file.
        dims: The axes of a signal's size (`len(prior.shape) - 1`): 2 for pictures, 1 for sound.
            Without it the array's shape decides, as in `load_images`; pictures (n, c, h, w) may
            have any number of channels.
    """
    path = Path(path)
    _check_suffix(path, NUMPY)
    return _mixture(load_arrays(path), path, dims)


def read_mixture(
    path: str | Path, *, dims: int | None = None, most: int | None = None
) -> MixtureFile:
    """Mixtures from an image file (one of them), an .npy, or an .npz.

    An .npz may hold `mixture` with `sources` (n, k, C, *size) and `alphas` (k,), or one array of
    any name. `dims` is that of `read_array`, `most` that of `read_image`.
    """
    path = Path(path)
    if path.suffix.lower() not in NUMPY:
        return MixtureFile(read_image(path, most=most)[None])
    arrays = load_arrays(path)
    mixture = _mixture(arrays, path, dims)
    sources, alphas = (
        as_floats(arrays[key], path) if key in arrays else None for key in ("sources", "alphas")
    )
    try:
        return MixtureFile(mixture, sources, alphas)
    except BasisError as error:
        raise BasisError(f"{path}: {error}") from error


def write_mixture(path: str | Path, mixture: MixtureFile) -> None:
    """Writes mixtures, whole or not at all, as the path's ending says.

    An .npz keeps everything and is read back exactly; an .npy keeps the mixtures alone; a .png
    keeps one mixture with values in [0, 1], in 8 bits.
    """
    path = Path(path)
    _check_suffix(path, (".npz", ".npy", ".png"))
    if path.suffix.lower() == ".png":
        return _write_picture(path, mixture.mixture)
    if path.suffix.lower() == ".npy":
        with whole_file(path) as temporary, open(temporary, "wb") as file:
            np.save(file, mixture.mixture.detach().to("cpu", torch.float32).numpy())
        return None
    arrays = {
        name: value.detach().to("cpu", torch.float32).numpy()
        for name in ("mixture", "sources", "alphas")
        if (value := getattr(mixture, name)) is not None
    }
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)
    return None


def _write_picture(path: Path, mixtures: Tensor) -> None:
    from PIL import Image

    if mixtures.ndim != 4 or len(mixtures) != 1 or mixtures.shape[1] not in CHANNELS:
        raise BasisError(f"{path}: a picture holds one grey or colour mixture; use .npz for others")
    low, high = mixtures.min().item(), mixtures.max().item()
    if low < 0 or high > 1 + 1e-6:
        raise BasisError(
            f"{path}: a picture holds values from 0 to 1, this mixture has {low:.2f} to "
            f"{high:.2f}; use .npz, or alphas of 0 and more that sum to at most 1"
        )
    pixels = (mixtures[0] * 255).round().to("cpu", torch.uint8).movedim(0, -1).squeeze(-1)
    with whole_file(path) as temporary:
        Image.fromarray(pixels.contiguous().numpy()).save(temporary)


def _mixture(arrays: dict[str, np.ndarray], path: Path, dims: int | None) -> Tensor:
    array = pick(arrays, ("mixture",), path)
    if "sources" in arrays and arrays["sources"].ndim == array.ndim + 1:
        return as_floats(array, path)  # one axis more for the sources: the axes are (n, c, *size)
    return as_floats(as_batch(array, path, dims=dims, any_channels=True), path)


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _check_suffix(path: Path, accepted: tuple[str, ...]) -> None:
    if path.suffix.lower() not in accepted:
        raise BasisError(f"{path} must end in {' or '.join(accepted)}")
