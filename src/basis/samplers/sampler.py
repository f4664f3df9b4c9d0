"""The interface of samplers, a loop that yields states, and the steps that they share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.samplers.problem import Problem
from basis.settings import check_settings, setting

MOST = 1_000_000
"""The largest number of steps, levels or restarts."""

_LEAST_VARIANCE = 1e-8  # in squared standard deviations of the prior
_TOLERANCE = 1 / 3000  # residual of an exact observation, in standard deviations of the prior


@dataclass(frozen=True)
class State:
    """The state of a sampler after a step.

    Attributes:
        x: The sources so far, (batch, sources, channels, *size).
        sigma: The noise level of x.
        step: Steps done.
        steps: Steps of the whole run.
        level_done: Whether this was the last step at its noise level.
    """

    x: Tensor
    sigma: float
    step: int
    steps: int
    level_done: bool


@dataclass(frozen=True)
class Sampler(ABC):
    """Explores the posterior of a problem.

    A subclass is a frozen dataclass whose fields are its settings, each made by
    `basis.settings.setting`. Their texts give default noise levels in std: standard deviations of
    the values of the prior. A likelihood weight w means a Gaussian likelihood with
    gamma^2 = gain^2 sigma^2 / w plus the variance of the observation noise, with the gain of the
    mixing (`Mixing.gain`).
    """

    name: ClassVar[str]

    steps: int = setting(1, "number of steps", at_least=1, at_most=MOST)

    def __post_init__(self) -> None:
        check_settings(self)

    @abstractmethod
    def run(self, problem: Problem) -> Iterator[State]:
        """Yields a state after every step; the last state is the sample."""

    def resume(self, problem: Problem, clean: Tensor, sigma: float) -> Iterator[State]:
        """Like `run`, from clean sources (batch, sources, channels, *size) noised to sigma."""
        raise BasisError(f"sampler {self.name!r} cannot start from an earlier result; use gibbs")

    @property
    def total_steps(self) -> int:
        """The number of steps of a run."""
        return self.steps

    @property
    def evaluations(self) -> int:
        """Network evaluations per source of a run."""
        return self.total_steps

    def settings(self) -> dict[str, Any]:
        """Name and settings, as the record of a run stores them."""
        return {"name": self.name, **asdict(self)}


def check_finite(x: Tensor) -> None:
    """Raises if a state, of any shape, has diverged."""
    if not torch.isfinite(x).all():
        raise BasisError(
            "the dynamics diverged: the prior returned ever larger values; `basis check` tests it"
        )


def geometric(first: float, last: float, count: int, power: float = 1.0) -> list[float]:
    """`count` numbers in geometric progression from first to last, both included.

    A power of more than 1 puts them closer together near the first and farther apart near the last.
    """
    if count == 1:
        return [last]
    return [first * (last / first) ** ((i / (count - 1)) ** power) for i in range(count)]


# Steps.


def initial_guess(problem: Problem) -> Tensor:
    """The priors' typical values projected onto the observation, (batch, k, channels, *size)."""
    return problem.mixing.project(problem.center(), problem.observation)


def clamp_variance(variance: Tensor, std: float) -> Tensor:
    """A variance, of any shape, that is at least 1e-8 std^2, so that projections stay possible."""
    return variance.clamp_min(_LEAST_VARIANCE * std**2)


def sample_clean(
    problem: Problem,
    x: Tensor,
    sigma: float,
    temperature: float,
    *,
    correlated: bool = False,
    variance_shrinkage: float = 0.0,
) -> Tensor:
    """A draw of the clean sources given the noisy ones and the observation, to second order.

    The prior's mean and diagonal variance V of the clean sources make a Gaussian, which is
    conditioned on the observation in closed form. At temperature 0 this is its mean,

        E[x | noisy, m] = mean + V A^T (A V A^T + tau^2)^-1 (m - A mean),

    TMPD (Boys et al. 2023, arXiv:2310.06721) with a variance that the prior has learned instead of
    one differentiated from its network.

    Args:
        problem: The problem.
        x: Noisy sources, (batch, k, channels, *size), the shape of the result.
        sigma: Their noise level.
        temperature: Scale of the noise of the draw.
        correlated: Whether to draw correlated values where the priors and the mixing allow it.
        variance_shrinkage: How far variances are moved, on a logarithmic scale, to their mean over
            the sources; from 0 to 1.
    """
    mean, variance = problem.moments(x, sigma)
    if variance_shrinkage:
        common = clamp_variance(variance.mean(dim=1, keepdim=True), problem.std)
        own = clamp_variance(variance, problem.std)
        variance = own ** (1 - variance_shrinkage) * common**variance_shrinkage
    if correlated and (spectra := problem.spectra(sigma)) is not None:
        std = clamp_variance(variance, problem.std).sqrt()
        joint = problem.mixing.correlated(std, spectra)
        if joint is not None:
            sample = mean
            if temperature:
                sample = mean + temperature * joint.correlate(problem.noise.normal(x))
            noise = _observation_noise(problem, temperature)
            return joint.posterior_mean(sample, _without(problem.observation, noise))
    sample = mean
    if temperature:
        normal = problem.noise.normal(x)
        sample = torch.addcmul(mean, variance.sqrt(), normal, value=temperature)
    return _condition(problem, mean, sample, variance, temperature)


