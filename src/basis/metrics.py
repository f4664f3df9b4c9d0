"""Quality of separations: PSNR, SNR, SI-SDR and SSIM against the true sources.

Sources and estimates are (batch, k, channels, *size) with any size. Scores are averaged over the k
components; with `permute=True` each mixture is scored under the permutation that is best for it,
for sources of one prior, whose order is arbitrary. PSNR follows the protocol of the paper's tables:
10 log10(1 / mse) on [0, 1] after clamping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.tensors import clamp

__all__ = [
    "best_permutation",
    "psnr",
    "reorder",
    "rms",
    "si_sdr",
    "snr",
    "ssim",
    "summarize",
]

_FLOOR = 1e-10  # the smallest ratio of powers: decibels are between -100 and 100
_WINDOW = 11  # side of the Gaussian window of SSIM


def squared_distances(estimate: Tensor, truth: Tensor) -> Tensor:
    """Mean squared difference of every estimated component from every true one.

    Shapes:
        estimate, truth: (batch, k, channels, *size).
        returns: (batch, k estimated, k true).
    """
    _check_shapes(estimate, truth)
    e, t = estimate.flatten(2), truth.flatten(2)
    return (e[:, :, None] - t[:, None]).square().mean(dim=-1)


def psnr_matrix(
    estimate: Tensor,
    truth: Tensor,
    value_range: tuple[float | None, float | None] | None = (0.0, 1.0),
    *,
    peak: float | None = None,
) -> Tensor:
    """PSNR of every estimated component against every true one: 10 log10(peak^2 / mse).

    Args:
        estimate, truth: (batch, k, channels, *size).
        value_range: The bounds to which both are clamped; None for no bound.
        peak: The largest possible difference of two values; the width of the range by default.

    Returns:
        (batch, k estimated, k true), in dB, at most 100.
    """
    low, high = value_range or (None, None)
    if peak is None:
        if low is None or high is None:
            raise BasisError("the PSNR of unbounded signals needs peak=")
        peak = high - low
    if not (math.isfinite(peak) and peak > 0):
        raise BasisError(f"peak must be a number above 0, not {peak:g}")
    _check_shapes(estimate, truth)
    mse = squared_distances(clamp(estimate, low, high), clamp(truth, low, high)) / peak**2
    return -10 * mse.clamp_min(_FLOOR).log10()


def best_permutation(scores: Tensor) -> Tensor:
    """The permutation with the largest total score for each item.

    With `-squared_distances(estimate, truth)` as scores, components are matched by distance.

    Shapes:
        scores: (batch, k, k), rows are estimates and columns are truths.
        returns: (batch, k): the row that belongs to each column.
    """
    from scipy.optimize import linear_sum_assignment

    rows = []
    # Scores that are not finite are replaced, so that they do not affect other items.
    finite = scores.detach().cpu().double().nan_to_num(nan=-1e30, posinf=1e30, neginf=-1e30)
    for item in finite.numpy():
        row, column = linear_sum_assignment(item, maximize=True)
        rows.append(torch.as_tensor(row[column.argsort()]))
    return torch.stack(rows).to(scores.device)


def reorder(estimate: Tensor, truth: Tensor) -> Tensor:
    """The estimated components in the order of the true ones, matched by squared distance.

    Shapes:
        estimate, truth and the result: (batch, k, channels, *size).
    """
    return _in_order(estimate, best_permutation(-squared_distances(estimate, truth)))


def psnr(
    estimate: Tensor,
    truth: Tensor,
    value_range: tuple[float | None, float | None] | None = (0.0, 1.0),
    *,
    peak: float | None = None,
    permute: bool = False,
) -> Tensor:
    """PSNR per mixture in dB, (batch,); the arguments are those of `psnr_matrix`."""
    return _mean(psnr_matrix(estimate, truth, value_range, peak=peak), permute)


def snr(estimate: Tensor, truth: Tensor, *, permute: bool = False) -> Tensor:
    """Signal-to-noise ratio per mixture in dB, (batch,): 10 log10(|t|^2 / |e - t|^2)."""
    e, t = _pairs(estimate, truth)
    return _mean(_decibels(t.square().sum(dim=-1), (e - t).square().sum(dim=-1)), permute)


def si_sdr(estimate: Tensor, truth: Tensor, *, permute: bool = False) -> Tensor:
    """Scale-invariant signal-to-distortion ratio per mixture in dB, (batch,).

    Le Roux et al. 2019 (arXiv:1811.02508): 10 log10(|a t|^2 / |a t - e|^2) with
    a = <e, t> / |t|^2. Means are not removed first.
    """
    e, t = _pairs(estimate, truth)
    power = t.square().sum(dim=-1, keepdim=True)
    scaled = (e * t).sum(dim=-1, keepdim=True) / power.clamp_min(torch.finfo(t.dtype).tiny) * t
    scores = _decibels(scaled.square().sum(dim=-1), (scaled - e).square().sum(dim=-1))
    return _mean(scores, permute)


def ssim(estimate: Tensor, truth: Tensor, *, permute: bool = False) -> Tensor:
    """Structural similarity per mixture, (batch,), on [0, 1] after clamping.

    Wang et al. 2004: a Gaussian window of 11 pixels and standard deviation 1.5, without the border
    where the window does not fit. The best permutation is that of the PSNR.

    Shapes:
        estimate, truth: (batch, k, channels, height, width), sides of at least 11.
    """
    if truth.ndim != 5 or min(truth.shape[-2:]) < _WINDOW:
        raise BasisError(
            f"SSIM needs pictures (batch, k, channels, height, width) with sides of at least "
            f"{_WINDOW}, not {tuple(truth.shape)}"
        )
    try:
        # Imported here because it takes as long as torch.
        from torchmetrics.functional.image import structural_similarity_index_measure
    except ImportError as error:
        raise BasisError("SSIM needs a package: pip install 'basis-separation[metrics]'") from error
    if permute:
        estimate = _in_order(estimate, best_permutation(psnr_matrix(estimate, truth)))
    e, t = (x.clamp(0, 1).flatten(0, 1).double() for x in (estimate, truth))
    _, full = structural_similarity_index_measure(
        e, t, sigma=1.5, kernel_size=_WINDOW, data_range=1.0, return_full_image=True
    )
    # The library mirrors pixels at the border, which Wang et al. leave out.
    edge = _WINDOW // 2
    inner = full[..., edge : full.shape[-2] - edge, edge : full.shape[-1] - edge]
    return inner.flatten(1).mean(dim=1).view(truth.shape[:2]).mean(dim=1).to(truth.dtype)


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


def summarize(values: Tensor) -> Summary:
    """Mean, median and standard error of one value per item, (n,)."""
    v = values.detach().double().flatten()
    std = v.std().item() if len(v) > 1 else math.nan
    return Summary(v.mean().item(), v.quantile(0.5).item(), std / math.sqrt(len(v)), len(v))


def _check_shapes(estimate: Tensor, truth: Tensor) -> None:
    for value in (estimate, truth):
        if not isinstance(value, Tensor):
            raise BasisError(f"estimate and truth must be tensors, not {type(value).__name__}")
    if estimate.shape != truth.shape or truth.ndim < 3:
        raise BasisError(
            f"estimate and truth must have the same shape (batch, k, channels, *size), "
            f"not {tuple(estimate.shape)} and {tuple(truth.shape)}"
        )


def _in_order(estimate: Tensor, order: Tensor) -> Tensor:
    return torch.stack([e[o] for e, o in zip(estimate, order, strict=True)])


def _pairs(estimate: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Both flattened, (batch, k, 1, n) and (batch, 1, k, n), so that all pairs broadcast."""
    _check_shapes(estimate, truth)
    return estimate.flatten(2)[:, :, None], truth.flatten(2)[:, None]


def _mean(scores: Tensor, permute: bool) -> Tensor:
    """(batch, k, k) to the mean score over components in order or best permuted, (batch,)."""
    if permute:
        return scores.gather(1, best_permutation(scores)[:, None]).mean(dim=(1, 2))
    return scores.diagonal(dim1=1, dim2=2).mean(dim=1)


def _decibels(signal: Tensor, noise: Tensor) -> Tensor:
    """10 log10 of a ratio of powers, from -100 to 100; 0 / 0 is -100."""
    floor = torch.finfo(signal.dtype).tiny
    ratio = signal / noise.clamp_min(floor)
    return 10 * ratio.clamp(_FLOOR, 1 / _FLOOR).log10()
