"""The interface of mixings: a linear map with an adjoint, a mask and observation noise."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from basis.errors import BasisError
from basis.tensors import Bound, clamp, per_item

if TYPE_CHECKING:
    from basis.mixings.conditioning import Correlated
    from basis.mixings.limited import Limited


def as_numbers(values: Any) -> Tensor:
    """Numbers as float64 on the CPU: from tensors, arrays of any strides, or lists of either."""
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float64)
    if isinstance(values, list | tuple):
        values = [
            as_numbers(v).tolist() if isinstance(v, Tensor | np.ndarray) else v for v in values
        ]
    return torch.from_numpy(np.array(values, dtype=np.float64))


def check_sources(x: Tensor, sources: int) -> None:
    """Refuses what are no sources to be mixed; whole numbers would wrap or be cut off silently."""
    if not isinstance(x, Tensor):
        raise BasisError(f"sources must be a tensor, not {type(x).__name__}")
    if not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        raise BasisError(f"sources must be floats, not {kind}: divide 8-bit pixels by 255")
    if x.ndim < 3 or x.shape[1] != sources:
        raise BasisError(f"sources must be (batch, {sources}, channels, ...), not {tuple(x.shape)}")


def as_alphas(alphas: Any) -> Tensor:
    """Weights as a float64 vector, checked."""
    try:
        weights = as_numbers(alphas)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BasisError(f"alphas must be a list of numbers, one per source: {error}") from error
    if weights.ndim != 1 or not len(weights) or not torch.isfinite(weights).all():
        raise BasisError("alphas must be a non-empty list of finite numbers, one per source")
    return weights


def _as_mask(mask: Any) -> Tensor:
    try:
        values = as_numbers(mask)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BasisError(
            "mask must be an array of zeros (not observed) and ones (observed), not "
            f"{type(mask).__name__}"
        ) from error
    if not ((values == 0) | (values == 1)).all():
        raise BasisError("mask must hold only zeros (not observed) and ones (observed)")
    return values


def by_diagonal(diagonal: Tensor) -> Callable[[Tensor], Tensor]:
    """The inverse of a map's diagonal, to precondition it by; zeros there are left out."""
    inverse = torch.where(diagonal > 0, 1 / diagonal.clamp_min(1e-30), 0.0)
    return lambda r: r * inverse


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    b: Tensor,
    precondition: Callable[[Tensor], Tensor] = lambda r: r,
    *,
    tolerance: float | None = None,
    most: int = 500,
) -> Tensor:
    """Solves apply(z) = b for a positive semi-definite map, each item of the batch for itself.

    Args:
        apply: The map, (batch, ...) to (batch, ...).
        b: The right-hand side, (batch, ...); of a singular map it must lie in its range.
        precondition: About the inverse of the map: `by_diagonal`, or a better one.
        tolerance: Relative size of the residual to stop at; what the precision allows by default.
        most: Most iterations.

    An item that has converged is not changed any more, so that no item depends on its batch.
    """
    if tolerance is None:
        tolerance = 1e-6 if b.dtype == torch.float32 else 1e-11

    def dot(a: Tensor, c: Tensor) -> Tensor:
        return (a.double() * c.double()).flatten(1).sum(dim=1)

    z, r = torch.zeros_like(b), b.clone()
    p = y = precondition(r)
    goal = tolerance**2 * dot(b, b)
    rho = dot(r, y)
    for _ in range(most):
        q = apply(p)
        curvature = dot(p, q)
        active = (dot(r, r) > goal) & (curvature > 0) & (rho > 0)
        if not active.any():
            break
        step = torch.where(active, rho / curvature.clamp_min(1e-300), 0.0)
        step = per_item(step.to(b.dtype), b)
        z = z + step * p
        r = r - step * q
        y = precondition(r)
        following = dot(r, y)
        ratio = torch.where(active, following / rho.clamp_min(1e-300), 0.0)
        p = y + per_item(ratio.to(b.dtype), b) * p
        rho = torch.where(active, following, rho)
    return z


