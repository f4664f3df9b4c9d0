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
"""The file of a prior's folder that holds its card."""
WEIGHTS = "weights.safetensors"
"""The file of a prior's folder that holds its weights."""
NEXT = "weights-next.safetensors"
"""New weights whose card is not written yet, or that have not been renamed.

A folder changes from one prior to the next at the moment its card is replaced. The weights of the
new card count from then on, even if the program was killed before it could rename them.
"""


def read_card(folder: str | Path) -> Card:
    """The card of a prior's folder, checked."""
    path = Path(folder) / CARD
    try:
        entries = read_json(path, "a prior's card")
    except BasisError as error:
        raise BasisError(f"{folder} is not a prior's folder: {error}") from error
    return Card.from_dict(entries, str(path))


def write_card(folder: Path, card: Card) -> None:
    """Writes a card into a prior's folder, whole or not at all."""
    write_text(folder / CARD, json.dumps(card.to_dict(), indent=2) + "\n")


def update_card(folder: str | Path, **entries: Any) -> Card:
    """Changes entries of a folder's card, given as JSON holds them, and keeps all others."""
    folder = Path(folder)
    card = Card.from_dict({**read_card(folder).to_dict(), **entries}, str(folder / CARD))
    write_card(folder, card)
    return card


def weights_path(folder: Path, checksum: str) -> Path:
    """The weights file with the checksum of the folder's card."""
    path, following = folder / WEIGHTS, folder / NEXT
    if following.is_file() and (not path.is_file() or sha256(path) != checksum):
        return following if sha256(following) == checksum else path
    return path


def checked_weights(folder: Path, checksum: str) -> dict[str, Tensor]:
    """The weights of a prior's folder, if their checksum is that of its card."""
    path = weights_path(folder, checksum)
    if not path.is_file():
        raise BasisError(f"{folder} holds no {WEIGHTS}")
    if sha256(path) != checksum:
        raise BasisError(
            f"{path} is damaged or was changed: its checksum is not the one on its card; "
            "restore the original file"
        )
    return read_safetensors(path)


def build_module(architecture: Mapping[str, Any], shapes: Shapes | None = None) -> nn.Module:
    """The untrained network that an `architecture` entry of a card describes.

    Args:
        architecture: The entry.
        shapes: Those of the weights it is to hold, if known: building stops if it outgrows them.
    """
    kind = find_kind(architecture.get("kind"))

    def build() -> nn.Module:
        # The first weights are random and replaced: the caller's random numbers are not touched.
        with torch.random.fork_rng(devices=[]):
            return kind.build_module(architecture)

    try:
        if shapes is None:
            return build()
        return build_fitting(build, shapes, "a card's architecture cannot be built")
    except (BasisError, MemoryError):
        raise
    except Exception as error:  # layers raise anything for sizes that contradict each other
        raise BasisError(f"a card's architecture cannot be built: {one_line(error)}") from error


def check_shape(path: Path, card: Card, module: nn.Module) -> None:
    """Refuses a card whose signals do not fit its network.

    Args:
        path: The card's file, for errors.
        card: The card.
        module: The network built from it.
    """
    network = card.architecture.get("network")
    config = network if isinstance(network, Mapping) else {}
    facts = {"channels": card.shape[0], "dims": len(card.shape) - 1}
    if len(card.shape) == 3:
        facts["size"] = card.shape[1]
    for name, fact in facts.items():
        if config.get(name, fact) != fact:
            raise BasisError(
                f"{path}: shape {card.shape} does not fit its network's {name} {config[name]!r:.40}"
            )
    parts: list[Any] = [module, getattr(module, "head", None)]
    for part in parts:
        if hasattr(part, "check_shape"):
            try:
                part.check_shape(card.shape)
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
        folder: Created if missing.
        weights: Parameters by name, with the shapes of the module that the card describes.
        card: Entries of a `Card` as JSON holds them; `sha256` and `parameters` are filled in.
        dtype: The precision of the weights on disk.
    """
    folder = Path(folder)
    # Checked before anything is written.
    Card.from_dict({**card, "sha256": ""}, f"the card of {folder.name}")
    tensors = {n: t.detach().to("cpu", dtype).contiguous() for n, t in weights.items()}
    broken = [n for n, t in tensors.items() if not t.isfinite().all()]
    if broken:
        raise BasisError(f"{folder} is not written: weight {broken[0]} is not finite")
    with whole_file(folder / NEXT) as path:
        save_file(tensors, path)
    count = sum(t.numel() for t in tensors.values())
    entries = {**card, "parameters": count, "sha256": sha256(folder / NEXT)}
    write_card(folder, Card.from_dict(entries))
    os.replace(folder / NEXT, folder / WEIGHTS)
    sync(folder)
    return folder


def write_prior(
    prior: Prior, folder: str | Path, *, dtype: torch.dtype = torch.float32, **about: Any
) -> Path:
    """Saves a prior that is a network of a known kind.

    Args:
        prior: A `DenoiserPrior` or `LikelihoodPrior`.
        folder: Created if missing. `load_prior(folder)` loads the prior.
        dtype: The precision of the weights on disk.
        about: Further entries of the card: title, license, data, training, quality.
    """
    module = getattr(prior, "module", None)
    if not isinstance(module, nn.Module):
        raise BasisError(f"prior {prior.name!r} is not a network and cannot be saved")
    names = ("name", "shape", "sigma_min", "sigma_max", "value_range", "center", "std", "errors")
    entries = {
        **(prior.card.to_dict() if prior.card is not None else {}),
        **{name: getattr(prior, name) for name in names},
        "architecture": describe_module(module),
        **({} if prior.energies is None else {"energies": prior.energies.to_dict()}),
        **about,
    }
    return save_prior(folder, dict(module.named_parameters()), entries, dtype=dtype)
