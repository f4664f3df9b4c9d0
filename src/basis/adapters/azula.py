"""azula: a `Denoiser` as a prior, and with it the models of its plugins (EDM, ADM and others).

azula's x_t = alpha_t x + sigma_t n is ours divided by alpha_t, at noise level sigma_t / alpha_t;
the time of a noise level is found by bisection, because a schedule may be any decreasing
signal-to-noise ratio over [0, 1].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.priors.denoiser import DenoiserPrior
from basis.tensors import per_item

_HALVINGS = 60


class AzulaDenoiser(nn.Module):
    """An azula denoiser for signals in [0, 1].

    Args:
        denoiser: Has a `schedule` and answers (x_t, t) with a posterior that has a `mean`.
        model_range: Its values for 0 and 1.
        settings: Further keywords of its call, such as a label.
    """

    def __init__(
        self, denoiser: nn.Module, model_range: tuple[float, float], settings: dict[str, Any]
    ) -> None:
        super().__init__()
        self.denoiser, self.model_range, self.settings = denoiser, model_range, settings

    def time(self, level: Tensor) -> Tensor:
        """The time at which sigma_t / alpha_t is the level, (batch,) to (batch,), in float64."""
        low = torch.zeros(level.shape, dtype=torch.float64, device=level.device)
        high = torch.ones_like(low)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            alpha, sigma = self.denoiser.schedule(middle)  # type: ignore[operator]
            below = sigma / alpha < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (batch, channels, *size); sigma: (batch,). Returns the denoised signal."""
        black, scale = self.model_range[0], self.model_range[1] - self.model_range[0]
        time = self.time(scale * sigma.double()).to(x.dtype)
        if bool((time == time[0]).all()):
            time = time[0]  # every denoiser takes a single time; not all take one per image
        # The signal's scale at the time that is handed over, whatever rounding did to it.
        alpha, _ = self.denoiser.schedule(time)  # type: ignore[operator]
        own = (black + scale * x) * per_item(alpha, x)
        mean: Tensor = self.denoiser(own, time, **self.settings).mean
        return (mean - black) / scale


def from_azula(
    denoiser: Any,
    shape: tuple[int, ...],
    *,
    model_range: tuple[float, float] = (-1.0, 1.0),
    sigma_min: float | None = None,
    sigma_max: float | None = None,
    name: str = "azula",
    chunk: int = 64,
    **settings: Any,
) -> DenoiserPrior:
    """A prior from an azula `Denoiser`.

    Args:
        denoiser: The denoiser; its schedule gives the range of noise levels.
        shape: (channels, *size) of its signals.
        model_range: The model's values for 0 and 1.
        sigma_min, sigma_max: A narrower range of noise levels, for values in [0, 1].
        chunk: Most images per call.
        settings: Further keywords of its call, such as a label.
    """
    if not isinstance(denoiser, nn.Module) or not callable(getattr(denoiser, "schedule", None)):
        raise BasisError("from_azula needs an azula Denoiser: a module with a schedule")
    if not model_range[1] > model_range[0]:
        raise BasisError(f"model_range must be (low, high) with low < high, not {model_range}")
    alpha, sigma = denoiser.schedule(torch.tensor([0.0, 1.0], dtype=torch.float64))  # type: ignore[operator]
    low, high = (sigma / alpha / (model_range[1] - model_range[0])).tolist()
    module = AzulaDenoiser(denoiser, model_range, settings)
    return DenoiserPrior(
        module,
        shape,
        sigma_min or low,
        sigma_max or high,
        name=name,
        chunk=chunk,
    )
