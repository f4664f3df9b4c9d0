"""Published checkpoints written as priors' folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from basis.adapters.glow import from_glow
from basis.adapters.ncsn import from_ncsn
from basis.errors import BasisError
from basis.store.folder import CARD, write_prior


def convert_glow(
    checkpoints: Sequence[str | Path],
    out: str | Path,
    *,
    sigmas: Sequence[float],
    size: int,
    name: str | None = None,
    about: dict[str, Any] | None = None,
) -> Path:
    """Writes published Glow checkpoints as one prior.

    Args:
        checkpoints, sigmas, size: As for `basis.adapters.from_glow`.
        out: The prior's folder. One that holds a prior already is refused.
        name: What its card calls it; the folder's name by default.
        about: Anything else for the card (source, license).
    """
    _check_new(out)
    called = name or Path(out).resolve().name
    prior = from_glow(checkpoints, sigmas=sigmas, size=size, name=called)
    card = {"title": "flow converted from published checkpoints", **(about or {})}
    return write_prior(prior, out, **card)


def convert_ncsn(
    checkpoint: str | Path,
    out: str | Path,
    *,
    config: str | Path | None = None,
    name: str | None = None,
    about: dict[str, Any] | None = None,
    **sizes: Any,
) -> Path:
    """Writes a published NCSN checkpoint as a prior.

    Args:
        checkpoint, config, sizes: As for `basis.adapters.from_ncsn`.
        out: The prior's folder. One that holds a prior already is refused.
        name: What its card calls it; the folder's name by default.
        about: Anything else for the card (source, license).
    """
    _check_new(out)
    called = name or Path(out).resolve().name
    prior = from_ncsn(checkpoint, config, name=called, **sizes)
    card = {"title": "score network converted from a published NCSN checkpoint", **(about or {})}
    return write_prior(prior, out, **card)


def _check_new(out: str | Path) -> None:
    """Refuses a folder that holds a prior already."""
    if (Path(out) / CARD).exists():
        raise BasisError(
            f"{out} holds a prior already, which would be overwritten; use another folder"
        )
