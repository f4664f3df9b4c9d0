"""Steps that samplers share: the first guess, the posterior mean, and the end of a separation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from basis.samplers.problem import Problem
from basis.samplers.sampler import check_finite

_SURE = 1e-8  # the least variance, in squared spreads
_MET = 1 / 3000  # the largest residual that counts as none, in spreads


def first_guess(problem: Problem) -> Tensor:
    """Clean sources before anything is known: typical values that meet the mixture.

    (batch, k, channels, *size).
    """
    return problem.mixing.project(problem.center(), problem.observation)


def at_least_sure(variance: Tensor, spread: float) -> Tensor:
    """A variance, of any shape, with a least value: a prior that is sure still leaves a way."""
    return variance.clamp_min(_SURE * spread**2)


def condition(
    problem: Problem,
    drawn: Tensor,
    variance: Tensor,
    temperature: float = 0.0,
    *,
    mean: Tensor | None = None,
) -> Tensor:
    """Moves draws of N(mean, variance) onto the mixture: draws of that Gaussian given the
    mixture.

    Args:
        problem: Its mixing and observation.
        drawn: The draws, or the mean itself where temperature is 0.
        variance: Of every value.
        temperature: Whether anything was drawn.
        mean: What was drawn about, for mixings with limits: what was observed before these is drawn
            as well, as far from its mean as the draws of the sources are.
    """
    mixing, observed = problem.mixing, problem.observation
    variance = at_least_sure(variance, problem.std)
    own = _own_noise(problem, temperature)
    if mixing.limited and temperature and mean is not None:
        std, centre = mixing.spread(drawn, variance), mixing.exact(mean)
        made = mixing.exact(drawn) if own is None else mixing.exact(drawn) + own
        observed = mixing.latent(observed, centre, std, (made - centre) / std)
        mixing = mixing.exact
    return mixing.posterior_mean(drawn, observed if own is None else observed - own, variance)


def _own_noise(problem: Problem, temperature: float) -> Tensor | None:
    """A draw of the observation's own noise, which belongs to one of the sources (Matheron's
    rule); None where nothing is drawn.
    """
    if not (problem.mixing.noise and temperature):
        return None
    return temperature * problem.mixing.noise * problem.noise.normal(problem.observation)


def draw_clean(
    problem: Problem,
    x: Tensor,
    sigma: float,
    temperature: float,
    *,
    together: bool = False,
    even: float = 0.0,
) -> Tensor:
    """A draw of the clean signals given the noisy ones and the mixture, to second order.

    x and what is returned are (batch, k, channels, *size). At temperature 0 it is their mean,
    `posterior_denoise`. Values are drawn `together` where the priors know how they move
    (`problem.spectra`), and each for itself otherwise. Variances are brought to that share
    (`even`) of the way, on logarithmic axes, to what they are on average over the sources.
    """
    mean, variance = problem.moments(x, sigma)
    if even:
        common = at_least_sure(variance.mean(dim=1, keepdim=True), problem.std)
        variance = at_least_sure(variance, problem.std) ** (1 - even) * common**even
    if together and (spectra := problem.spectra(sigma)) is not None:
        std = at_least_sure(variance, problem.std).sqrt()
        joint = problem.mixing.correlated(std, spectra)
        if joint is not None:
            drawn = mean
            if temperature:
                drawn = mean + temperature * joint.colour(problem.noise.normal(x))
            own = _own_noise(problem, temperature)
            observed = problem.observation
            return joint.given(drawn, observed if own is None else observed - own)
    drawn = mean
    if temperature:
        noise = problem.noise.normal(x)
        drawn = torch.addcmul(mean, variance.sqrt(), noise, value=temperature)
    return condition(problem, drawn, variance, temperature, mean=mean)


class LangevinSteps:
    """Steps of Langevin dynamics on p_sigma(x) N(m; A x, gamma^2), preconditioned by the mixing.

    A step is that of a Gaussian given the mixture,

        x + P (score + A^T (m - A x) / gamma^2) + sqrt(2 P) noise,
        P = (1 / eta + A^T A / gamma^2)^-1,   eta = rate sigma^2,   gamma^2 = g^2 sigma^2 / weight,

    which the mixing applies in closed form; g is its gain, so that a mixture of halves is pulled at
    as the sum itself is. The noise is the mean of a step's own and of the one before (Leimkuhler &
    Matthews 2013, Applied Mathematics Research eXpress), which leaves a Gaussian its variance
    however large the steps are: with independent noise a rate of 1 doubles it along directions
    in which the prior's signals do not spread. Without noise (temperature 0) the steps climb to
    the mode.

    Args:
        problem: What is sampled.
        rate, weight: As above.
        temperature: Scales the noise.
    """

    def __init__(
        self, problem: Problem, rate: float, weight: float, temperature: float = 1.0
    ) -> None:
        self.problem, self.rate, self.weight = problem, rate, weight
        self.temperature = temperature
        self._before: tuple[Tensor, Tensor] | None = None

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        """One step from x, (batch, k, channels, *size), with one call of the network."""
        problem, mixing = self.problem, self.problem.mixing
        eta = self.rate * sigma**2
        gamma = (problem.gain**2 * (sigma**2 / self.weight) + mixing.noise**2) ** 0.5
        moved = x + eta * problem.score(x, sigma)
        # With limits, gradient and curvature of the likelihood at x are those of another
        # observation.
        m, wide = mixing.local(x, problem.observation, gamma)
        if self.temperature:
            of_x, of_m = self._noise(x, m)
            moved.add_(of_x, alpha=self.temperature * math.sqrt(2 * eta))
            m = m + self.temperature * math.sqrt(2) * wide * of_m
        return mixing.exact.posterior_mean(moved, m, eta, noise=wide)

    def _noise(self, x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        """The means of this step's noise and the last one's, in the shapes of x and of m."""

        def draw() -> tuple[Tensor, Tensor]:
            return self.problem.noise.normal(x), self.problem.noise.normal(m)

        before = draw() if self._before is None else self._before
        self._before = own = draw()
        return (own[0] + before[0]) / 2, (own[1] + before[1]) / 2


def posterior_denoise(problem: Problem, x: Tensor, sigma: float) -> Tensor:
    """E[clean | noisy = x, mixture] to second order; shapes as in `Problem.denoise`.

    Given the mixture, the clean signal's mean is the prior's own moved by the closed form of a
    Gaussian of diagonal variance,

        E[x | noisy, m] = mean + V A^T (A V A^T + tau^2)^-1 (m - A mean),

    which is TMPD (Boys et al. 2023, arXiv:2310.06721) with a variance that the prior has learned
    instead of one differentiated from its network. A posterior denoiser is a denoiser, so that any
    solver of the diffusion can run it.
    """
    return draw_clean(problem, x, sigma, 0.0)


def finish(problem: Problem, x: Tensor, sigma: float, *, checked: bool = True) -> Tensor:
    """Takes off noise of level sigma and meets the observation, sources in their range.

    What is missing from the mixture goes to the places that the priors are least sure of. x and
    what is returned are (batch, k, channels, *size). What blew up is refused where it is `checked`.
    """
    clean = posterior_denoise(problem, x, sigma)
    if checked:
        check_finite(clean)
    return settle(problem, clean)


def settle(problem: Problem, x: Tensor) -> Tensor:
    """x, (batch, k, channels, *size), in the priors' range, meeting an exact observation exactly.

    A noisy observation is left as near as x comes.
    """
    if problem.mixing.noise:
        return problem.clamp(x)
    low, high = problem.bounds(x)
    return problem.mixing.project_box(
        x, problem.observation, low, high, tolerance=_MET * problem.std
    )
