"""Steps that samplers share: the first guess, the posterior mean, and the end of a separation."""

from __future__ import annotations

import math

from torch import Tensor

from basis.samplers._problem import Problem

_SURE = 1e-8  # the least variance, in squared spreads: a prior that is sure still leaves a way
_MET = 1 / 3000  # the largest residual that counts as none, in spreads


def first_guess(problem: Problem) -> Tensor:
    """Clean sources before anything is known: typical values that meet the mixture.

    (batch, k, channels, *size).
    """
    return problem.mixing.project(problem.center(), problem.observation)


def condition(
    problem: Problem, drawn: Tensor, variance: Tensor, temperature: float = 0.0
) -> Tensor:
    """Moves draws of N(mean, variance) onto the mixture: draws of that Gaussian given the
    mixture.
    """
    observed, tau = problem.observation, problem.mixing.noise
    if tau and temperature:
        # Matheron's rule: the observation's own noise is drawn as well.
        observed = observed - temperature * tau * problem.noise.normal(observed)
    least = _SURE * problem.spread**2
    return problem.mixing.posterior_mean(drawn, observed, variance.clamp_min(least))


def langevin_step(
    problem: Problem, x: Tensor, sigma: float, rate: float, weight: float, temperature: float = 1.0
) -> Tensor:
    """One step of Langevin dynamics on p_sigma(x) N(m; A x, gamma^2), preconditioned by the mixing.

    The step is that of a Gaussian given the mixture,

        x + P (score + A^T (m - A x) / gamma^2) + sqrt(2 P) noise,
        P = (1 / eta + A^T A / gamma^2)^-1,    eta = rate sigma^2,    gamma^2 = sigma^2 / weight,

    which the mixing applies in closed form. Without noise (temperature 0) it climbs to the mode.
    """
    eta = rate * sigma**2
    gamma = math.sqrt(sigma**2 / weight + problem.mixing.noise**2)
    moved = x + eta * problem.score(x, sigma)
    m = problem.observation
    if temperature:
        moved.add_(problem.noise.normal(x), alpha=temperature * math.sqrt(2 * eta))
        m = m + temperature * math.sqrt(2) * gamma * problem.noise.normal(m)
    return problem.mixing.posterior_mean(moved, m, eta, noise=gamma)


def posterior_denoise(problem: Problem, x: Tensor, sigma: float) -> Tensor:
    """E[clean | noisy = x, mixture] to second order; shapes as in `Problem.denoise`.

    Given the mixture, the clean signal's mean is the prior's own moved by the closed form of a
    Gaussian of diagonal variance,

        E[x | noisy, m] = mean + V A^T (A V A^T + tau^2)^-1 (m - A mean),

    which is TMPD (Boys et al. 2023, arXiv:2310.06721) with a variance that the prior has learned
    instead of one differentiated from its network. A posterior denoiser is a denoiser, so that any
    solver of the diffusion can run it.
    """
    mean, variance = problem.moments(x, sigma)
    return condition(problem, mean, variance)


def finish(problem: Problem, x: Tensor, sigma: float) -> Tensor:
    """Takes off noise of level sigma and meets the observation, sources in their range.

    What is missing from the mixture goes to the places that the priors are least sure of. x and
    what is returned are (batch, k, channels, *size).
    """
    return settle(problem, posterior_denoise(problem, x, sigma))


def settle(problem: Problem, x: Tensor) -> Tensor:
    """x, (batch, k, channels, *size), in the priors' range, meeting an exact observation exactly.

    A noisy observation is left as near as x comes.
    """
    if problem.mixing.noise:
        return problem.clamp(x)
    low, high = problem.bounds(x)
    return problem.mixing.project_box(
        x, problem.observation, low, high, tolerance=_MET * problem.spread
    )
