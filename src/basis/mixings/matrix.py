"""One small matrix, applied at every position, from the channels of all sources to the observation.

All problems of the paper are of this kind. A A^T has the size of the number of observed channels,
so that projections and Gaussian posteriors have closed forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.conditioning import Correlated
from basis.mixings.mixing import Bounds, Mixing, as_alphas, as_numbers, check_sources, linear_range

_SHOWN = 16  # alphas listed in a repr


class MatrixMixing(Mixing):
    """A mixing whose A acts on the channels of all sources, equally at every position.

    Args:
        matrix: A, of shape (observed channels, sources * channels).
        sources: The number of sources k.
        channels: The channels of each source. A matrix for one channel fits sources of any number
            of channels and mixes each channel separately.
    """

    def __init__(
        self, matrix: Tensor | Sequence[Sequence[float]], sources: int, channels: int
    ) -> None:
        super().__init__(sources)
        self.matrix = as_numbers(matrix)
        self.channels = channels
        if self.matrix.ndim != 2 or self.matrix.shape[1] != sources * channels:
            raise BasisError(
                f"a mixing matrix for {sources} sources of {channels} channels must have "
                f"{sources * channels} columns; this one has shape {tuple(self.matrix.shape)}"
            )
        if not torch.isfinite(self.matrix).all() or (self.matrix == 0).all(dim=1).any():
            raise BasisError("alphas must be finite, and not all zero for an observed channel")
        used = (self.matrix != 0).double()
        overlap = used @ used.T
        # If no two observed channels share a source's channel, A V A^T is diagonal.
        self.diagonal = bool(torch.equal(overlap, overlap.diagonal().diag()))

    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if shape[0] != self.channels and self.channels != 1:
            raise BasisError(
                f"the mixing takes sources of {self.channels} channels, not {shape[0]}"
            )
        times = shape[0] if self.channels == 1 else 1
        return (self.matrix.shape[0] * times, *shape[1:])

    def fit(self, shape: tuple[int, ...]) -> MatrixMixing:
        self.observed_shape(shape)  # raises for another number of channels
        return Mixing.fit(self._for_channels(shape[0]), shape)

    def _for_channels(self, channels: int) -> MatrixMixing:
        """The same mixing for sources of this number of channels, each mixed separately."""
        if channels == self.channels:
            return self
        matrix = torch.kron(self.matrix, torch.eye(channels, dtype=torch.float64))
        wider = MatrixMixing(matrix, self.sources, channels)
        mask = self.mask
        if mask is not None and mask.ndim > 1 and mask.shape[0] == self.matrix.shape[0] > 1:
            mask = mask.repeat_interleave(channels, dim=0)
        wider.mask, wider.noise = mask, self.noise
        return wider

    def __call__(self, x: Tensor) -> Tensor:
        check_sources(x, self.sources)
        if x.shape[2] != self.channels:
            return self.fit(tuple(x.shape[2:]))(x)
        return super().__call__(x)

    def residual(self, x: Tensor, m: Tensor) -> Tensor:
        if x.shape[2] != self.channels:
            return self.fit(tuple(x.shape[2:])).residual(x, m)
        return super().residual(x, m)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1, 2).flatten(2)
        mixed = torch.einsum("oc,bcn->bon", self.matrix.to(x), flat)
        return mixed.view(len(x), -1, *x.shape[3:])

    def transpose(self, m: Tensor) -> Tensor:
        if m.shape[1] != self.matrix.shape[0] and self.channels == 1:
            return self._for_channels(m.shape[1] // self.matrix.shape[0]).transpose(m)
        back = torch.einsum("oc,bon->bcn", self.matrix.to(m), m.flatten(2))
        return back.view(len(m), self.sources, self.channels, *m.shape[2:])

    def output_range(self, value_range: Bounds) -> Bounds:
        return linear_range(self.matrix, value_range)

    @property
    def interchangeable(self) -> Tensor:
        columns = self.matrix.unflatten(1, (self.sources, self.channels)).movedim(1, 0)
        return (columns[:, None] == columns).flatten(2).all(dim=2)

    @property
    def plain_alphas(self) -> list[float] | None:
        if self.matrix.shape[0] != self.channels or self.mask is not None:
            return None
        alphas = self.matrix[0, :: self.channels]
        eye = torch.eye(self.channels, dtype=alphas.dtype)
        plain = torch.equal(self.matrix, torch.kron(alphas[None], eye))
        return alphas.tolist() if plain else None

    def summary(self) -> str:
        alphas = self.replace(mask=None).plain_alphas
        if alphas is not None:
            return f"alphas {_listed(alphas)}"
        rows, columns = self.matrix.shape
        if self.channels == 1 and rows * columns <= _SHOWN:
            return f"alphas {'; '.join(_listed(row) for row in self.matrix.tolist())}"
        return f"{columns} channels to {rows}"

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"matrix": self.matrix.tolist(), "channels": self.channels}

    def posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        variance: Tensor | float = 1.0,
        noise: Tensor | float | None = None,
    ) -> Tensor:
        if x.shape[2] != self.channels:
            return self.fit(tuple(x.shape[2:])).posterior_mean(x, m, variance, noise)
        if self.diagonal and len(self.matrix) > 1:
            return super().posterior_mean(x, m, variance, noise)
        tau2 = (self.noise if noise is None else noise) ** 2
        r = self.residual(x, m)
        if self.diagonal:
            weighted = self.adjoint(torch.ones_like(r)) * variance
            gram = self(weighted) + tau2
            # Where nothing is observed the gram is zero and so is the residual.
            return x + weighted * (r / gram.clamp_min(torch.finfo(x.dtype).tiny)).unsqueeze(1)
        inverse = torch.linalg.pinv(self._gram(x, variance, tau2), hermitian=True)
        z = inverse @ r.flatten(2).movedim(1, 2).unsqueeze(-1)
        return x + variance * self.adjoint(z.squeeze(-1).movedim(2, 1).view(r.shape))

    def correlated(self, std: Tensor, frequencies: Tensor) -> Correlated | None:
        fits = self.mask is None and std.shape[2] == self.channels
        return Correlated(self, std, frequencies) if fits else None

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        if x.shape[2] != self.channels:
            return self._for_channels(x.shape[2]).gram_diagonal(x, variance)
        squared = self.matrix.square().to(x)
        if not isinstance(variance, Tensor) or variance.numel() == 1:
            diagonal = squared.sum(dim=1) * variance
            return diagonal.view(1, -1, *[1] * (x.ndim - 3))
        v = variance.expand(x.shape).flatten(1, 2).flatten(2)
        return torch.einsum("oc,bcn->bon", squared, v).view(len(x), -1, *x.shape[3:])

    def _gram(self, x: Tensor, variance: Tensor | float, tau2: Tensor | float) -> Tensor:
        """A V A^T + tau^2 at every position, (..., observed, observed)."""
        a = self.matrix.to(x)
        if isinstance(tau2, Tensor):
            each = tau2.to(x).expand(len(x), len(a), *x.shape[3:])
            eye = torch.diag_embed(each.flatten(2).movedim(1, 2))
        else:
            eye = tau2 * torch.eye(len(a), dtype=x.dtype, device=x.device)
        if not isinstance(variance, Tensor) and self.mask is None:
            return (a * variance) @ a.T + eye
        v = torch.as_tensor(variance, dtype=x.dtype, device=x.device).expand(x.shape)
        av = torch.einsum("oc,bcn->bnoc", a, v.flatten(1, 2).flatten(2))
        gram = torch.einsum("bnoc,pc->bnop", av, a)
        if self.mask is not None:
            ones = torch.ones(len(a), *x.shape[3:], dtype=x.dtype, device=x.device)
            seen = self.observe(ones).flatten(1).T
            gram = gram * seen[:, :, None] * seen[:, None, :]
        return gram + eye


def _listed(alphas: Sequence[float]) -> str:
    return " ".join(f"{a:g}" for a in alphas)


def mixture(alphas: Sequence[float] = (1.0, 1.0), channels: int = 1) -> MatrixMixing:
    """m = sum_i alpha_i x_i, each channel separately.

    Args:
        alphas: One per source.
        channels: The channels of each source; with 1 it fits sources of any number of channels.
    """
    return mixtures(as_alphas(alphas)[None], channels)


def mixtures(alphas: Sequence[Sequence[float]] | Tensor, channels: int = 1) -> MatrixMixing:
    """Several mixtures of the same sources, stacked along the channels of the observation.

    Args:
        alphas: (mixtures, sources).
        channels: The channels of each source. The observation has mixtures * channels channels.
    """
    try:
        matrix = as_numbers(alphas)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BasisError("alphas must be one list of numbers per mixture, equally long") from error
    if matrix.ndim != 2 or matrix.numel() == 0:
        raise BasisError("alphas must be one non-empty list of numbers per mixture")
    return MatrixMixing(matrix, matrix.shape[1], 1)._for_channels(channels)


def grey(alphas: Sequence[float] = (1.0,), channels: int = 3) -> MatrixMixing:
    """The channel mean of a mixture of color images, or of one image by default.

    Args:
        alphas: One per source.
        channels: The channels of each source.
    """
    row = as_alphas(alphas)
    mean = torch.full((1, channels), 1 / channels, dtype=torch.float64)
    return MatrixMixing(torch.kron(row[None], mean), len(row), channels)
