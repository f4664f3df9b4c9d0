"""`basis priors`: list, show, add or measure priors."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from basis.cli import arguments as flags

if TYPE_CHECKING:
    from basis.cli import Parser

EPILOG = """\
examples:
  basis priors list                                    priors that have a name
  basis priors show mnist                              the card of a prior, or of its folder
  basis priors add runs/photos --name photos           gives a trained prior a name
  basis priors add owner/name --revision main          from the model hub
  basis priors measure runs/photos --data photos/      adds typical energies to its card, which
                                                       results are compared with
"""


def add(parser: Parser) -> None:
    """Adds the arguments of the command."""
    from basis.cli import Parser as Kind

    parser.epilog = EPILOG
    actions = parser.add_subparsers(
        dest="action", metavar="list|show|add|measure", required=True, parser_class=Kind
    )
    listed = actions.add_parser("list", description="Lists the priors that have a name.")
    shown = actions.add_parser("show", description="Shows the card of a prior.")
    added = actions.add_parser("add", description="Gives a prior a name.")
    measured = actions.add_parser("measure", description="Measures the typical energies.")
    shown.add_argument("prior", metavar="PRIOR", help="a name or a folder")
    added.add_argument(
        "prior", metavar="SOURCE", help="a folder, a diffusers pipeline, or owner/name on the hub"
    )
    added.add_argument("--name", dest="called", metavar="NAME", help="the new name")
    added.add_argument("--revision", help="commit, tag or branch on the hub")
    measured.add_argument("prior", metavar="PRIOR", help="a name or a folder")
    measured.add_argument("--data", help="what it was trained on (default: its own samples)")
    measured.add_argument("--size", type=flags.natural, help="crop and resize photos to N x N")
    measured.add_argument(
        "--held-out", type=flags.natural, default=512, help="last signals of the data (default 512)"
    )
    measured.add_argument(
        "--pairs", type=flags.whole_number, default=128, help="mixtures of two (default 128)"
    )
    measured.add_argument("--method", type=flags.method, default="fast", help="default: fast")
    measured.add_argument(
        "--spectrum", action="store_true", help="measure the power spectrum of the errors too"
    )
    flags.add_seed_and_device(measured)
    for one in (listed, shown, added, measured):
        flags.add_root(one)
        flags.add_json(one)


def run(args: argparse.Namespace) -> None:
    """Lists, shows, adds or measures priors."""
    from basis.files import write_json

    action = {"list": _list, "show": _show, "add": _add, "measure": _measure}[args.action]
    record = action(args)
    if args.json:
        write_json(args.json, record)


def _list(args: argparse.Namespace) -> dict[str, Any]:
    from basis.store.loading import list_priors

    entries = list_priors()
    for entry in entries:
        flags.say(f"{entry.name:14} {_size(entry.card):32} {entry.title}")
    if not entries:
        print("there are no priors; basis train makes one")
    return {"priors": [entry.record() for entry in entries]}


def _size(card: Any) -> str:
    """Shape and noise levels of a prior that has a card."""
    if card is None:
        return ""
    shape = "x".join(map(str, card.shape))
    return f"{shape:9} sigma {card.sigma_min:.3g} to {card.sigma_max:.3g}"


def _show(args: argparse.Namespace) -> dict[str, Any]:
    from basis.store.folder import CARD, read_card
    from basis.store.loading import find_prior, is_pipeline, list_priors, load_prior

    made = [e for e in list_priors() if e.name == args.prior and e.maker]
    folder = None if made else find_prior(args.prior)
    if folder is None:
        record = made[0].record()
    elif not (folder / CARD).is_file() and is_pipeline(folder):
        about = {"title": "a diffusers pipeline without a card; basis priors add makes one"}
        record = {**load_prior(folder).describe(), **about}
    else:
        record = read_card(folder).to_dict()
    _print_record(record)
    return record


def _print_record(record: dict[str, Any], indent: str = "") -> None:
    for key, value in record.items():
        if isinstance(value, dict):
            flags.say(f"{indent}{key}:")
            _print_record(value, indent + "  ")
        else:
            flags.say(f"{indent}{key}: {value if isinstance(value, str) else json.dumps(value)}")


def _add(args: argparse.Namespace) -> dict[str, Any]:
    from basis.store.loading import add_prior

    more = {} if args.revision is None else {"revision": args.revision}
    entry = add_prior(args.prior, name=args.called, **more)
    print(f"added {entry.name}; basis check {entry.name} tests it")
    return {"added": entry.name, "card": entry.record()}


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    from basis._check import measure_energies
    from basis.errors import BasisError
    from basis.priors.prior import Prior
    from basis.priors.spectrum import measure_spectrum
    from basis.signals.datasets import load_images
    from basis.store.folder import CARD, update_card
    from basis.store.loading import find_prior

    if args.spectrum and not args.data:
        raise BasisError("--spectrum is measured on signals: give --data")
    folder = find_prior(args.prior)
    if not (folder / CARD).is_file():
        raise BasisError(f"{folder} has no {CARD}; basis priors add makes one")
    prior = Prior.from_pretrained(folder, device=args.device or "cpu")
    signals = None
    if args.data:
        signals = load_images(args.data, "train", size=args.size).floats(
            slice(-args.held_out, None)
        )
    same: dict[str, Any] = {"seed": args.seed, "about": {"command": args.line}}
    energies = measure_energies(prior, signals, pairs=args.pairs, method=args.method, **same)
    entries: dict[str, Any] = {"energies": energies.to_dict()}
    if signals is not None and args.spectrum:
        entries["spectrum"] = measure_spectrum(prior, signals, **same).to_dict()
    card = update_card(folder, **entries)
    for name, curve in (("signals", energies.images), ("separated", energies.separated)):
        if curve:
            low, middle, high = (curve[round(q * (len(curve) - 1))] for q in (0.05, 0.5, 0.95))
            print(f"energies of {name}: median {middle:.1f}, 90 % from {low:.1f} to {high:.1f}")
    print(f"written to {folder / CARD}")
    return {"measured": card.name, **entries}
