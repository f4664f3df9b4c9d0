"""`basis sample`: samples of a prior."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from basis.cli import arguments as flags

if TYPE_CHECKING:
    from basis.cli import Parser

EPILOG = """\
examples:
  basis sample mnist                            16 digits: samples.png and samples.npy
  basis sample runs/photos --count 2048 --out drawn
  basis sample cifar10:ship,truck               photos of some classes
  basis sample cifar10 --each-class --guidance 3
  basis sample cifar10 --autoguidance cifar10-small
"""

_ROWS, _COLUMNS, _MOST_CLASSES = 8, 8, 16
_GUIDED_BELOW = 8.0
"""The largest noise level of class guidance, in units of std: above, it exaggerates colors."""


def add(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = EPILOG
    parser.usage = "basis sample PRIOR [--count N] [--out DIR] ..."
    parser.add_argument("prior", metavar="PRIOR", help="a name or a folder; NAME:CLASS,CLASS")
    parser.add_argument("--count", type=flags.natural, default=16, help="samples (default 16)")
    parser.add_argument("--each-class", action="store_true", help="samples of every class in turn")
    flags.add_seed(parser)
    flags.add_out(parser, "samples")
    group = parser.add_argument_group("how")
    group.add_argument(
        "--steps", type=flags.natural, default=32, help="of two evaluations each (default 32)"
    )
    group.add_argument(
        "--guidance",
        type=flags.number,
        default=0.0,
        metavar="STRENGTH",
        help="classifier-free guidance to the class (default 0; 3 works well for photos)",
    )
    flags.add_autoguidance(group)
    group = parser.add_argument_group("computing")
    flags.add_device(group)
    group.add_argument(
        "--batch-size", type=flags.natural, default=64, metavar="N", help="at once (default 64)"
    )
    flags.add_root(group)


def run(args: argparse.Namespace) -> None:
    """Samples the prior and writes the samples, a picture and a record."""
    import numpy as np

    from basis._sample import sample
    from basis.errors import BasisError
    from basis.files import whole_file, write_json
    from basis.plots.drawing import grid, write_picture
    from basis.plots.panels import pictures_panel
    from basis.priors.guidance import Autoguided
    from basis.priors.prior import Prior
    from basis.store.loading import split_classes

    out, device = flags.out_folder(args.out), args.device or "cpu"
    name, classes = split_classes(args.prior)
    prior = base = Prior.from_pretrained(name, device=device)
    if args.guidance < 0:
        raise BasisError(f"--guidance must be at least 0, not {args.guidance:g}")
    if classes and args.each_class:
        raise BasisError(f"give :{','.join(classes)} or --each-class, not both")
    if classes or ((args.each_class or args.guidance) and not base.classes):
        prior = base.condition(*classes)
    if args.guidance:
        if not (classes or args.each_class):
            raise BasisError(f"--guidance needs classes: {name}:CLASS, or --each-class")
        prior = Autoguided(prior, base, args.guidance, below=_GUIDED_BELOW)
    if args.autoguidance:
        weaker = Prior.from_pretrained(args.autoguidance, device=device)
        prior = prior.autoguide(weaker, args.strength, finer=None)
    images = sample(
        prior,
        args.count,
        steps=args.steps,
        seed=args.seed,
        batch_size=args.batch_size,
        each_class=args.each_class,
    ).cpu()
    total = len(prior.classes)
    stored = images.mul(255).round().byte() if prior.value_range == (0, 1) else images
    with whole_file(out / "samples.npy") as path, path.open("wb") as file:
        np.save(file, stored.numpy())
    if args.each_class and total <= min(args.count, _MOST_CLASSES):
        rows = min(_ROWS, args.count // total)
        by_class = images[: rows * total].unflatten(0, (rows, total))
        picture = pictures_panel(
            by_class, prior.classes, cell=64, value_range=(prior.low, prior.high)
        )
    else:
        picture = grid(images[: _ROWS * _COLUMNS], _COLUMNS, value_range=(prior.low, prior.high))
    write_picture(out / "samples.png", picture)
    record = {"command": args.line, "seed": args.seed, "steps": args.steps, "count": args.count}
    write_json(out / "run.json", record | {"prior": prior.describe()})
    print(f"written to {out}: samples.png, samples.npy")
