"""`basis sample`: signals drawn from a prior, to see what it believes."""

from __future__ import annotations

import argparse

from basis.cli.arguments import (
    add_root,
    add_seed_and_device,
    device_from,
    natural,
    number,
    out_folder,
    progress_bar,
    say,
)
from basis.cli.away import add_away, away_from
from basis.files import write_json

EPILOG = """\
examples:
  basis sample mnist                            32 digits: samples.png and samples.npy
  basis sample runs/photos --count 2048 --out drawn
  basis sample cifar10:ship,truck --count 16    photos of some classes
  basis sample cifar10 --each-class --guidance 3    of every class, sharper and less varied
  basis sample cifar10 --each-class --guidance 2 --away cifar10-small    nearest to photos
  basis distance drawn/samples.npy cifar10 --network efficientnet-lite0      how far from photos
"""

_ROWS, _ROW, _LONGEST_ROW = 8, 8, 16

_GUIDED_BELOW = 8.0
"""The largest noise level of guidance to a class, in spreads: above, it makes colours glaring."""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("prior", metavar="NAME|DIR", help="NAME:CLASS,CLASS for some classes")
    parser.add_argument("--count", type=natural, default=32, help="images (32)")
    parser.add_argument(
        "--steps", type=natural, default=32, help="steps, of two network evaluations each (32)"
    )
    parser.add_argument(
        "--each-class",
        action="store_true",
        help="images of every class in turn, of a prior that can be told them",
    )
    parser.add_argument(
        "--guidance",
        type=number,
        default=0.0,
        metavar="STRENGTH",
        help="how far to lead away from the prior without its class: sharper, less varied, and "
        "twice as many evaluations (0: not at all; 3 for photos)",
    )
    add_away(parser)
    add_seed_and_device(parser)
    parser.add_argument("--out", default="samples", metavar="DIR", help="default: samples")
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Draws from the prior and writes the draws, a picture and a record."""
    import numpy as np

    from basis._sample import sample
    from basis.errors import BasisError
    from basis.files import whole_file
    from basis.plots.drawing import grid, write_picture
    from basis.plots.panels import pictures_panel
    from basis.priors.guidance import Autoguided
    from basis.store.loading import load_prior, split_classes

    out, device = out_folder(args.out), device_from(args.device)
    name, classes = split_classes(args.prior)
    prior = untold = load_prior(name, root=args.data_root, device=device)
    if args.guidance < 0:
        raise BasisError(f"--guidance must be 0 or more, not {args.guidance:g}")
    if classes and args.each_class:
        raise BasisError(
            f"{args.prior} is told its class: leave out :{','.join(classes)}, or --each-class"
        )
    if (args.each_class or args.guidance) and not untold.classes:
        untold.condition()  # says that it cannot be told any, and which can
    if classes:
        prior = untold.condition(*classes)
    if args.guidance:
        if prior is untold and not args.each_class:
            raise BasisError(f"guidance leads to a class: give {name}:CLASS, or --each-class")
        prior = Autoguided(prior, untold, args.guidance, below=_GUIDED_BELOW)
    prior = away_from(args, [prior])[0]
    with progress_bar(f"{prior.name}: {args.count} samples") as progress:
        images = sample(
            prior,
            args.count,
            steps=args.steps,
            seed=args.seed,
            each_class=args.each_class,
            progress=progress,
        )
    images = images.cpu()
    pixels = (prior.low, prior.high) == (0.0, 1.0)
    stored = images.mul(255).round().byte() if pixels else images
    with whole_file(out / "samples.npy") as path, path.open("wb") as file:
        np.save(file, stored.numpy())
    total, low, high = len(prior.classes), prior.low, prior.high
    if args.each_class and total <= min(args.count, _LONGEST_ROW):
        rows = min(_ROWS, args.count // total)
        by_class = images[: rows * total].unflatten(0, (rows, total))
        shown = pictures_panel(by_class, prior.classes, cell=64, value_range=(low, high))
    else:
        shown = grid(images[: _ROW * _ROWS], _ROW, value_range=(low, high))
    write_picture(out / "samples.png", shown)
    record = {"command": args.line, "seed": args.seed, "steps": args.steps, "count": args.count}
    write_json(out / "run.json", record | {"prior": prior.describe()})
    say(f"picture: {out / 'samples.png'}  images: {out / 'samples.npy'}")