def _condition(
    problem: Problem, mean: Tensor, sample: Tensor, variance: Tensor, temperature: float
) -> Tensor:
    """A draw of N(mean, variance) moved onto the observation: a draw of the conditional Gaussian.

    For mixings with limits the observation before the limits is drawn too, with the same quantile
    as that of the sources' draw.
    """
    mixing, m = problem.mixing, problem.observation
    variance = clamp_variance(variance, problem.std)
    noise = _observation_noise(problem, temperature)
    if mixing.limited and temperature:
        std, center = mixing.output_std(sample, variance), mixing.unlimited(mean)
        output = mixing.unlimited(sample)
        output = output if noise is None else output + noise
        m = mixing.sample_unlimited(m, center, std, (output - center) / std)
        mixing = mixing.unlimited
    return mixing.posterior_mean(sample, _without(m, noise), variance)


def _observation_noise(problem: Problem, temperature: float) -> Tensor | None:
    """A draw of the observation noise (Matheron's rule), or None where there is none."""
    if not (problem.mixing.noise and temperature):
        return None
    return temperature * problem.mixing.noise * problem.noise.normal(problem.observation)


def _without(observation: Tensor, noise: Tensor | None) -> Tensor:
    return observation if noise is None else observation - noise


class LangevinSteps:
    """Steps of Langevin dynamics on p_sigma(x) N(m; A x, gamma^2), preconditioned by the mixing.

    A step is that of a Gaussian given the observation,

        x + P (score + A^T (m - A x) / gamma^2) + sqrt(2 P) noise,
        P = (1 / eta + A^T A / gamma^2)^-1,   eta = rate sigma^2,   gamma^2 = g^2 sigma^2 / weight,

    which the mixing applies in closed form; g is its gain, so that the scale of the observation
    does not matter. The noise is the mean of this step's noise and the previous one's (Leimkuhler &
    Matthews 2013, Applied Mathematics Research eXpress), which gives a Gaussian its exact variance
    however large the steps are: with independent noise a rate of 1 doubles the variance along
    directions in which the prior has little. Without noise (temperature 0) the steps climb to the
    mode.

    Args:
        problem: The problem.
        rate, weight: As above.
        temperature: Scale of the noise.
    """

    def __init__(
        self, problem: Problem, rate: float, weight: float, temperature: float = 1.0
    ) -> None:
        self.problem, self.rate, self.weight = problem, rate, weight
        self.temperature = temperature
        self._previous: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        """One step from x, (batch, k, channels, *size), with one call of the network."""
        problem, mixing = self.problem, self.problem.mixing
        eta = self.rate * sigma**2
        gamma = (problem.gain**2 * (sigma**2 / self.weight) + mixing.noise**2) ** 0.5
        moved = x + eta * problem.score(x, sigma)
        m, gamma = mixing.gaussian_likelihood(x, problem.observation, gamma)
        if self.temperature:
            noise_x, noise_m = self._noise(x, m)
            moved.add_(noise_x, alpha=self.temperature * math.sqrt(2 * eta))
            m = m + self.temperature * math.sqrt(2) * gamma * noise_m
        return mixing.unlimited.posterior_mean(moved, m, eta, noise=gamma)

    def _noise(self, x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        """The means of this step's noise and the previous one's, in the shapes of x and of m."""

        def normal() -> tuple[Tensor, Tensor]:
            return self.problem.noise.normal(x), self.problem.noise.normal(m)

        previous = normal() if self._previous is None else self._previous
        self._previous = current = normal()
        return (current[0] + previous[0]) / 2, (current[1] + previous[1]) / 2


def denoise_and_project(
    problem: Problem, x: Tensor, sigma: float, *, checked: bool = True, temperature: float = 0.0
) -> Tensor:
    """Removes noise of level sigma and projects onto the observation, sources in their range.

    At temperature 0 the result is the mean of the clean sources given x, which varies less than
    posterior samples do where the posterior is about as narrow as sigma. At temperature 1 it is a
    draw.

    Args:
        problem: The problem.
        x: Noisy sources, (batch, k, channels, *size), the shape of the result.
        sigma: Their noise level.
        checked: Whether values that are not finite raise.
        temperature: Scale of the noise of the draw.
    """
    clean = sample_clean(problem, x, sigma, temperature)
    if checked:
        check_finite(clean)
    return project_into_range(problem, clean)


def project_into_range(problem: Problem, x: Tensor) -> Tensor:
    """x, (batch, k, channels, *size), in the priors' range and on an exact observation.

    With observation noise x is only clamped.
    """
    if problem.mixing.noise:
        return problem.clamp(x)
    low, high = problem.bounds(x)
    return problem.mixing.project_box(
        x, problem.observation, low, high, tolerance=_TOLERANCE * problem.std
    )
