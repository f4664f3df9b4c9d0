"""Estimates unknown mixing coefficients together with the sources.

At noise level sigma, the error of the posterior mean of a source is uncorrelated with that mean, so
regressing the observation on these means estimates the alphas without bias. Chains of the
split-Gibbs sampler do so at every step, from several initial values, and the alphas whose sources
have the least energy are taken.

A prior whose signals can have any scale does not determine the alphas: the energy of the sources
then has no minimum at the scale that was found. This is checked for every item.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from basis.mixings.mixing import Mixing
from basis.mixings.per_item import PerItemMixing
from basis.priors.prior import Prior
from basis.progress import Progress
from basis.samplers.problem import Noise, Problem, item_seeds
from basis.samplers.sampler import denoise_and_project, geometric
from basis.search.plausibility import energy, energy_sigmas

CHAINS, STEPS, REFINEMENT = 3, 36, 12
"""Initial values, and the steps of a chain above and below the level where modes are decided."""
_LEAST, _MOST = 0.02, 10.0  # the range of estimated alphas
_RIDGE = 1e-3  # regularization towards the previous alphas, relative to the power of the sources
_SCALES = (0.8, 1.25)  # if alphas are identifiable, sources at these scales are less probable


@dataclass(frozen=True)
class Alphas:
    """Estimated alphas.

    Attributes:
        values: (batch, sources).
        identifiable: (batch,) of bool: whether the prior determines the scale of the sources.
        evaluations: Network evaluations, (batch,).
    """

    values: Tensor
    identifiable: Tensor
    evaluations: Tensor


@torch.inference_mode()
def estimate_alphas(
    observation: Tensor,
    priors: Sequence[Prior],
    given: Sequence[float | None],
    *,
    seed: int = 0,
    batch_size: int = 128,
    progress: Callable[[Progress], None] | None = None,
) -> Alphas:
    """Estimates the alphas of plain mixtures.

    Args:
        observation: (batch, channels, *size), sum_i alpha_i x_i.
        priors: One per source.
        given: The alphas that are known, None for the others.
        seed: Seed of the chains.
        batch_size: Chains run together.
        progress: Called after every step.
    """
    seeds = item_seeds(observation, CHAINS, seed, "weights")
    each = max(1, batch_size // CHAINS)
    parts = [
        _find(observation[i : i + each], priors, given, seeds[i : i + each], progress)
        for i in range(0, len(observation), each)
    ]
    return Alphas(
        *(torch.cat(column) for column in zip(*(vars(p).values() for p in parts), strict=True))
    )


def _find(
    m: Tensor,
    priors: Sequence[Prior],
    given: Sequence[float | None],
    seeds: list[list[int]],
    progress: Callable[[Progress], None] | None,
) -> Alphas:
    items = torch.arange(len(m)).repeat_interleave(CHAINS)
    evaluations = torch.zeros(len(m), dtype=torch.long)
    start = _initial_alphas(m, priors, given)
    noise = Noise([seed for row in seeds for seed in row])
    problem = Problem(
        priors, PerItemMixing(start), m[items], noise, items=items, evaluations=evaluations
    )
    x = problem.mixing.project(problem.center(), problem.observation)
    first, turn, last = (problem.sigma(s) for s in (3, 7 / 6, 1 / 3))
    levels = [*geometric(first, turn, STEPS + 1), *geometric(turn, last, REFINEMENT + 1)[1:]]
    x = x + first * problem.noise.normal(x)
    for step, (sigma, lower) in enumerate(itertools.pairwise(levels)):
        mean, variance = problem.moments(x, sigma)
        problem.mixing = PerItemMixing(_regress(problem, mean, given))
        if step < STEPS:  # modes are sampled; the remaining steps refine them
            mean = mean + variance.sqrt() * problem.noise.normal(x)
        least = 1e-8 * problem.std**2
        clean = problem.mixing.posterior_mean(mean, problem.observation, variance.clamp_min(least))
        x = clean + lower * problem.noise.normal(x)
        if progress is not None:
            state = x.unflatten(0, (len(m), CHAINS))
            progress(Progress(step + 1, STEPS + REFINEMENT, lower, state))
    mean, _ = problem.moments(x, levels[-1])
    alphas = _regress(problem, mean, given)
    problem.mixing = PerItemMixing(alphas)
    sources = denoise_and_project(problem, x, levels[-1])
    energies = _energies(problem, sources)
    best = energies.view(len(m), CHAINS).argmin(dim=1) + CHAINS * torch.arange(len(m))
    chosen = problem.chains(best, 1, [row[0] for row in seeds])
    identifiable = torch.ones(len(m), dtype=torch.bool)
    for scale in _SCALES:
        scaled = _energies(chosen, scale * sources[best])
        identifiable &= (scaled > energies[best]).cpu()
    return Alphas(alphas[best.cpu()], identifiable, evaluations)


def _initial_alphas(m: Tensor, priors: Sequence[Prior], given: Sequence[float | None]) -> Tensor:
    """Initial alphas, (items * chains, sources): one total, divided in several ways."""
    k, high = len(given), max((p.high for p in priors if p.high is not None), default=None)
    flat = m.flatten(1).double().cpu()
    if high is not None and high > 0:
        total = flat.amax(dim=1) / high
    else:
        power = sum(p.std**2 + p.center**2 for p in priors) / k
        total = flat.square().mean(dim=1).sqrt() / (power / k) ** 0.5
    known = sum(a for a in given if a is not None)
    left = (total - known).clamp_min(0.1 * total)
    free = [i for i, a in enumerate(given) if a is None]
    # Fractions that double, are equal or halve from one source to the next.
    ratios = 2 ** torch.linspace(-1.0, 1.0, CHAINS, dtype=torch.float64)
    fractions = ratios[:, None] ** -torch.arange(len(free), dtype=torch.float64)
    fractions = fractions / fractions.sum(dim=1, keepdim=True)
    guess = torch.tensor([0.0 if a is None else a for a in given], dtype=torch.float64)
    guesses = guess.repeat(len(m), CHAINS, 1)
    guesses[:, :, free] = left[:, None, None] * fractions
    return guesses.flatten(0, 1).clamp_min(_LEAST)


def _regress(problem: Problem, means: Tensor, given: Sequence[float | None]) -> Tensor:
    """The alphas that fit the observation best given the means of the sources, (rows, sources)."""
    mixing: Mixing = problem.mixing
    assert isinstance(mixing, PerItemMixing)
    before = mixing.alphas
    x, y = means.flatten(2).double().cpu(), problem.observation.flatten(1).double().cpu()
    free = [i for i, a in enumerate(given) if a is None]
    fixed = [i for i, a in enumerate(given) if a is not None]
    left = y - torch.einsum("bk,bkn->bn", before[:, fixed], x[:, fixed])
    x = x[:, free]
    gram = x @ x.mT
    power = gram.diagonal(dim1=1, dim2=2).mean(dim=1).clamp_min(1e-12)
    ridge = _RIDGE * power[:, None, None] * torch.eye(len(free), dtype=torch.float64)
    side = torch.einsum("bkn,bn->bk", x, left) + _RIDGE * power[:, None] * before[:, free]
    alphas = before.clone()
    alphas[:, free] = torch.linalg.solve(gram + ridge, side).clamp(_LEAST, _MOST)
    return alphas


def _energies(problem: Problem, sources: Tensor) -> Tensor:
    """The total energy of the sources of every row, (rows,)."""
    total = sources.new_zeros(len(sources), dtype=torch.float64)
    for index, prior in enumerate(problem.priors):
        total += energy(prior, sources[:, index])
        problem.count(prior.evaluations * len(energy_sigmas(prior)), len(sources))
    return total
