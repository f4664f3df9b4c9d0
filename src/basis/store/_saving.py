"""Writing priors: weights first, then the card with their checksum, then the weights' name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from basis._errors import BasisError
from basis._files import sha256
from basis.families import describe_module
from basis.priors import Card, Prior
from basis.store._card_files import write_card
from basis.store._weight_files import NEXT, settle, write_weights


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
            filled in. Where neither `low` nor `high` is given, values are taken to be in [0, 1].
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
        about: What the card shall say beside what it must: title, licence, data, training, quality.
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
        "low": prior.low,
        "high": prior.high,
        "center": prior.center,
        "spread": prior.spread,
        "errors": dict(prior.errors or {}),
        **about,
    }
    return save_prior(folder, dict(module.named_parameters()), entries, dtype=dtype)
