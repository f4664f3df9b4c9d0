"""`basis priors`: which priors there are, what their cards say, and how one is added."""

from __future__ import annotations

import argparse
import json
from typing import Any

from basis.cli._arguments import add_json, add_root, write_json

EPILOG = """\
examples:
  basis priors                                   those that can be used by name
  basis priors mnist                             the card of one of them (a folder will do too)
  basis priors add runs/photos --name photos     from a folder: a trained prior, or a diffusers pipeline
  basis priors add hf:owner/name                 from the model hub (needs huggingface_hub)
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "name", nargs="?", help="show this prior's card (a name or a folder), or: add"
    )
    parser.add_argument("source", nargs="?", help="with add: a folder, or a name on the model hub")
    parser.add_argument("--name", dest="called", metavar="NAME", help="with add: what to call it")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    from basis import BasisError
    from basis.store import add_prior, find_prior, list_priors, read_card

    if args.name == "add":
        if not args.source:
            raise BasisError("basis priors add needs a folder or a name on the model hub")
        entry = add_prior(args.source, name=args.called, root=args.data_root)
        print(f"added {entry.name}: basis check {entry.name} says whether it is sound")
        record: dict[str, Any] = {"added": entry.name, "card": entry.card}
    elif args.source or args.called:
        raise BasisError("a second word and --name go with: basis priors add SOURCE")
    elif args.name:
        made = [e for e in list_priors(args.data_root) if e.name == args.name and e.maker]
        record = made[0].card if made else read_card(find_prior(args.name, args.data_root))
        _show(record)
    else:
        entries = list_priors(args.data_root)
        for entry in entries:
            print(f"{entry.name:14} {_size(entry.card):32} {entry.card.get('title', '')}")
        if not entries:
            print("no priors found; `basis train` makes one")
        record = {"priors": [entry.card for entry in entries]}
    if args.json:
        write_json(args.json, record)


def _size(card: dict[str, Any]) -> str:
    """Shape and noise range, where a card tells them."""
    if "shape" not in card:
        return ""
    shape = "x".join(map(str, card["shape"]))
    return f"{shape:9} sigma {card['sigma_min']:.3g} to {card['sigma_max']:.3g}"


def _show(card: dict[str, Any], indent: str = "") -> None:
    for key, value in card.items():
        if isinstance(value, dict):
            print(f"{indent}{key}:")
            _show(value, indent + "  ")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            print(f"{indent}{key}: {text}")
