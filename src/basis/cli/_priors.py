"""`basis priors`: which priors there are, and what their cards say."""

from __future__ import annotations

import argparse
import json
from typing import Any

from basis.cli._common import add_json, add_root, write_json


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("name", nargs="?", help="show this prior's card (a name or a folder)")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    from basis.priors import list_priors, read_card
    from basis.priors._store import find_prior

    if args.name:
        card = read_card(find_prior(args.name, args.data_root))
        _show(card)
        record: dict[str, Any] = card
    else:
        entries = list_priors(args.data_root)
        for entry in entries:
            card = entry.card
            shape = "x".join(map(str, card["shape"]))
            span = f"sigma {card['sigma_min']:g} to {card['sigma_max']:g}"
            print(f"{entry.name:14} {shape:9} {span:22} {card.get('title', '')}")
        if not entries:
            print("no priors found; `basis train` makes one")
        record = {"priors": [entry.card for entry in entries]}
    if args.json:
        write_json(args.json, record)


def _show(card: dict[str, Any], indent: str = "") -> None:
    for key, value in card.items():
        if isinstance(value, dict):
            print(f"{indent}{key}:")
            _show(value, indent + "  ")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            print(f"{indent}{key}: {text}")
