"""Score priors: a trained denoiser as a prior."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from basis.priors._base import Prior, as_sigmas


class DenoiserPrior(Prior):
    """A module that denoises images in [0, 1], as a prior.

    Args:
        module: Maps (x, sigma) to E[clean | noisy = x]; x is (batch, channels, height, width), sigma (batch,).
        shape: (channels, height, width).
        sigma_min, sigma_max: The range it was trained on.
        card: What is known of it (data, training, quality, licence), for records.
        chunk: Most images per call of the network; a larger batch is cut. A cache-sized chunk is faster than a
            large one on a CPU.

    It computes in its own precision and answers in that of its input.
    """

    def __init__(
        self,
        module: nn.Module,
        shape: tuple[int, int, int],
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "denoiser",
        card: dict[str, Any] | None = None,
        chunk: int = 256,
    ) -> None:
        self.module = module.eval().requires_grad_(False)
        if any(p.ndim == 4 for p in self.module.parameters()):
            self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.shape, self.sigma_min, self.sigma_max = shape, sigma_min, sigma_max
        self.name, self.card, self.chunk = name, card or {}, chunk

    def to(self, device: torch.device | str | None = None, dtype: Any = None) -> DenoiserPrior:
        self.module.to(device=device, dtype=dtype)
        return self

    @property
    def device(self) -> torch.device | None:
        p = next(self.module.parameters(), None)
        return None if p is None else p.device

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._apply(lambda x, s: (self.module(x, s),), x, sigma)[0]

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        if getattr(self.module, "head", None) is not None:
            mean, variance = self._apply(self.module.moments, x, sigma)  # type: ignore[arg-type]
            return mean, variance
        if not self._errors:
            return super().moments(x, sigma)
        # Without a head the error measured on held-out images is the next best thing.
        level = [interpolate(self._errors, s) * s**2 for s in as_sigmas(sigma, x).tolist()]
        variance = torch.tensor(level, dtype=x.dtype, device=x.device).view(-1, 1, 1, 1)
        return self.denoise(x, sigma), variance.expand(x.shape)

    @property
    def _errors(self) -> dict[float, float]:
        """Held-out squared error / sigma^2 by sigma, from the card."""
        errors = self.card.get("training", {}).get("held_out_error_over_sigma2", {})
        return {float(sigma): float(error) for sigma, error in errors.items()}

    def _apply(
        self, call: Callable[[Tensor, Tensor], Sequence[Tensor]], x: Tensor, sigma: Tensor | float
    ) -> list[Tensor]:
        """The network's answers in the precision of x, cut into chunks."""
        p = next(self.module.parameters(), x)
        own = x.to(p.dtype)
        s = as_sigmas(sigma, own)
        if len(x) <= self.chunk:
            return [out.to(x.dtype) for out in call(own, s)]
        pieces = zip(own.split(self.chunk), s.split(self.chunk), strict=True)
        answers = zip(*(call(*piece) for piece in pieces), strict=True)
        return [torch.cat(parts).to(x.dtype) for parts in answers]


def interpolate(curve: dict[float, float], sigma: float) -> float:
    """A positive curve over sigma, straight between its points on logarithmic axes and level beyond them."""
    known = sorted(curve)
    if not known[0] < sigma < known[-1]:
        return curve[min(known, key=lambda s: abs(math.log(s / sigma)))]
    above = next(i for i, s in enumerate(known) if s >= sigma)
    low, high = known[above - 1], known[above]
    share = math.log(sigma / low) / math.log(high / low)
    return curve[low] ** (1 - share) * curve[high] ** share
