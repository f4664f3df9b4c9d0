"""Each source convolved with its own impulse response, such as that of a room or a lens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from basis.errors import BasisError
from basis.mixings.mixing import Bounds, Mixing, as_numbers, linear_range

_DIRECT = 256  # kernels with more taps are applied by Fourier transforms


class Convolution(Mixing):
    """m = sum_i h_i * x_i, with the size of the sources, zero padding and separate channels.

    Args:
        kernels: h, (sources, *size), odd sizes; the middle of a kernel is zero delay.
    """

    def __init__(self, kernels: Tensor | np.ndarray) -> None:
        try:
            taps = as_numbers(kernels)
        except (TypeError, ValueError, RuntimeError) as error:
            raise BasisError(
                f"kernels must be an array (sources, *size), not {kernels!r:.60}"
            ) from error
        if not 2 <= taps.ndim <= 4 or not taps.numel():
            raise BasisError(
                f"kernels must be (sources, *size) with one to three dimensions of size, "
                f"not {tuple(taps.shape)}"
            )
        if any(side % 2 == 0 for side in taps.shape[1:]):
            raise BasisError(f"kernels must have odd sizes, not {tuple(taps.shape[1:])}")
        if not torch.isfinite(taps).all() or not taps.any():
            raise BasisError("kernels must be finite and not all zero")
        super().__init__(len(taps))
        self.kernels = taps

    def summary(self) -> str:
        return f"kernels of {'x'.join(map(str, self.kernels.shape[1:]))}"

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != self.kernels.ndim:
            raise BasisError(
                f"kernels of {self.kernels.ndim - 1} dimensions do not fit sources of shape {shape}"
            )
        return shape

    def forward(self, x: Tensor) -> Tensor:
        return self._convolve(x, self.kernels)

    def transpose(self, m: Tensor) -> Tensor:
        flat = m.flatten(0, 1).unsqueeze(1)
        kernels = self.kernels.to(m)
        if self._direct:
            back = _CONV[m.ndim - 2](flat, kernels.unsqueeze(1), padding=self._padding)
        else:
            back = self._by_fourier(flat, kernels.flip(*self._dims)[None])
        return back.unflatten(0, m.shape[:2]).movedim(1, 2)

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        v = torch.as_tensor(variance, dtype=x.dtype, device=x.device).expand(x.shape)
        return self._convolve(v, self.kernels.square()).clamp_min(0)

    def output_range(self, value_range: Bounds) -> Bounds:
        # At the border a part of the kernel covers the zeros outside.
        low, high = value_range
        padded = None if low is None else min(low, 0.0), None if high is None else max(high, 0.0)
        return linear_range(self.kernels.reshape(1, -1), padded)

    @property
    def interchangeable(self) -> Tensor:
        return (self.kernels[:, None] == self.kernels).flatten(2).all(dim=2)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"kernels": list(self.kernels.shape)}

    @property
    def _direct(self) -> bool:
        return self.kernels[0].numel() <= _DIRECT

    @property
    def _dims(self) -> list[int]:
        return list(range(1, self.kernels.ndim))

    @property
    def _padding(self) -> list[int]:
        return [side // 2 for side in self.kernels.shape[1:]]

    def _convolve(self, x: Tensor, kernels: Tensor) -> Tensor:
        """sum_i h_i * x_i: (batch, sources, channels, *size) to (batch, channels, *size)."""
        flat = x.movedim(1, 2).flatten(0, 1)
        kernels = kernels.to(x)
        if self._direct:
            flipped = kernels.flip(*self._dims)[None]
            out = _CONV[x.ndim - 3](flat, flipped, padding=self._padding)
        else:
            out = self._by_fourier(flat, kernels[None]).sum(dim=1, keepdim=True)
        return out.view(len(x), x.shape[2], *x.shape[3:])

    def _by_fourier(self, x: Tensor, kernels: Tensor) -> Tensor:
        """x * kernels, (batch, sources or 1, *size) each, cropped to the size of x."""
        size, dims = x.shape[2:], list(range(2, x.ndim))
        padded = [a + b - 1 for a, b in zip(size, kernels.shape[2:], strict=True)]
        product = torch.fft.rfftn(x, padded, dims) * torch.fft.rfftn(kernels, padded, dims)
        full = torch.fft.irfftn(product, padded, dims)
        for dim, (side, pad) in enumerate(zip(size, self._padding, strict=True), start=2):
            full = full.narrow(dim, pad, side)
        return full


_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def convolution(kernels: Tensor | np.ndarray) -> Convolution:
    """m = sum_i h_i * x_i: each source is convolved with its own impulse response.

    Args:
        kernels: (sources, *size): one kernel per source with odd sizes and as many dimensions as
            the signal without its channels. The output has the size of the sources; outside of them
            the signal is zero.
    """
    return Convolution(kernels)
