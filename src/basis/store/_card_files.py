"""card.json: the card of a prior's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis._files import write_text
from basis._reading import read_json
from basis.priors import Card

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
