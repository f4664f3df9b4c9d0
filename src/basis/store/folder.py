"""The folder of a prior: card.json and weights.safetensors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from basis.adapters.weights import Shapes, build_fitting, read_safetensors
from basis.errors import BasisError, one_line
from basis.files import read_json, sha256, sync, whole_file, write_text
from basis.nn.kinds import describe_module, find_kind
from basis.priors.card import Card
from basis.priors.prior import Prior

CARD = "card.json"
"""The file of a prior's folder that says what it is."""


def read_card(folder: str | Path) -> Card:
    """The card of a prior's folder, checked to hold what loading needs."""
    path = Path(folder) / CARD
    try:
        entries = read_json(path, "a prior's card")
    except BasisError as error:
        raise BasisError(f"{folder} is not a prior's folder: {error}") from error
    return Card.from_dict(entries, str(path))


def update_card(folder: str | Path, **entries: Any) -> Card:
    """Changes entries of a folder's card, given as JSON holds them, and keeps all others."""
    card = read_card(folder)
    changed = Card.from_dict({**card.to_dict(), **entries}, str(Path(folder) / CARD))
    write_card(folder, changed)
    return changed


def write_card(folder: str | Path, card: Card) -> None:
    """Writes a card into a prior's folder, whole or not at all."""
    write_text(Path(folder) / CARD, json.dumps(card.to_dict(), indent=2) + "\n")


WEIGHTS = "weights.safetensors"
"""The file of a prior's folder that holds its weights."""
NEXT = "weights-next.safetensors"
"""Weights that are written and whose card is not yet, or that only lack their name.

A folder changes from one prior to the next at the moment its card is replaced: before, the card is
that of the old weights; after, that of the next ones, whether or not these have their name.
"""


def write_weights(folder: Path, weights: Mapping[str, Tensor], dtype: torch.dtype) -> int:
    """Writes the next weights into a prior's folder, whole or not at all; returns how many there
    are. They count when there is a card of them and `settle` was called.
    """
    tensors = {n: t.detach().to("cpu", dtype).contiguous() for n, t in weights.items()}
    broken = [n for n, t in tensors.items() if not t.isfinite().all()]
    if broken:
        raise BasisError(
            f"the weights hold values that are no finite numbers ({broken[0]}); {folder} is left "
            "as it was"
        )
    with whole_file(folder / NEXT) as path:
        save_file(tensors, path)
    return sum(t.numel() for t in tensors.values())


def checked_weights(folder: Path, checksum: str) -> dict[str, Tensor]:
    """The weights of a prior's folder, as long as their checksum is the one on the card."""
    path = weights_path(folder, checksum)
    if not path.is_file():
        raise BasisError(f"{folder} holds no {WEIGHTS}")
    if sha256(path) != checksum:
        raise BasisError(
            f"{path} is damaged or was changed: its checksum is not the one on its card; "
            "put the original file back"
        )
    return read_safetensors(path)


def weights_path(folder: Path, checksum: str) -> Path:
    """Where the weights of a card with this checksum are: a writer may have been killed just
    before it gave them their name.
    """
    path, following = folder / WEIGHTS, folder / NEXT
    if following.is_file() and (not path.is_file() or sha256(path) != checksum):
        return following if sha256(following) == checksum else path
    return path


def settle(folder: Path) -> None:
    """Gives the next weights, whose card is written, their name."""
    os.replace(folder / NEXT, folder / WEIGHTS)
    sync(folder)


def build_module(architecture: Mapping[str, Any], shapes: Shapes | None = None) -> nn.Module:
    """The untrained network that an `architecture` entry of a card describes.

    Args:
        architecture: The entry.
        shapes: Those of the weights it is to hold, where they are known: building stops where it
            outgrows them.
    """
    family = find_kind(architecture.get("kind"))

    def build() -> nn.Module:
        # First weights are random and about to be replaced: the caller's numbers are left alone.
        with torch.random.fork_rng(devices=[]):
            module: nn.Module = family.build_module(architecture)
        return module

    try:
        if shapes is None:
            return build()
        return build_fitting(build, shapes, "a card's architecture cannot be built")
    except (BasisError, MemoryError):
        raise
    except Exception as error:  # layers raise anything on sizes that do not go together
        raise BasisError(f"a card's architecture cannot be built: {one_line(error)}") from error


def check_shape(path: Path, card: Card, module: nn.Module) -> None:
    """Refuses a card whose signals are none that its network takes.

    Args:
        path: The card's file, for errors.
        card: The card.
        module: The network built from it.
    """
    network = card.architecture.get("network")
    facts = {"channels": card.shape[0], "dims": len(card.shape) - 1}
    if len(card.shape) == 3:
        facts["size"] = card.shape[1]
    sizes = network if isinstance(network, Mapping) else {}
    for name, fact in facts.items():
        if sizes.get(name, fact) != fact:
            raise BasisError(
                f"{path}: its signals have shape {card.shape} and its network {name} "
                f"{sizes[name]!r:.40}; the two must agree"
            )
    for part in (module, getattr(module, "head", None)):
        check = getattr(part, "check_shape", None)
        if check is not None:
            try:
                check(card.shape)
            except ValueError as error:
                raise BasisError(f"{path}: {one_line(error)}") from error


def save_prior(
    folder: str | Path,
    weights: Mapping[str, Tensor],
    card: Mapping[str, Any],
    *,
    dtype: torch.dtype = torch.float16,
) -> Path:
    """Writes a prior's folder from weights and the entries of a card.

    Args:
        folder: Where; made when missing.
        weights: Parameters, by name and of the shapes of the module that the card's architecture
            describes.
        card: Entries of a `Card` as JSON holds them, without `sha256` and `parameters`, which are
            filled in. `value_range` is [0, 1] by default.
        dtype: The precision of the weights on disk.
    """
    folder = Path(folder)
    # Checked before anything is written.
    Card.from_dict({**card, "sha256": ""}, f"the card of {folder.name}")
    count = write_weights(folder, weights, dtype)
    entries = {**card, "parameters": count, "sha256": sha256(folder / NEXT)}
    write_card(folder, Card.from_dict(entries))
    settle(folder)
    return folder


def write_prior(
    prior: Prior, folder: str | Path, *, dtype: torch.dtype = torch.float32, **about: Any
) -> Path:
    """Saves a prior that is a network of a kind this package can build again.

    Args:
        prior: A `DenoiserPrior` or `LikelihoodPrior`.
        folder: Where; made when missing. `load_prior(folder)` gives the prior back.
        dtype: The precision of the weights on disk.
        about: What the card shall say beside what it must: title, license, data, training, quality.
    """
    module = getattr(prior, "module", None)
    if not isinstance(module, nn.Module):
        raise BasisError(
            f"prior {prior.name!r} is not a network that can be saved: a card describes networks"
        )
    entries = {
        **(prior.card.to_dict() if prior.card is not None else {}),
        "name": prior.name,
        "architecture": describe_module(module),
        "shape": list(prior.shape),
        "sigma_min": prior.sigma_min,
        "sigma_max": prior.sigma_max,
        "value_range": prior.value_range,
        "center": prior.center,
        "std": prior.std,
        "errors": dict(prior.errors or {}),
        **about,
    }
    return save_prior(folder, dict(module.named_parameters()), entries, dtype=dtype)
