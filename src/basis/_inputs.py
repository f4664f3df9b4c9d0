"""What people give to a separation: priors by name, mixtures by path, weights that files bring."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from basis.devices import find_device
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.samplers import SAMPLERS
from basis.samplers.sampler import Sampler
from basis.store.loading import load_prior

PriorLike = Prior | str | Path
"""A prior, its name or its folder."""


def as_priors(
    given: PriorLike | Sequence[PriorLike], device: torch.device | str | None = None
) -> list[Prior]:
    """The priors that were given, those by name or folder loaded, each of these once.

    Args:
        given: One or several.
        device: Where they compute; priors are moved there. None leaves them where they are.
    """
    several = isinstance(given, list | tuple)
    each: list[Any] = list(given) if several else [given]  # type: ignore[arg-type]
    if not each or not all(isinstance(one, Prior | str | Path) for one in each):
        raise BasisError(
            "prior must be a prior, a prior's name or folder, or a non-empty list of these"
        )
    place = None if device is None else find_device(device)
    loaded: dict[str, Prior] = {}
    found: list[Prior] = []
    for one in each:
        if isinstance(one, Prior):
            found.append(one if place is None else one.to(place))
            continue
        if str(one) not in loaded:
            loaded[str(one)] = load_prior(one, device=place or "cpu")
        found.append(loaded[str(one)])
    return found


def as_prior(given: PriorLike, device: torch.device | str | None = None) -> Prior:
    """One prior, loaded where its name or folder was given."""
    if isinstance(given, list | tuple):
        raise BasisError("one prior is needed here, not a list")
    return as_priors(given, device)[0]


def check_seed(seed: int) -> int:
    """A seed that random generators take."""
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
        raise BasisError(f"{name} must be a whole number of at least 1, not {value!r}") from None
    if count < 1:
        raise BasisError(f"{name} must be at least 1, not {value}")
    return count


def check_options(
    options: dict[str, Any], function: Callable[..., Any], sampler: str | None
) -> None:
    """Refuses keywords that are neither the function's own nor a setting of any sampler.

    A misspelt keyword is told from a setting that goes with another sampler.
    """
    own = [
        p.name for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD
    ]
    kinds = [SAMPLERS[sampler]] if sampler in SAMPLERS else list(SAMPLERS.values())
    settings = {f.name for kind in kinds for f in fields(kind)}
    anywhere = {f.name for kind in SAMPLERS.values() for f in fields(kind)}
    for name in options:
        near = difflib.get_close_matches(name, [*own, *settings], n=1, cutoff=0.7)
        if name in anywhere or not (near or sampler is None):
            continue  # what has it, or what there is, is said where samplers are made
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(own)}"
        raise BasisError(f"{function.__name__} has no argument {name!r}; {hint}")


def warn_of_weights(mixing: Mixing, brought: Sequence[float] | None) -> None:
    """A warning where other weights are used than the file says it was mixed with."""
    told = overridden(mixing, brought)
    if told:
        warnings.warn(told, stacklevel=3)


def overridden(mixing: Mixing, brought: Sequence[float] | None) -> str:
    """What to say where other weights are used than a file brings; nothing where they agree."""
    used = mixing.unlimited.replace(mask=None).plain_alphas
    if brought is None or used is None:
        return ""
    if len(used) == len(brought) and all(
        abs(a - b) <= 1e-6 * max(1, abs(b)) for a, b in zip(used, brought, strict=True)
    ):
        return ""
    return (
        f"the file says it was mixed with alphas {_row(brought)}; {_row(used)} is used, "
        "as was asked for"
    )


def _row(weights: Sequence[float]) -> str:
    return " ".join(f"{w:g}" for w in weights)


def check_nouns(
    given: list[Prior], alphas: Sequence[float] | None, mixing: Mixing | None
) -> tuple[list[Prior], Mixing]:
    """One prior per source and the mixing, after checking that they fit each other."""
    if len({p.shape for p in given}) > 1:
        shapes = ", ".join(str(p.shape) for p in given)
        raise BasisError(f"all priors must have one signal shape; these have {shapes}")
    if mixing is not None and alphas is not None:
        raise BasisError("give alphas or mixing, not both")
    if mixing is None:
        mixing = mixture((1.0,) * max(2, len(given)) if alphas is None else alphas)
    elif not isinstance(mixing, Mixing):
        raise BasisError(f"mixing must be a Mixing, such as basis.mixture((1, 1)), not {mixing!r}")
    mixing = mixing.fit(given[0].shape)
    if len(given) == 1:
        given = given * mixing.sources
    if len(given) != mixing.sources:
        raise BasisError(
            f"{len(given)} priors for {mixing.sources} sources: give one prior for all or one per "
            "source"
        )
    return given, mixing


def is_unknown(alphas: Any, sources: Any) -> bool:
    """Whether weights or the number of sources are to be estimated; wrong words are refused."""
    if isinstance(alphas, str) and alphas != "unknown":
        raise BasisError(
            f"alphas must be numbers, None for those to estimate, or 'unknown', not {alphas!r}"
        )
    whole = isinstance(sources, int) and not isinstance(sources, bool) and sources >= 1
    if sources is not None and sources != "unknown" and not whole:
        raise BasisError(f"sources must be a number of 1 or more, or 'unknown', not {sources!r}")
    if isinstance(alphas, str) or sources == "unknown":
        return True
    return isinstance(alphas, list | tuple) and any(a is None for a in alphas)


def told_alphas(
    alphas: Any, sources: int | str | None, mixing: Mixing | None
) -> Sequence[float] | None:
    """The weights that were told, all of them known; a number of sources must agree with them."""
    told: Sequence[float] | None = alphas
    if sources is None:
        return told
    count = mixing.sources if mixing is not None else None if told is None else len(told)
    if count is not None and count != sources:
        raise BasisError(f"{count} weights for {sources} sources; give one for each")
    return told if count is not None else (1.0,) * int(sources)


def check_observation(observation: Tensor, priors: Sequence[Prior], mixing: Mixing) -> Tensor:
    """The observation where the prior computes, after checking that it fits prior and mixing."""
    wanted = mixing.observed_shape(priors[0].shape)
    shape = tuple(observation.shape)
    if shape[1:] != wanted or len(shape) != len(wanted) + 1:
        raise BasisError(
            f"the mixture has shape {shape}; prior {priors[0].name!r} and this mixing take "
            f"(batch, {', '.join(map(str, wanted))}){_remedy(shape, wanted)}"
        )
    _check_reach(observation, priors, mixing)
    device = priors[0].device
    return observation if device is None else observation.to(device)


def _check_reach(observation: Tensor, priors: Sequence[Prior], mixing: Mixing) -> None:
    """Refuses values that are far from anything that sources in their range can make."""
    lows, highs = [p.low for p in priors], [p.high for p in priors]
    bottom = None if None in lows else min(lows)  # type: ignore[type-var]
    top = None if None in highs else max(highs)  # type: ignore[type-var]
    low, high = mixing.output_range(bottom, top)
    seen = mixing.observe(observation)
    least, most = seen.min().item(), seen.max().item()
    if low is None or high is None:
        return
    slack = high - low + 10 * mixing.noise
    if least < low - slack or most > high + slack:
        raise BasisError(
            f"the mixture's values go from {least:g} to {most:g}, where sources in "
            f"[{bottom:g}, {top:g}] make {low:g} to {high:g}: divide 8-bit pixels by 255, and give "
            "the alphas it was mixed with"
        )


def _remedy(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    if len(shape) != len(wanted) + 1:
        return ""
    if shape[1] != wanted[0]:
        if (shape[1], wanted[0]) == (3, 1):
            grey = "convert (--convert) makes this one grey"
            return f"; a prior of colour images is cifar10, and {grey}"
        colour = "; convert (--convert) makes a grey picture colour"
        return colour if (shape[1], wanted[0]) == (1, 3) else ""
    larger = all(a >= b for a, b in zip(shape[2:], wanted[1:], strict=True))
    sides = ", ".join(map(str, shape[2:]))
    if not larger:
        return "; resize (--resize) makes it larger" if len(shape) == 4 else ""
    resize = ", resize (--resize) makes it smaller" if len(shape) == 4 else ""
    return f"; basis.priors.Tiled(prior, {sides}) takes larger ones{resize}"


def make_sampler(sampler: str | Sampler, **options: Any) -> Sampler:
    """A sampler from its name and settings."""
    if isinstance(sampler, Sampler):
        if options:
            raise BasisError(
                f"settings ({', '.join(options)}) go with a sampler's name; this one is made "
                "already"
            )
        return sampler
    if sampler not in SAMPLERS:
        raise BasisError(f"unknown sampler {sampler!r}: give one of {', '.join(SAMPLERS)}")
    kind = SAMPLERS[sampler]
    known = [f.name for f in dataclasses.fields(kind)]
    for name in options:
        if name not in known:
            raise BasisError(
                f"sampler {sampler!r} has no setting {name!r}; it has {', '.join(known)}"
            )
    for f in dataclasses.fields(kind):
        value = options.get(f.name, f.default)
        if f.type == "int" and (isinstance(value, bool) or not isinstance(value, int)):
            raise BasisError(f"{f.name} must be a whole number, not {value!r}")
        if str(f.type).startswith("float") and (
            isinstance(value, bool) or not isinstance(value, int | float | None)
        ):
            raise BasisError(f"{f.name} must be a number, not {value!r}")
    return kind(**options)
