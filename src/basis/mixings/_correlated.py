"""Means of Gaussians whose values move together, given what one small matrix shows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from basis._cosines import cosines, from_cosines, to_cosines
from basis.mixings._solving import conjugate_gradients

if TYPE_CHECKING:
    from basis.mixings.matrix import MatrixMixing

_ENOUGH = 1e-5  # relative residual to stop at, so small that no item shows where it stopped
_MOST = 8  # iterations, which leave a hundredth at most to the closed form for independent values


class Correlated:
    """The covariance S F^T L F S of sources, F the cosine transform over channels and sides.

    Args:
        mixing: What shows the sources.
        std: The diagonal of S, (batch, sources, channels, *size).
        frequencies: The diagonal of L, (sources, channels, *size), with a mean of one.
    """

    def __init__(self, mixing: MatrixMixing, std: Tensor, frequencies: Tensor) -> None:
        self.mixing, self.std, self.frequencies = mixing, std, frequencies.to(std)
        self._axes = std.ndim - 2

    def apply(self, x: Tensor) -> Tensor:
        """The covariance times x, (batch, sources, channels, *size)."""
        inside = self.frequencies * to_cosines(self.std * x, self._axes)
        return self.std * from_cosines(inside, self._axes)

    def colour(self, white: Tensor) -> Tensor:
        """White noise, (batch, sources, channels, *size), with this covariance."""
        return self.std * from_cosines(self.frequencies.sqrt() * white, self._axes)

    def given(self, x: Tensor, m: Tensor) -> Tensor:
        """The mean of the Gaussian about x given the observation m; shaped as x.

        By conjugate gradients, preconditioned by the matrix that each frequency is mixed by where
        all values are as sure as each other; what these leave is put where values are unsure.
        """
        mixing, variance = self.mixing, self.std.square()
        tau = mixing.noise

        def gram(z: Tensor) -> Tensor:
            return mixing(self.apply(mixing.adjoint(z))) + tau**2 * z

        solved = conjugate_gradients(
            gram,
            mixing.residual(x, m),
            self._preconditioner(x, variance),
            tolerance=_ENOUGH,
            most=_MOST,
        )
        moved = x + self.apply(mixing.adjoint(solved))
        return moved if tau else mixing.posterior_mean(moved, m, variance)

    def _preconditioner(self, x: Tensor, variance: Tensor) -> Preconditioner:
        mixing, channels = self.mixing, x.shape[2]
        # How each component of a source's channels shows: (observed, sources, components).
        columns = mixing.matrix.to(x).unflatten(1, (-1, channels)) @ cosines(channels, x).T
        flat = self.frequencies.flatten(2)
        each = torch.einsum("okc,kcf,pkc->fop", columns, flat, columns)
        plain = mixing.gram_diagonal(x, 1.0)
        scale = (mixing.gram_diagonal(x, variance) / plain).sqrt()
        return Preconditioner(torch.linalg.pinv(each, hermitian=True), scale)


class Preconditioner:
    """The inverse of a small matrix for every frequency, between divisions by scales.

    Args:
        inverse: (frequencies, observed channels, observed channels).
        scale: (batch, observed channels, *size).
    """

    def __init__(self, inverse: Tensor, scale: Tensor) -> None:
        self.inverse, self.scale = inverse, scale

    def __call__(self, r: Tensor) -> Tensor:
        axes = r.ndim - 2
        inside = to_cosines(r / self.scale, axes).flatten(2)
        inside = torch.einsum("fop,bpf->bof", self.inverse, inside)
        return from_cosines(inside.view(r.shape), axes) / self.scale
