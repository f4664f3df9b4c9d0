"""Steps that samplers share: the first guess, the posterior mean, and the end of a separation."""

from __future__ import annotations

from torch import Tensor

from basis.samplers._problem import Problem

_SURE = 1e-8  # the least variance, in squared spreads: a prior that is sure still leaves a way
_MET = 1 / 3000  # the largest residual that counts as none, in spreads


def first_guess(problem: Problem) -> Tensor:
    """Clean sources before anything is known: typical values that meet the mixture."""
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

    What is missing from the mixture goes to the places that the priors are least sure of.
    """
    return settle(problem, posterior_denoise(problem, x, sigma))


def settle(problem: Problem, x: Tensor) -> Tensor:
    """x in the priors' range, meeting an exact observation exactly.

    A noisy observation is left as near as x comes.
    """
    if problem.mixing.noise:
        return problem.clamp(x)
    low, high = problem.bounds(x)
    return problem.mixing.project_box(
        x, problem.observation, low, high, tolerance=_MET * problem.spread
    )
