"""`basis priors`: which priors there are, what their cards say, and how one is added."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from basis.cli._arguments import add_json, add_root, say, write_json

if TYPE_CHECKING:
    from basis.store import PriorEntry

EPILOG = """\
examples:
  basis priors                                   those that can be used by name
  basis priors mnist                             the card of one of them (a folder will do too)
  basis priors add runs/photos --name photos     a trained prior, or a diffusers pipeline
  basis priors add hf:owner/name@main            from the model hub (needs huggingface_hub)
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
    """Lists priors, shows a card, or adds a prior."""
    from basis import BasisError
    from basis.store import add_prior, find_prior, list_priors, read_card

    if args.name == "add":
        if not args.source:
            raise BasisError("basis priors add needs a folder or a name on the model hub")
        entry = add_prior(args.source, name=args.called, root=args.data_root)
        say(f"added {entry.name}: basis check {entry.name} says whether it is sound")
        record: dict[str, Any] = {"added": entry.name, "card": entry.record()}
    elif args.source or args.called:
        raise BasisError("a second word and --name go with: basis priors add SOURCE")
    elif args.name:
        made = [e for e in list_priors(args.data_root) if e.name == args.name and e.maker]
        folder = None if made else find_prior(args.name, args.data_root)
        record = made[0].record() if folder is None else read_card(folder).to_dict()
        _show(record)
    else:
        entries = list_priors(args.data_root)
        for entry in entries:
            say(f"{entry.name:14} {_size(entry):32} {entry.title}")
        if not entries:
            say("no priors found; `basis train` makes one")
        record = {"priors": [entry.record() for entry in entries]}
    if args.json:
        write_json(args.json, record)


def _size(entry: PriorEntry) -> str:
    """Shape and noise range, where there is a card that tells them."""
    card = entry.card
    if card is None:
        return ""
    shape = "x".join(map(str, card.shape))
    return f"{shape:9} sigma {card.sigma_min:.3g} to {card.sigma_max:.3g}"


def _show(card: dict[str, Any], indent: str = "") -> None:
    for key, value in card.items():
        if isinstance(value, dict):
            say(f"{indent}{key}:")
            _show(value, indent + "  ")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            say(f"{indent}{key}: {text}")
