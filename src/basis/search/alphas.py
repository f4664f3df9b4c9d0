"""Weights that nobody told, estimated with the sources.

At noise level sigma the prior's mean of every clean source given its noisy state has an error that
is uncorrelated with it, so that regressing the mixture on these means estimates the weights without
bias. Chains of the split-Gibbs sampler do so at every step, from several first guesses, and the
weights whose sources have the least energy are taken.

A prior that takes its signals at any scale leaves the weights open: the energy of the sources then
has no minimum at the scale that was found. That is looked at for every mixture, and said.
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
from basis.samplers.noise import Noise, item_seeds
from basis.samplers.problem import Problem
from basis.samplers.sampler import geometric
from basis.samplers.steps import denoise_and_project
from basis.search.plausibility import energy, judged_levels

CHAINS, STEPS, CLIMB = 3, 36, 12
"""First guesses, and steps of every chain above and below the noise level where modes are
decided.
"""
_LEAST, _MOST = 0.02, 10.0  # weights are looked for between these
_RIDGE = 1e-3  # how strongly weights stay where they were, as a share of the sources' power
_SCALES = (0.8, 1.25)  # a source at these scales must be less probable than as it was found


@dataclass(frozen=True)
class Weights:
    """Estimated weights.

    Attributes:
        alphas: (batch, sources).
        known: (batch,) of bool: whether the prior tells the scale of the sources, and so weights.
        spent: Network evaluations, (batch,).
    """

    alphas: Tensor
    known: Tensor
    spent: Tensor


@torch.inference_mode()
def find_weights(
    observation: Tensor,
    priors: Sequence[Prior],
    given: Sequence[float | None],
    *,
    seed: int = 0,
    chunk: int = 128,
    progress: Callable[[Progress], None] | None = None,
) -> Weights:
    """Estimates the weights of plain mixtures.

    Args:
        observation: (batch, channels, *size), sum_i alpha_i x_i.
        priors: One per source.
        given: The weights that are known, None for the others.
        seed: Of the chains.
        chunk: Chains advanced together.
        progress: Called after every step, with the state of the chains.
    """
    seeds = item_seeds(observation, CHAINS, seed, "weights")
    each = max(1, chunk // CHAINS)
    parts = [
        _find(observation[i : i + each], priors, given, seeds[i : i + each], progress)
        for i in range(0, len(observation), each)
    ]
    return Weights(
        *(torch.cat([getattr(p, n) for p in parts]) for n in ("alphas", "known", "spent"))
    )


def _find(
    m: Tensor,
    priors: Sequence[Prior],
    given: Sequence[float | None],
    seeds: list[list[int]],
    progress: Callable[[Progress], None] | None,
) -> Weights:
    items = torch.arange(len(m)).repeat_interleave(CHAINS)
    spent = torch.zeros(len(m), dtype=torch.long)
    start = _first_guesses(m, priors, given)
    noise = Noise([seed for row in seeds for seed in row])
    problem = Problem(priors, PerItemMixing(start), m[items], noise, items=items, evaluations=spent)
    x = problem.mixing.project(problem.center(), problem.observation)
    first, turn, last = (problem.sigma(s) for s in (3, 7 / 6, 1 / 3))
    levels = [*geometric(first, turn, STEPS + 1), *geometric(turn, last, CLIMB + 1)[1:]]
    x = x + first * problem.noise.normal(x)
    for step, (sigma, lower) in enumerate(itertools.pairwise(levels)):
        mean, variance = problem.moments(x, sigma)
        problem.mixing = PerItemMixing(_regress(problem, mean, given))
        if step < STEPS:  # above, modes are drawn; below, the best of one is climbed to
            mean = mean + variance.sqrt() * problem.noise.normal(x)
        least = 1e-8 * problem.std**2
        clean = problem.mixing.posterior_mean(mean, problem.observation, variance.clamp_min(least))
        x = clean + lower * problem.noise.normal(x)
        if progress is not None:
            state = x.unflatten(0, (len(m), CHAINS))
            progress(Progress(step + 1, STEPS + CLIMB, lower, state))
    mean, _ = problem.moments(x, levels[-1])
    alphas = _regress(problem, mean, given)
    problem.mixing = PerItemMixing(alphas)
    sources = denoise_and_project(problem, x, levels[-1])
    energies = _energies(problem, sources)
    best = energies.view(len(m), CHAINS).argmin(dim=1) + CHAINS * torch.arange(len(m))
    chosen = problem.chains(best, 1, [row[0] for row in seeds])
    known = torch.ones(len(m), dtype=torch.bool)
    for scale in _SCALES:
        scaled = _energies(chosen, scale * sources[best])
        known &= (scaled > energies[best]).cpu()
    return Weights(alphas[best.cpu()], known, spent)


def _first_guesses(m: Tensor, priors: Sequence[Prior], given: Sequence[float | None]) -> Tensor:
    """Weights to start from, (items * chains, sources): one total, shared out in several ways."""
    k, high = len(given), max((p.high for p in priors if p.high is not None), default=None)
    flat = m.flatten(1).double().cpu()
    if high is not None and high > 0:
        total = flat.amax(dim=1) / high
    else:
        power = sum(p.std**2 + p.center**2 for p in priors) / k
        total = flat.square().mean(dim=1).sqrt() / (power / k) ** 0.5
    told = sum(a for a in given if a is not None)
    left = (total - told).clamp_min(0.1 * total)
    free = [i for i, a in enumerate(given) if a is None]
    # Shares of several steepness: each twice the one before, all equal, each half of it.
    steepness = 2 ** torch.linspace(-1.0, 1.0, CHAINS, dtype=torch.float64)
    shares = steepness[:, None] ** -torch.arange(len(free), dtype=torch.float64)
    shares = shares / shares.sum(dim=1, keepdim=True)
    guess = torch.tensor([0.0 if a is None else a for a in given], dtype=torch.float64)
    guesses = guess.repeat(len(m), CHAINS, 1)
    guesses[:, :, free] = left[:, None, None] * shares
    return guesses.flatten(0, 1).clamp_min(_LEAST)


def _regress(problem: Problem, means: Tensor, given: Sequence[float | None]) -> Tensor:
    """The weights that make the observation of the sources' means best, (rows, sources)."""
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
    """The energy of all sources of every row, (rows,), counted."""
    total = sources.new_zeros(len(sources), dtype=torch.float64)
    for place, prior in enumerate(problem.priors):
        total += energy(prior, sources[:, place])
        problem.count(prior.cost * len(judged_levels(prior)), len(sources))
    return total
