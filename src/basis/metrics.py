"""How good a separation is, by the protocol of the paper's tables.

PSNR is taken on [0, 1] after clamping, per component 10 log10(1 / mse), averaged over components under the best
permutation of each mixture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "Summary",
    "match",
    "psnr",
    "psnr_matrix",
    "reorder",
    "residual_steps",
    "rms",
    "ssim",
    "summarise",
]

_FLOOR = 1e-10  # a mean squared error that counts as none: PSNR is capped at 100 dB


def psnr_matrix(estimate: Tensor, truth: Tensor) -> Tensor:
    """PSNR of every estimated component against every true one.

    Shapes:
        estimate, truth: (batch, k, channels, height, width).
        returns: (batch, k estimated, k true).
    """
    e, t = estimate.clamp(0, 1).flatten(2), truth.clamp(0, 1).flatten(2)
    mse = (e[:, :, None] - t[:, None]).square().mean(dim=-1)
    return -10 * mse.clamp_min(_FLOOR).log10()


def match(scores: Tensor) -> Tensor:
    """The permutation with the largest total score for each item.

    Shapes:
        scores: (batch, k, k), rows are estimates and columns are truths.
        returns: (batch, k): the row that belongs to each column.
    """
    from scipy.optimize import linear_sum_assignment

    rows = []
    for item in scores.detach().cpu().double().numpy():
        row, column = linear_sum_assignment(item, maximize=True)
        rows.append(torch.as_tensor(row[column.argsort()]))
    return torch.stack(rows).to(scores.device)


def reorder(estimate: Tensor, truth: Tensor) -> Tensor:
    """The estimated components in the order of the true ones."""
    order = match(psnr_matrix(estimate, truth))
    return torch.stack([e[o] for e, o in zip(estimate, order, strict=True)])


def psnr(estimate: Tensor, truth: Tensor) -> Tensor:
    """PSNR per mixture in dB under the best permutation: (batch,)."""
    scores = psnr_matrix(estimate, truth)
    return scores.gather(1, match(scores)[:, None]).mean(dim=(1, 2))


def ssim(estimate: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity per mixture, the mean over components in the order that PSNR matches: (batch,).

    Wang et al. 2004: a Gaussian window of 11 pixels and deviation 1.5, on [0, 1] after clamping, without the border
    where the window does not fit.
    """
    e, t = (x.clamp(0, 1).flatten(0, 1).double() for x in (reorder(estimate, truth), truth))
    at = torch.arange(11, dtype=torch.float64, device=e.device) - 5
    line = (-at.square() / (2 * 1.5**2)).exp()
    line = line / line.sum()
    channels = e.shape[1]
    window = (line[:, None] * line).expand(channels, 1, 11, 11)

    def blur(x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x, window, groups=channels)

    mean_e, mean_t = blur(e), blur(t)
    var_e, var_t = blur(e * e) - mean_e**2, blur(t * t) - mean_t**2
    both = blur(e * t) - mean_e * mean_t
    c1, c2 = 0.01**2, 0.03**2
    similar = (2 * mean_e * mean_t + c1) * (2 * both + c2)
    similar = similar / ((mean_e**2 + mean_t**2 + c1) * (var_e + var_t + c2))
    return similar.flatten(1).mean(dim=1).view(truth.shape[:2]).mean(dim=1).to(truth.dtype)


def residual_steps(residual: Tensor) -> Tensor:
    """A root mean square of m - A x in 8-bit steps: below 1 a mixture is reproduced as exactly as it was stored."""
    return 255 * residual


def rms(x: Tensor) -> Tensor:
    """Root mean square over all but the first dimension: (batch,)."""
    return x.flatten(1).square().mean(dim=1).sqrt()


@dataclass(frozen=True)
class Summary:
    """Mean, median and standard error of the mean over `count` items."""

    mean: float
    median: float
    stderr: float
    count: int

    def __str__(self) -> str:
        error = f" ± {self.stderr:.2f}" if self.count > 1 else ""
        return f"{self.mean:.2f}{error} (median {self.median:.2f}, n={self.count})"


def summarise(values: Tensor) -> Summary:
    """What a table shows of one value per item."""
    v = values.detach().double().flatten()
    spread = v.std().item() if len(v) > 1 else math.nan
    return Summary(v.mean().item(), v.quantile(0.5).item(), spread / math.sqrt(len(v)), len(v))
