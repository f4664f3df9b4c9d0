"""Untrained networks that fit the data at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from basis._errors import BasisError
from basis.families import Family
from basis.nn import Experts, UNet, VarianceHead, grow_head, grow_unet
from basis.priors import Prior
from basis.store import load_prior
from basis.training._signals import Signals

_SIZES = ("fold", "widths", "blocks", "attention", "head_width", "embedding")
"""What a U-Net has in common with one that it starts from, unless something else is asked for."""


def new_module(
    family: Family, signals: Signals, sizes: Any, *, conditioned: bool, seed: int
) -> nn.Module:
    """An untrained network of a family for signals of this shape and range.

    Args:
        family: The kind of network.
        signals: The data.
        sizes: Sizes other than the family's, as a mapping or as its dataclass; what the data
            decides (channels, sides, mean, standard deviation) is filled in.
        conditioned: Whether one model is to answer for all noise levels.
        seed: Of the first weights.
    """
    if family.unit_range and (signals.low, signals.high) != (0.0, 1.0):
        raise BasisError(
            f"{family.kind} takes values in [0, 1] alone (low=0, high=1), not low {signals.low} "
            f"and high {signals.high}"
        )
    mean, std = signals.moments()
    values = family_sizes(family, signals, sizes) | {"conditioned": conditioned}
    names = {f.name for f in fields(family.sizes)} if family.sizes else set()
    values = {name: value for name, value in values.items() if name in names}
    architecture = {"kind": family.kind, "network": values, "mean": mean, "std": std}
    try:
        # The caller's own random numbers are left alone.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module: nn.Module = family.build_module(architecture)
        check = getattr(module, "check_shape", None)
        if check is not None:
            check(signals.shape)
    except BasisError:
        raise
    except (TypeError, ValueError) as error:
        raise BasisError(f"{family.kind}: {error}") from error
    return module


def family_sizes(family: Family, signals: Signals, sizes: Any) -> dict[str, Any]:
    """The sizes that were given, with what the data decides filled in."""
    given = as_mapping(sizes)
    family.make_sizes(given)  # an unknown size is refused before anything is built
    shape = signals.shape
    mean, std = signals.moments()
    facts = {"shape": shape, "channels": shape[0], "dims": len(shape) - 1}
    facts |= {"mean": mean, "std": std}
    if any(f.name == "size" for f in fields(family.sizes or Family)):
        if len(shape) != 3 or shape[1] != shape[2]:
            sides = "x".join(map(str, shape[1:]))
            raise BasisError(f"{family.kind} takes square images; these are {sides}")
        facts["size"] = shape[1]
    return given | facts


def as_mapping(sizes: Any) -> dict[str, Any]:
    """Sizes that were given, as a mapping or as a family's dataclass, by name."""
    if sizes is None:
        return {}
    if is_dataclass(sizes) and not isinstance(sizes, type):
        return asdict(sizes)
    if isinstance(sizes, Mapping):
        return dict(sizes)
    raise BasisError(f"sizes must be a mapping or the family's dataclass, not {sizes!r:.60}")


def count_classes(family: Family, signals: Signals) -> int:
    """How many classes a network of this family can be told of these signals."""
    if family.kind != "unet":
        raise BasisError(f"a unet can be told classes, not {family.kind}")
    if signals.labels is None or len(signals.classes) < 2:
        raise BasisError(f"{signals.name} has no labels of two or more classes to tell a network")
    return len(signals.classes)


def find_init(init: str | Path | Prior, root: str | Path | None) -> Prior:
    """The prior that a run starts from, by its name or folder, or as it is."""
    return init if isinstance(init, Prior) else load_prior(init, root=root)


def sizes_like(family: Family, prior: Prior, sizes: Any, sigma_min: float) -> dict[str, Any]:
    """Sizes with those of the U-Net that a run starts from where none are given."""
    known = getattr(_source(prior, sigma_min), "network", None)
    names = {f.name for f in fields(family.sizes)} if family.sizes else set()
    own = {}
    if isinstance(known, UNet):
        own = {name: getattr(known.config, name) for name in _SIZES if name in names}
    return own | as_mapping(sizes)


def _source(prior: Prior, sigma_min: float) -> Any:
    """The network of a prior that a run starts from.

    Of a prior of two networks the one for little noise goes on; where the run's own least noise,
    `sigma_min`, is not far below what the other answers for, that one does.
    """
    source = getattr(prior, "module", None)
    if isinstance(source, Experts) and sigma_min >= source.sigma / 2:
        return source.above
    return source


def start_from(module: nn.Module, prior: Prior, sigma_min: float = 0.0) -> nn.Module | None:
    """Gives the module a prior's weights; returns the prior's variance head, if it has one.

    A U-Net also starts from a smaller one: it then computes the same until it is trained on.
    """
    source = _source(prior, sigma_min)
    head: nn.Module | None = getattr(source, "head", None)
    small, large = getattr(source, "network", None), getattr(module, "network", None)
    if isinstance(small, UNet) and isinstance(large, UNet):
        classes = large.config.classes
        if replace(small.config, classes=classes) != large.config:
            return _grow(prior, small, large, head)
    try:
        # A variance head is not part of what is trained; it is fitted to the network at the end.
        weights = source.state_dict()
        # Nor is what it is told of classes where the new one is told of others, or of none.
        fits = getattr(small, "config", None) == getattr(large, "config", None)
        left = ("head.", "above.") if fits else ("head.", "above.", "network.told.")
        own = {n: t for n, t in weights.items() if not n.startswith(left)}
        # A denoiser has no constant to start an energy's from, a flow may have no wide steps, and a
        # network may not have been told classes; all of these change nothing at first.
        new = ("constant.", "wide.", "network.told.")
        blank = {n: t for n, t in module.state_dict().items() if n.startswith(new)}
        module.load_state_dict(blank | own)
    except (AttributeError, RuntimeError) as error:
        raise BasisError(
            f"prior {prior.name!r} has another architecture than the network asked for"
        ) from error
    return head


def _grow(prior: Prior, small: UNet, large: UNet, head: nn.Module | None) -> nn.Module | None:
    try:
        grow_unet(small, large)
    except ValueError as error:
        raise BasisError(f"prior {prior.name!r} does not fit into this network: {error}") from error
    if not isinstance(head, VarianceHead):
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        grown = VarianceHead(large.config)
    grow_head(head, grown)
    return grown
