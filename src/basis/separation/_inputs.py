"""What people give to a separation: priors by name, mixtures by path, weights that files bring."""

from __future__ import annotations

import difflib
import inspect
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from basis._devices import find_device
from basis._errors import BasisError
from basis.mixings import Mixing
from basis.priors import Prior
from basis.samplers import SAMPLERS
from basis.store import load_prior

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
    used = mixing.exact.unmasked().weights
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
