"""Mixings: how the sources became what was observed.

Every mixing here is one small matrix applied at every pixel, from the stacked channels of the k sources to the
observed channels, with an optional mask and observation noise. The Gram matrix A A^T is as small as the number
of observed channels, so projections and Gaussian posteriors have closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from basis._errors import BasisError

__all__ = ["Mixing", "grey", "grey_mixture", "mixture", "mixtures"]


class Mixing:
    """m = mask * (A x) + noise, with A acting on the channels of all sources at each pixel alike.

    Args:
        matrix: A, of shape (observed channels, sources * channels).
        sources: The number of sources k.
        channels: The channels of each source.
        mask: Ones where m was observed, zeros where not; broadcasts to (observed channels, height, width).
        noise: Standard deviation tau of Gaussian noise on the observation; 0 means an exact one.
    """

    def __init__(
        self,
        matrix: Tensor | Sequence[Sequence[float]],
        sources: int,
        channels: int,
        *,
        mask: Tensor | None = None,
        noise: float = 0.0,
    ) -> None:
        self.matrix = torch.as_tensor(matrix, dtype=torch.float64).cpu()
        self.sources, self.channels = sources, channels
        self.mask = None if mask is None else torch.as_tensor(mask, dtype=torch.float64).cpu()
        self.noise = float(noise)
        if self.matrix.ndim != 2 or self.matrix.shape[1] != sources * channels:
            raise BasisError(
                f"a mixing matrix for {sources} sources of {channels} channels must have "
                f"{sources * channels} columns; this one has shape {tuple(self.matrix.shape)}"
            )
        if not torch.isfinite(self.matrix).all() or (self.matrix == 0).all(dim=1).any():
            raise BasisError(
                "mixing weights must be finite, and no observed channel may ignore all"
            )
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise BasisError(f"observation noise must be a number >= 0, not {noise}")
        if self.mask is not None and not ((self.mask == 0) | (self.mask == 1)).all():
            raise BasisError("a mask holds zeros (not observed) and ones (observed) only")

    @property
    def observed(self) -> int:
        """The number of observed channels."""
        return self.matrix.shape[0]

    @property
    def reach(self) -> tuple[float, float]:
        """The least and the largest value that sources in [0, 1] can make of any pixel."""
        return (
            self.matrix.clamp(max=0).sum(dim=1).min().item(),
            self.matrix.clamp(min=0).sum(dim=1).max().item(),
        )

    def masked(self, mask: Tensor) -> Mixing:
        """The same mixing, observed only where mask is one."""
        return Mixing(self.matrix, self.sources, self.channels, mask=mask, noise=self.noise)

    def noisy(self, noise: float) -> Mixing:
        """The same mixing with observation noise of this standard deviation."""
        return Mixing(self.matrix, self.sources, self.channels, mask=self.mask, noise=noise)

    def for_channels(self, channels: int) -> Mixing:
        """The same mixing of sources with so many channels: one of single channels mixes each channel for itself."""
        if channels == self.channels:
            return self
        if self.channels != 1:
            raise BasisError(
                f"the mixing is for sources of {self.channels} channels, and these have {channels}"
            )
        mask = self.mask
        if mask is not None and mask.ndim > 2 and mask.shape[-3] > 1:
            mask = mask.repeat_interleave(channels, dim=-3)
        matrix = torch.kron(self.matrix, torch.eye(channels, dtype=torch.float64))
        return Mixing(matrix, self.sources, channels, mask=mask, noise=self.noise)

    def __call__(self, x: Tensor) -> Tensor:
        """A x, without noise.

        Shapes:
            x: (..., sources, channels, height, width).
            returns: (..., observed, height, width); zero where masked.
        """
        if x.shape[-3] != self.channels:
            return self.for_channels(x.shape[-3])(x)
        return self._mask(torch.einsum("oc,...chw->...ohw", self._a(x), x.flatten(-4, -3)))

    def adjoint(self, m: Tensor) -> Tensor:
        """A^T m: (..., observed, height, width) to (..., sources, channels, height, width)."""
        back = torch.einsum("oc,...ohw->...chw", self._a(m), self._mask(m))
        return back.unflatten(-3, (self.sources, self.channels))

    def residual(self, x: Tensor, m: Tensor) -> Tensor:
        """m - A x where observed, zero elsewhere."""
        fit = self.for_channels(x.shape[-3])
        return fit._mask(m) - fit(x)

    def posterior_mean(
        self, x: Tensor, m: Tensor, variance: Tensor | float = 1.0, noise: float | None = None
    ) -> Tensor:
        """x + V A^T (A V A^T + tau^2)^-1 (m - A x): the mean of N(x, V) given the observation m.

        Args:
            x: Means, (..., sources, channels, height, width).
            m: The observation, (..., observed, height, width).
            variance: The diagonal V: a number, or a tensor that broadcasts to x.
            noise: tau; the mixing's own by default.
        """
        tau = self.noise if noise is None else noise
        a, r = self._a(x), self.residual(x, m)
        if self.observed == 1:
            weighted = self.adjoint(torch.ones_like(r)) * variance
            gram = self(weighted) + tau**2
            # Where nothing is observed the gram is zero and so is the residual.
            return x + weighted * (r / gram.clamp_min(torch.finfo(x.dtype).tiny)).unsqueeze(-3)
        if isinstance(variance, Tensor) or self.mask is not None:
            v = torch.as_tensor(variance, dtype=x.dtype, device=x.device).expand(x.shape)
            shape = (self.observed, *x.shape[-2:])
            mask = torch.ones(shape, dtype=x.dtype, device=x.device)
            mask = self._mask(mask).movedim(-3, -1)
            av = torch.einsum("oc,...chw->...hwoc", a, v.flatten(-4, -3))
            gram = torch.einsum("...oc,pc->...op", av, a) * mask[..., :, None] * mask[..., None, :]
        else:
            gram = (a * variance) @ a.T
        gram = gram + tau**2 * torch.eye(self.observed, dtype=x.dtype, device=x.device)
        solved = torch.linalg.pinv(gram, hermitian=True) @ r.movedim(-3, -1).unsqueeze(-1)
        back = self.adjoint(solved.squeeze(-1).movedim(-1, -3))
        return x + variance * back

    def project(self, x: Tensor, m: Tensor) -> Tensor:
        """The point nearest to x that reproduces m exactly (least squares where none does)."""
        return self.posterior_mean(x, m, noise=0.0)

    def project_box(self, x: Tensor, m: Tensor, tolerance: float = 1e-4, most: int = 100) -> Tensor:
        """A point near x inside [0, 1] that reproduces m, by alternating projections.

        Stops when every item's root-mean-square residual is below `tolerance` or after `most` rounds (an
        observation that no sources in [0, 1] can explain keeps a residual).
        """
        x = x.clamp(0, 1)
        for _ in range(most):
            off = self.residual(x, m).square().mean(dim=(-3, -2, -1)).sqrt() >= tolerance
            if not off.any():
                break
            # Items that are done stay as they are, so that no item depends on its batch.
            x = torch.where(off[..., None, None, None, None], self.project(x, m).clamp_(0, 1), x)
        return x

    def describe(self) -> dict[str, object]:
        """What a run's record says of its mixing."""
        return {
            "matrix": self.matrix.tolist(),
            "sources": self.sources,
            "channels": self.channels,
            "noise": self.noise,
            "masked": self.mask is not None,
        }

    def _a(self, like: Tensor) -> Tensor:
        return self.matrix.to(like)

    def _mask(self, m: Tensor) -> Tensor:
        return m if self.mask is None else m * self.mask.to(m)


def mixture(alphas: Sequence[float] = (1.0, 1.0), channels: int = 1) -> Mixing:
    """m = sum_i alpha_i x_i, each channel for itself; with one channel it fits sources of any number of them."""
    return mixtures([alphas], channels)


def mixtures(alphas: Sequence[Sequence[float]], channels: int = 1) -> Mixing:
    """Several mixtures of the same sources: one row of alphas each, stacked along the observed channels."""
    rows = torch.as_tensor(alphas, dtype=torch.float64)
    if rows.ndim != 2 or rows.numel() == 0:
        raise BasisError("alphas must be one non-empty list of numbers per mixture")
    return Mixing(rows, rows.shape[1], 1).for_channels(channels)


def grey(channels: int = 3) -> Mixing:
    """The channel mean of one image: what colourisation undoes."""
    return grey_mixture((1.0,), channels)


def grey_mixture(alphas: Sequence[float], channels: int = 3) -> Mixing:
    """The channel mean of a mixture of colour images."""
    row = torch.as_tensor(alphas, dtype=torch.float64)
    mean = torch.full((1, channels), 1 / channels, dtype=torch.float64)
    return Mixing(torch.kron(row[None], mean), len(row), channels)
