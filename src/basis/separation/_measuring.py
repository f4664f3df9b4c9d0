"""Typical energies of a prior, measured: what the plausibility of its results is told by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from basis._errors import BasisError
from basis.priors import Energies, Prior
from basis.separation._plan import Plan, plan_for
from basis.separation._plausibility import energies_of
from basis.separation._result import Progress
from basis.separation._separate import separate
from basis.separation._unconditional import sample
from basis.separation._words import Effort

_LEAST = 8  # signals that a distribution is told from at least


def measure_energies(
    prior: Prior,
    images: Tensor | None = None,
    *,
    pairs: int = 128,
    effort: Effort | str | int | Plan = "fast",
    samples: int = 64,
    seed: int = 0,
    about: dict[str, object] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Energies:
    """Measures the energies that are typical of a prior, and keeps them as `prior.energies`.

    From then on `separate` says how plausible its results are.

    Args:
        prior: Any prior.
        images: Signals of its kind that it has not seen, (n, *prior.shape), 8 or more. None takes
            the prior's own samples instead, 64 evaluations for each.
        pairs: Mixtures of two of the images that are separated, to measure what separated sources
            have; 0 for none.
        effort: Of these separations.
        samples: How many samples are drawn where there are no images.
        seed: Of the draws.
        about: What the card shall say beside counts and origin.
        progress: Called after every step.
    """
    told: dict[str, object] = {"origin": "held-out images"}
    if images is None:
        told["origin"] = "its own samples"
        images = sample(prior, samples, seed=seed, progress=progress)
    if len(images) < _LEAST or tuple(images.shape[1:]) != prior.shape:
        raise BasisError(
            f"energies are measured on {_LEAST} signals of shape {prior.shape} or more, not on "
            f"{tuple(images.shape)}"
        )
    separated = None
    if pairs:
        first = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        order = torch.cat([first.roll(shift) for shift in range(-(-2 * pairs // len(images)))])
        two = images[order[: 2 * pairs]].unflatten(0, (pairs, 2))
        plan = effort if isinstance(effort, Plan) else plan_for(effort)
        plan = replace(plan, verdict=False)
        found = separate(two.sum(dim=1), prior, effort=plan, seed=seed, progress=progress)
        separated = found.sources.flatten(0, 1)
        told |= {"pairs": pairs, "effort": effort if not isinstance(effort, Plan) else "a plan"}
    told |= {"images": len(images), "seed": seed, **(about or {})}
    prior.energies = energies_of(prior, images, separated, about=told)
    return prior.energies
