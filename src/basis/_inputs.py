"""The arguments of `separate` and its relatives: checked, and loaded where they are names."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis.devices import find_device
from basis.errors import BasisError, did_you_mean
from basis.mixings.matrix import mixture, mixtures
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.samplers import SAMPLERS
from basis.samplers.gibbs import Gibbs
from basis.samplers.sampler import Sampler
from basis.search.plan import Plan, Round, plan_for, single_round
from basis.search.ranking import Ranking, needs_order
from basis.settings import ESTIMATES, METHODS, Estimate
from basis.signals.arrays import crop_and_resize
from basis.signals.observation import read
from basis.store.loading import load_prior

PriorLike = Prior | str | Path
"""A prior, its name or its folder."""

_ALL_KNOWN = 1 - 1e-6  # a mean of a mask's values is above this only if all are 1


def load_priors(
    prior: PriorLike | Sequence[PriorLike], device: torch.device | str | None = None
) -> list[Prior]:
    """The given priors; those given by name or folder are loaded, each of them once.

    Args:
        prior: One or several.
        device: Where they compute; None leaves them where they are.
    """
    given: list[Any] = list(prior) if isinstance(prior, list | tuple) else [prior]
    if not given or not all(isinstance(one, Prior | str | Path) for one in given):
        bare = any(callable(one) and not isinstance(one, Prior) for one in given)
        raise BasisError(
            "prior must be a prior, a prior's name or folder, or a non-empty list of these, not "
            f"{prior!r:.60}" + ("; Prior.from_denoiser makes a prior of a function" * bare)
        )
    target = None if device is None else find_device(device)
    loaded: dict[str, Prior] = {}
    found: list[Prior] = []
    for one in given:
        if isinstance(one, Prior):
            found.append(one if target is None else one.to(target))
            continue
        if str(one) not in loaded:
            loaded[str(one)] = load_prior(one, device=target or "cpu")
        found.append(loaded[str(one)])
    return found


def check_seed(seed: int) -> int:
    """A seed that random generators accept."""
    try:
        value = operator.index(seed)
    except TypeError:
        value = -1
    if isinstance(seed, bool) or not 0 <= value < 2**63:
        raise BasisError(f"seed must be a whole number from 0 to 2^63 - 1, not {seed!r}")
    return value


def check_count(name: str, value: int | None) -> int | None:
    """A whole number of at least 1, or None."""
    if value is None:
        return None
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if isinstance(value, bool) or count < 1:
        raise BasisError(f"{name} must be a whole number of at least 1, not {value!r:.60}")
    return count


def make_plan(
    method: str | int | Sampler | Plan,
    estimate: Estimate,
    samples: int | None,
    priors: Sequence[Prior],
    mixing: Mixing,
) -> Plan:
    """The plan that `separate` runs for these arguments.

    Args:
        method: A named method, a number of evaluations, a sampler or its name, or a plan.
        estimate: "mode", "mean" or "sample".
        samples: The number of posterior samples.
        priors: One per source.
        mixing: How the sources make the observation.
    """
    if estimate not in ESTIMATES:
        hint = did_you_mean(estimate, ESTIMATES)
        raise BasisError(f"estimate must be one of {', '.join(ESTIMATES)}, not {estimate!r}{hint}")
    if isinstance(method, str) and method in SAMPLERS:
        method = SAMPLERS[method]()
    if isinstance(method, Sampler):
        return single_round(method, samples, estimate)
    if isinstance(method, Plan):
        plan = method
        if estimate != "mode":
            plan = replace(plan, ranking=Ranking("mean" if estimate == "mean" else "first"))
    else:
        if isinstance(method, str) and method not in METHODS:
            raise BasisError(
                f"method must be {', '.join(METHODS)}, a number of evaluations, a Plan, or a "
                f"sampler ({', '.join(SAMPLERS)}), not {method!r}"
                f"{did_you_mean(method, (*METHODS, *SAMPLERS))}"
            )
        ordered = needs_order(priors, mixing)
        cost = sum(prior._tile_evaluations for prior in priors)
        plan = plan_for(method, mixing.sources, ordered=ordered, cost=cost, estimate=estimate)
    return (
        plan if samples is None else replace(plan, posterior=Round(samples, Gibbs(), sampled=True))
    )


def is_rows(alphas: Any) -> bool:
    """Whether alphas are several rows: several observations of the same sources."""
    if isinstance(alphas, Tensor | np.ndarray):
        return alphas.ndim == 2
    return isinstance(alphas, list | tuple) and any(
        isinstance(row, list | tuple | Tensor | np.ndarray) for row in alphas
    )


def check_alphas(
    alphas: Any, sources: Any, mixing: Mixing | None, given: Sequence[float] | None, priors: int
) -> tuple[list[float | None] | None, bool]:
    """The alphas of a plain mixture, None for each unknown one, and whether the count is unknown.

    Args:
        alphas, sources, mixing: As `separate` takes them.
        given: The alphas of the observation's file.
        priors: The number of priors.

    Returns:
        The alphas; None if the mixing or rows of alphas determine them.
    """
    whole = isinstance(sources, int) and not isinstance(sources, bool) and sources >= 1
    if sources is not None and sources != "unknown" and not whole:
        raise BasisError(
            f"sources must be a whole number of at least 1 or 'unknown', not {sources!r}"
        )
    if isinstance(alphas, str) and alphas != "unknown":
        raise BasisError(f"alphas must be numbers, None or 'unknown', not {alphas!r}")
    if mixing is not None and alphas is not None:
        raise BasisError("give alphas or mixing, not both")
    if mixing is not None and not isinstance(mixing, Mixing):
        raise BasisError(
            "mixing must be a Mixing, such as basis.mixture((1, 1)) or basis.linear(function), not "
            f"{mixing!r:.60}"
        )
    if sources == "unknown":
        if alphas is not None or mixing is not None or priors > 1:
            raise BasisError(
                "an unknown number of sources needs one prior and neither alphas nor mixing"
            )
        return None, True
    if mixing is not None or is_rows(alphas):
        count = mixing.sources if mixing is not None else len(alphas[0])
        if whole and sources != count:
            raise BasisError(f"{count} sources in the mixing but sources={sources}")
        return None, False
    if isinstance(alphas, str):
        return [None] * (sources or max(2, priors)), False
    if alphas is None and sources is None and given is not None:
        return list(given), False
    if alphas is None:
        return [1.0] * (sources or max(2, priors)), False
    found = alphas.tolist() if isinstance(alphas, Tensor | np.ndarray) else alphas
    found = [found] if isinstance(found, int | float) else found
    if not isinstance(found, list | tuple):
        raise BasisError(f"alphas must be a list of numbers, one per source, not {alphas!r:.60}")
    found = list(found)
    if whole and sources != len(found):
        raise BasisError(f"{len(found)} alphas for {sources} sources; give one per source")
    return found, False


def make_mixing(
    alphas: Any, mixing: Mixing | None, mask: Any, noise: Any, shape: tuple[int, ...]
) -> Mixing:
    """The mixing of known alphas, rows of alphas, or the given one, with its mask and noise.

    Args:
        alphas: A vector or rows, all known; None if a mixing is given.
        mixing: As `separate` takes it.
        mask: Ones where the observation is known: an array, or the path of a picture.
        noise: Standard deviation of the observation noise; 0 keeps that of the mixing.
        shape: The shape of a source.
    """
    if mixing is None:
        mixing = mixtures(alphas) if is_rows(alphas) else mixture(alphas)
    if mask is not None:
        mixing = mixing.replace(mask=read_mask(mask))
    if isinstance(noise, str | bool) or noise is None:
        raise BasisError(f"noise must be a standard deviation of 0 or more, not {noise!r}")
    return (mixing.replace(noise=noise) if noise else mixing).fit(shape)


def read_mask(
    mask: Any, size: tuple[int, ...] | None = None, original: tuple[int, ...] | None = None
) -> Any:
    """Ones where a picture or an 8-bit array is white; other arrays as they are.

    Args:
        mask: An array, or the path of a picture.
        size: The size that the observation was converted to, for masks to convert alike: a value
            is then known if all values that it was made of are.
        original: The size of the masks to convert; any by default.
    """
    if isinstance(mask, str | Path):
        mask = (read(mask, grey=True).values > 0.5).double()
    elif str(getattr(mask, "dtype", "")).endswith("uint8") and mask.max() > 1:
        mask = mask > 127  # an 8-bit picture
    have = tuple(np.shape(mask)[-2:])
    if size is None or len(have) != 2 or have == size or original not in (None, have):
        return mask
    values = torch.as_tensor(mask, dtype=torch.float64)
    resized = crop_and_resize(values[(None,) * (4 - values.ndim)], *size)
    return (resized[0] > _ALL_KNOWN).double()


def check_priors(priors: list[Prior], mixing: Mixing) -> list[Prior]:
    """One prior per source, all of one shape."""
    if len({p.shape for p in priors}) > 1:
        shapes = ", ".join(str(p.shape) for p in priors)
        raise BasisError(f"all priors must have the same signal shape, not {shapes}")
    if len(priors) == 1:
        priors = priors * mixing.sources
    if len(priors) != mixing.sources:
        raise BasisError(
            f"{len(priors)} priors for {mixing.sources} sources; give one prior, or one per source"
        )
    return priors


def check_observation(observation: Tensor, priors: Sequence[Prior], mixing: Mixing) -> Tensor:
    """The observation on the device of the priors, checked to fit priors and mixing."""
    expected = mixing.observed_shape(priors[0].shape)
    shape = tuple(observation.shape)
    if shape[1:] != expected:
        raise BasisError(
            f"the observation has shape {shape[1:]}; prior {priors[0].name!r} and this mixing need "
            f"{expected}{_remedy(shape, expected)}"
        )
    _check_values(observation, priors, mixing)
    device = priors[0].device
    return observation if device is None else observation.to(device)


def _check_values(observation: Tensor, priors: Sequence[Prior], mixing: Mixing) -> None:
    """Raises if values are far outside of what sources in their range can add up to."""
    lows, highs = [p.low for p in priors], [p.high for p in priors]
    bottom = None if None in lows else min(lows)  # type: ignore[type-var]
    top = None if None in highs else max(highs)  # type: ignore[type-var]
    low, high = mixing.output_range((bottom, top))
    if low is None or high is None:
        return
    observed = mixing.observe(observation)
    least, most = observed.min().item(), observed.max().item()
    margin = high - low + 10 * mixing.noise
    if least < low - margin or most > high + margin:
        raise BasisError(
            f"the observation has values from {least:g} to {most:g}, but sources in "
            f"[{bottom:g}, {top:g}] add up to {low:g} to {high:g}; divide 8-bit pixels by 255 and "
            "check alphas"
        )


def _remedy(shape: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """How `basis.read` makes an observation fit, as the end of a message."""
    if len(shape) != 4 or len(expected) != 3:
        return ""
    if shape[1] == 3 and expected[0] == 1:
        return "; read it with grey=True (--grey), or use a prior of color images such as cifar10"
    if shape[1] == 1 and expected[0] == 3:
        return "; read it with color=True (--color), or use a prior of grey images such as mnist"
    size = expected[1] if expected[1] == expected[2] else expected[1:]
    return f"; read it with size={size} (--size)"
