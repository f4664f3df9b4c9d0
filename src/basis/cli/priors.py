"""`basis priors`: which priors there are, what their cards say, and how one is added."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import (
    add_json,
    add_root,
    add_seed_and_device,
    device_from,
    natural,
    number,
    out_folder,
    progress_bar,
    say,
    whole_number,
)
from basis.files import write_json

if TYPE_CHECKING:
    from basis.store.loading import PriorEntry


EPILOG = """\
examples:
  basis priors                                   those that can be used by name
  basis priors mnist                             the card of one of them (a folder will do too)
  basis priors add runs/photos --name photos     a trained prior, or a diffusers pipeline
  basis priors add hf:owner/name@main            from the model hub (needs huggingface_hub)
  basis priors measure runs/photos --data photos/    typical energies, written into its card:
                                                 what results are compared with to be plausible
  basis priors measure runs/photos --data photos/ --pairs 0 --spectrum
                                                 how values move together too, for draws of photos
  basis priors join runs/photos runs/much-noise --sigma 0.3 --out runs/both
                                                 one prior of two networks: the second answers for
                                                 noise of 0.3 and more
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "name",
        nargs="?",
        help="show this prior's card (a name or a folder), or: add, measure, join",
    )
    parser.add_argument(
        "source",
        nargs="?",
        help="what to add (a folder, a name on the model hub), to measure or to join (a prior)",
    )
    parser.add_argument("other", nargs="?", help="with join: the prior for much noise")
    parser.add_argument("--name", dest="called", metavar="NAME", help="with add: what to call it")
    group = parser.add_argument_group("measure")
    group.add_argument(
        "--data", help="what the prior was trained on (default: its own samples are measured)"
    )
    group.add_argument("--size", type=natural, help="side to which photos are cut and scaled")
    group.add_argument(
        "--held-out",
        type=natural,
        default=512,
        help="last images of the data, unseen in training (512)",
    )
    group.add_argument(
        "--pairs", type=whole_number, default=128, help="mixtures of two that are separated (128)"
    )
    group.add_argument("--effort", default="fast", help="of these separations (fast)")
    group.add_argument(
        "--spectrum",
        action="store_true",
        help="also measure how values move together, by which gibbs and ancestral then draw",
    )
    add_seed_and_device(group)
    group = parser.add_argument_group("join")
    group.add_argument(
        "--sigma", type=number, metavar="LEVEL", help="noise level from which the other one answers"
    )
    group.add_argument("--out", metavar="DIR", help="a new folder for the joined prior")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Lists priors, shows a card, or adds a prior."""
    from basis.errors import BasisError
    from basis.store.folder import read_card
    from basis.store.loading import add_prior, find_prior, list_priors

    if args.name != "join" and (args.other or args.sigma is not None or args.out):
        raise BasisError("a third word, --sigma and --out go with: basis priors join PRIOR OTHER")
    if args.name == "add":
        if not args.source:
            raise BasisError("basis priors add needs a folder or a name on the model hub")
        entry = add_prior(args.source, name=args.called, root=args.data_root)
        say(f"added {entry.name}: basis check {entry.name} says whether it is sound")
        record: dict[str, Any] = {"added": entry.name, "card": entry.record()}
    elif args.name == "measure":
        record = _measure(args)
    elif args.name == "join":
        record = _join(args)
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


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    """Measures typical energies and writes them into the prior's card."""
    from basis._check import measure_energies
    from basis.errors import BasisError
    from basis.priors.measured import measure_spectrum
    from basis.signals.datasets import load_images
    from basis.store.folder import CARD, update_card
    from basis.store.loading import find_prior, load_prior

    if not args.source:
        raise BasisError("basis priors measure needs a prior: a name or a folder")
    if args.spectrum and not args.data:
        raise BasisError("--spectrum is measured on signals: give --data")
    folder = find_prior(args.source, args.data_root)
    if not (folder / CARD).is_file():
        raise BasisError(f"{folder} has no {CARD} to write into; basis priors add makes one")
    prior = load_prior(folder, root=args.data_root, device=device_from(args.device))
    images = None
    if args.data:
        found = load_images(args.data, "train", root=args.data_root, size=args.size)
        images = found.floats(slice(-args.held_out, None))
    effort = int(args.effort) if args.effort.isdigit() else args.effort
    with progress_bar("measuring") as progress:
        energies = measure_energies(
            prior,
            images,
            pairs=args.pairs,
            effort=effort,
            seed=args.seed,
            about={"command": args.line},
            progress=progress,
        )
    entries: dict[str, Any] = {"energies": energies.to_dict()}
    if args.spectrum and images is not None:
        spectrum = measure_spectrum(prior, images, seed=args.seed, about={"command": args.line})
        entries["spectrum"] = spectrum.to_dict()
    card = update_card(folder, **entries)
    for name, curve in (("images", energies.images), ("separated", energies.separated)):
        if curve:
            ends = [curve[round(share * (len(curve) - 1))] for share in (0.05, 0.5, 0.95)]
            around = f"90 % of them from {ends[0]:.1f} to {ends[2]:.1f}"
            print(f"energies of {name}: median {ends[1]:.1f}, {around}")
    if args.spectrum:
        levels = spectrum.levels
        print(f"spectrum: {len(levels)} noise levels, {levels[0]:g} to {levels[-1]:g} spreads")
    say(f"written to {folder / CARD}")
    return {"measured": card.name, **entries}


def _join(args: argparse.Namespace) -> dict[str, Any]:
    """Joins two priors by noise and writes them as one."""
    import torch

    from basis.errors import BasisError
    from basis.priors.guidance import join_by_noise
    from basis.store.folder import CARD, read_card, write_prior
    from basis.store.loading import load_prior

    if not args.other or args.sigma is None or not args.out:
        raise BasisError("basis priors join needs two priors, --sigma LEVEL and --out DIR")
    out = out_folder(args.out)
    if (out / CARD).exists():
        raise BasisError(f"{out} holds a prior already; --out takes a new folder")
    first, second = (load_prior(name, root=args.data_root) for name in (args.source, args.other))
    joined = join_by_noise(first, second, args.sigma)
    joined.name = out.resolve().name
    own, other = ({} if p.card is None else dict(p.card.training) for p in (first, second))
    other = other.get("above", other)  # of a prior that was joined before, its second network's
    # What was measured on the first network alone is not true of both.
    write_prior(
        joined, out, dtype=torch.float16, quality=[], energies=None, spectrum=None,
        training=own | {"above": {**other, "sigma": args.sigma}},
    )  # fmt: skip
    say(f"joined: {out}  (basis priors measure {out} --data DATA --spectrum measures its energies)")
    return {"joined": joined.name, "card": read_card(out).to_dict()}


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