Self = TypeVar("Self", bound="Mixing")
_KEEP: Any = object()

_PROBES = 32  # random signals that tell the diagonal of a map known only by what it does


class Mixing(ABC):
    """m = mask * (A x) + noise, with A linear in the k sources x.

    A subclass gives A as `forward`, its adjoint as `transpose` and the shape of what is observed.
    Everything that samplers need follows from these, by conjugate gradients where the subclass has
    no closed form of `posterior_mean`.

    Attributes:
        sources: The number of sources k.
        noise: Standard deviation tau of Gaussian noise on the observation; 0 for an exact one.
        mask: Ones where m was observed, zeros where not, or None; broadcasts to one observation.

    Shapes:
        x: (batch, sources, channels, *size), the sources.
        m: (batch, *observed_shape((channels, *size))), the observation.
    """

    def __init__(self, sources: int) -> None:
        self.sources = sources
        self.noise = 0.0
        self.mask: Tensor | None = None

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """A x, everywhere and without noise."""

    @abstractmethod
    def transpose(self, m: Tensor) -> Tensor:
        """A^T m, the adjoint of `forward`."""

    @abstractmethod
    def observed_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one observation of sources that have this shape; a misfit is refused."""

    def fit(self: Self, shape: tuple[int, ...]) -> Self:
        """The mixing for sources of this shape, (channels, *size), checked to take them."""
        observed = self.observed_shape(shape)
        if self.mask is not None:
            try:
                fits = torch.broadcast_shapes(self.mask.shape, observed) == observed
            except RuntimeError:
                fits = False
            if not fits:
                raise BasisError(
                    f"the mask has shape {tuple(self.mask.shape)}; it must fit what is observed, "
                    f"{observed}"
                )
        return self

    def select(self, index: Tensor | slice) -> Mixing:
        """The mixing of some items of a batch; the same where all items are mixed alike."""
        return self

    def output_range(
        self, low: float | None, high: float | None
    ) -> tuple[float | None, float | None]:
        """The least and the largest value that sources between low and high can make.

        None where there is no bound, or none is known.
        """
        return None, None

    @property
    def interchangeable(self) -> Tensor:
        """Which sources the mixing cannot tell from which: (sources, sources) of bool."""
        return torch.eye(self.sources, dtype=torch.bool)

    @property
    def plain_alphas(self) -> list[float] | None:
        """The alphas, where this is a plain sum of alpha_i x_i seen everywhere, else None."""
        return None

    def describe(self) -> dict[str, Any]:
        """What a run's record says of its mixing."""
        return {
            "kind": type(self).__name__,
            "sources": self.sources,
            "noise": self.noise,
            "masked": self.mask is not None,
        }

    def __repr__(self) -> str:
        noise = f", noise {self.noise:g}" if self.noise else ""
        mask = ", masked" if self.mask is not None else ""
        told = self.summary()
        many = f"{self.sources} source{'s' if self.sources != 1 else ''}"
        return f"{type(self).__name__}({many}{f', {told}' if told else ''}{noise}{mask})"

    def summary(self) -> str:
        """What tells this mixing from others of its kind, in a few words, for its repr."""
        return ""

    def replace(self: Self, *, mask: Any = _KEEP, noise: Any = _KEEP) -> Self:
        """The same mixing with another mask or another observation noise.

        Args:
            mask: Ones where m is observed and zeros where not, as a tensor or an array that
                broadcasts to one observation; None: observed everywhere.
            noise: Standard deviation of Gaussian noise on the observation; 0 for an exact one.
        """
        changes: dict[str, Any] = {}
        if mask is not _KEEP:
            changes["mask"] = None if mask is None else _as_mask(mask)
        if noise is not _KEEP:
            valid = isinstance(noise, int | float) and math.isfinite(noise) and noise >= 0
            if not valid or isinstance(noise, bool):
                raise BasisError(f"noise must be a number of at least 0, not {noise!r}")
            changes["noise"] = float(noise)
        return self._with(**changes)

    def clipped(self, low: float | None = None, high: float | None = 1.0) -> Limited:
        """The same mixing with its values cut off: a saturated one says `at least`, or `at most`.

        Args:
            low: The least value that could be written, where sums can be below it; None: none is.
                A sum of pictures with positive weights is never below 0, and its black is black.
            high: The largest value that could be written; None: none was cut off.
        """
        from basis.mixings.limited import Limited

        return Limited(self, low, high)

    def rounded(self, step: float = 1 / 255) -> Limited:
        """The same mixing with its values rounded to multiples of a step; 8 bits by default."""
        from basis.mixings.limited import Limited

        return Limited(self, step=step)

    @property
    def unlimited(self) -> Mixing:
        """The linear mixing below any limits; itself where there are none."""
        return self

    @property
    def limited(self) -> bool:
        """Whether values are cut off or rounded, so that m is not A x."""
        return False

    def __call__(self, x: Tensor) -> Tensor:
        """A x without noise, zero where masked: (batch, sources, channels, *size) to (batch,
        ...).
        """
        check_sources(x, self.sources)
        return self.observe(self.forward(x))

    def adjoint(self, m: Tensor) -> Tensor:
        """The adjoint of the mixing as it is observed: (batch, ...) to (batch, sources, ...)."""
        return self.transpose(self.observe(m))

    def observe(self, m: Tensor) -> Tensor:
        """m where it is observed, zero elsewhere."""
        if self.mask is None:
            return m
        try:
            return m * self.mask.to(m)
        except RuntimeError as error:
            raise BasisError(
                f"the mask has shape {tuple(self.mask.shape)}; it must fit what is observed, "
                f"{tuple(m.shape[1:])}"
            ) from error

    def residual(self, x: Tensor, m: Tensor) -> Tensor:
        """m - A x where observed, zero elsewhere."""
        return self.observe(m) - self(x)

    def likelihood_residual(self, x: Tensor, m: Tensor, std: float) -> Tensor:
        """std^2 times the gradient of log p(m | A x) along A x, for noise of this deviation.

        That is m - A x where m is known, and with limits E[m before them] - A x.
        """
        return self.residual(x, m)

    def gaussian_likelihood(
        self, x: Tensor, m: Tensor, std: Tensor | float
    ) -> tuple[Tensor, Tensor | float]:
        """An observation without limits, and the deviation of its noise, that say the same near x.

        log p(m | A x) under noise of this deviation has the gradient and the curvature there that a
        Gaussian observation of A x with these has. Without limits it is m and the noise itself.
        """
        return m, std

    def sample_unlimited(self, m: Tensor, mean: Tensor, std: Tensor, normal: Tensor) -> Tensor:
        """Draws what was observed before any limits, N(mean, std^2) given m, from normal draws."""
        return m

    def output_std(
        self, x: Tensor, variance: Tensor | float, noise: Tensor | float | None = None
    ) -> Tensor:
        """Standard deviation of each value of A x + noise for x of variance V; with limits only."""
        raise NotImplementedError

    def posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        variance: Tensor | float = 1.0,
        noise: Tensor | float | None = None,
    ) -> Tensor:
        """x + V A^T (A V A^T + tau^2)^-1 (m - A x): the mean of N(x, V) given the observation m.

        Args:
            x: Means, (batch, sources, channels, *size).
            m: The observation.
            variance: The diagonal V: a number, or a tensor that broadcasts to x.
            noise: tau, a number or a tensor that broadcasts to m; the mixing's own by default.
        """
        tau2 = (self.noise if noise is None else noise) ** 2

        def gram(z: Tensor) -> Tensor:
            return self(variance * self.adjoint(z)) + tau2 * z

        scale, residual = self.gram_diagonal(x, variance), self.residual(x, m)
        if scale is None:
            z = conjugate_gradients(gram, residual)
        else:
            z = conjugate_gradients(gram, residual, by_diagonal(self.observe(scale) + tau2))
        return x + variance * self.adjoint(z)

    def correlated(self, std: Tensor, frequencies: Tensor) -> Correlated | None:
        """A covariance of sources whose values move together, where the mixing can go by it.

        None where it cannot: it then takes values as independent (`posterior_mean`).

        Args:
            std: Standard deviations, (batch, sources, channels, *size).
            frequencies: Variance of each frequency where that of independent values is one,
                (sources, channels, *size).
        """
        return None

    def diagonal_posterior_mean(
        self,
        x: Tensor,
        m: Tensor,
        gram: Tensor,
        variance: Tensor | float,
        noise: Tensor | float | None,
    ) -> Tensor:
        """`posterior_mean` in closed form, for mixings whose A V A^T is diagonal.

        Args:
            x, m, variance, noise: As `posterior_mean` takes them.
            gram: The diagonal of A V A^T, in the shape of m.
        """
        tau2 = (self.noise if noise is None else noise) ** 2
        # Where nothing is observed the gram is zero and so is the residual.
        share = self.residual(x, m) / (gram + tau2).clamp_min(torch.finfo(x.dtype).tiny)
        return x + variance * self.adjoint(share)

    def gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor | None:
        """The diagonal of A V A^T where it is known, to speed up conjugate gradients."""
        return None

    def estimated_gram_diagonal(self, x: Tensor, variance: Tensor | float) -> Tensor:
        """The diagonal of A V A^T: known, or estimated from the images of random signs."""
        diagonal = self.gram_diagonal(x, variance)
        if diagonal is not None:
            return diagonal
        generator = torch.Generator().manual_seed(0)
        root = torch.as_tensor(variance).to(x).sqrt()
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for _ in range(_PROBES):
            signs = torch.randint(2, x.shape[1:], generator=generator) * 2 - 1
            total = total + self.forward((root * signs.to(x)).expand(x.shape)).square()
        return total / _PROBES

    def gain(self, x: Tensor) -> Tensor | float:
        """How strongly sources like x show in what is observed: 1 where they are simply added.

        The root-mean-square weight of a source in an observed value; a number where all items are
        mixed alike, else a tensor that broadcasts to the observation.
        """
        squares = self.estimated_gram_diagonal(x, 1.0)
        seen = self.observe(torch.ones_like(squares)).expand_as(self.observe(squares))
        axes = tuple(range(1, squares.ndim))
        mean = (seen * squares).sum(dim=axes, keepdim=True) / seen.sum(dim=axes, keepdim=True)
        gain = (mean / self.sources).sqrt()
        return gain if (gain != gain[:1]).any() else gain[:1].item()

    def project(self, x: Tensor, m: Tensor) -> Tensor:
        """The point nearest to x that reproduces m exactly (least squares where none does)."""
        return self.posterior_mean(x, m, noise=0.0)

    def project_box(
        self,
        x: Tensor,
        m: Tensor,
        low: Bound = 0.0,
        high: Bound = 1.0,
        *,
        tolerance: float = 1e-4,
        most: int = 100,
    ) -> Tensor:
        """A point near x between low and high that reproduces m, by alternating projections.

        Stops when every item's root-mean-square residual is below `tolerance` or after `most`
        rounds (an observation that no sources in the range can explain keeps a residual).

        Args:
            low, high: Bounds of the sources: numbers, tensors that broadcast to x, or None.
        """
        x = clamp(x, low, high)
        for _ in range(most):
            off = self.residual(x, m).flatten(1).square().mean(dim=1).sqrt() >= tolerance
            if not off.any():
                break
            # Items that are done stay as they are, so that no item depends on its batch.
            moved = clamp(self.project(x, m), low, high)
            x = torch.where(off.view(-1, *[1] * (x.ndim - 1)), moved, x)
        return x

    def _with(self: Self, **changes: Any) -> Self:
        other = copy.copy(self)
        for name, value in changes.items():
            setattr(other, name, value)
        return other
