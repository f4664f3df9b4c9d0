"""Gaussian mixtures: priors in closed form, against which samplers are tested."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.priors.prior import Prior
from basis.tensors import as_sigmas


class GaussianMixture(Prior):
    """sum_j weight_j N(mean_j, covariance_j) over whole signals.

    Args:
        means: (components, channels, *size), of any rank.
        covariances: (components, d, d) over the d flattened values of a signal, or (components,)
            for isotropic variances.
        weights: (components,); equal by default. They are normalized.
        value_range: As for `Prior`; unbounded by default.
    """

    means: Tensor
    covariances: Tensor
    eigenvalues: Tensor
    basis: Tensor
    weights: Tensor

    def __init__(
        self,
        means: Tensor,
        covariances: Tensor,
        weights: Tensor | None = None,
        *,
        sigma_min: float = 1e-4,
        sigma_max: float = 1e4,
        value_range: tuple[float | None, float | None] | None = None,
        name: str = "gaussian mixture",
    ) -> None:
        means = torch.as_tensor(means)
        if means.ndim < 2 or not means.numel():
            raise BasisError("means must have shape (components, channels, *size)")
        if not means.is_floating_point():
            means = means.float()
        count, flat = len(means), means.flatten(1)
        d = flat.shape[1]
        covariances = torch.as_tensor(covariances, dtype=means.dtype)
        if covariances.shape == (count,):
            covariances = covariances[:, None, None] * torch.eye(d, dtype=means.dtype)
        if covariances.shape != (count, d, d):
            raise BasisError(f"covariances must have shape ({count},) or ({count}, {d}, {d})")
        # In its eigenbasis a covariance plus sigma^2 is diagonal, whatever sigma is.
        eigenvalues, basis = torch.linalg.eigh(covariances)
        if (eigenvalues < -1e-6).any():
            raise BasisError("covariances must be positive semi-definite")
        weights = torch.ones(count, dtype=means.dtype) if weights is None else weights.to(means)
        weights = weights / weights.sum()
        center, std = _moments(weights, flat, covariances)
        super().__init__(
            tuple(means.shape[1:]),
            sigma_min,
            sigma_max,
            name=name,
            value_range=value_range,
            center=center,
            std=std,
        )
        tensors = {
            "means": flat,
            "covariances": covariances,
            "eigenvalues": eigenvalues.clamp_min(0),
            "basis": basis,
            "weights": weights,
        }
        for key, tensor in tensors.items():
            self.register_buffer(key, tensor)

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        share, means, _ = self._posterior(x, sigma)
        return torch.einsum("bj,bjd->bd", share, means).view(x.shape).to(x)

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        share, means, variance = self._posterior(x, sigma)
        mean = torch.einsum("bj,bjd->bd", share, means)
        within = as_sigmas(sigma, variance).square()[:, None, None] * self.eigenvalues / variance
        within = torch.einsum("jde,bje->bjd", self.basis.square(), within)
        total = within + (means - mean[:, None]).square()
        second = torch.einsum("bj,bjd->bd", share, total)
        return mean.view(x.shape).to(x), second.view(x.shape).to(x)

    def _posterior(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
        """Per component: its share, its mean of the clean signal, and the variances of p_sigma."""
        variance, whitened = self._whiten(x.to(self.means), sigma)
        share = self._component_log_prob(variance, whitened).softmax(dim=1)
        kept = whitened * (self.eigenvalues / variance)
        return share, self.means + torch.einsum("jde,bje->bjd", self.basis, kept), variance

    def log_prob(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        whitened = self._whiten(x.to(self.means), sigma)
        return self._component_log_prob(*whitened).logsumexp(dim=1).to(x)

    def exact_samples(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Samples without noise, (count, channels, *size)."""
        pick = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        white = torch.randn(
            count, self.means.shape[1], dtype=self.means.dtype, generator=generator
        ).to(self.means)
        scaled = white * self.eigenvalues[pick].sqrt()
        flat = self.means[pick] + torch.einsum("bde,be->bd", self.basis[pick], scaled)
        return flat.view(count, *self.shape)

    def _whiten(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        """Variances of p_sigma and x - mean in each component's eigenbasis, both (batch,
        components, d).
        """
        variance = self.eigenvalues + as_sigmas(sigma, x).square()[:, None, None]
        centered = x.flatten(1)[:, None] - self.means
        return variance, torch.einsum("jde,bjd->bje", self.basis, centered)

    def _component_log_prob(self, variance: Tensor, whitened: Tensor) -> Tensor:
        inner = (whitened.square() / variance + variance.log() + math.log(2 * math.pi)).sum(dim=2)
        return self.weights.log() - inner / 2


def _moments(weights: Tensor, means: Tensor, covariances: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of a value, over all positions and components."""
    mean = torch.einsum("j,jd->d", weights, means)
    second = covariances.diagonal(dim1=1, dim2=2) + means.square()
    total = torch.einsum("j,jd->d", weights, second).mean() - mean.mean().square()
    return mean.mean().item(), max(total.item(), 1e-12) ** 0.5
