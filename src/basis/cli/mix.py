"""`basis mix`: a mixture from pictures or other signals."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from basis.cli import arguments as flags

if TYPE_CHECKING:
    from basis.cli import Parser

EPILOG = """\
examples:
  basis mix sample:3 sample:18 --out mixture.npz               two digits of the package
  basis mix a.png b.png --alphas 0.5 0.5 --out mixture.png
  basis mix cat.jpg dog.jpg --size 32 --alphas 0.5 0.5 --out mixture.png
  basis mix flute.npy drum.npy --out mixture.npz
  basis mix sample --count 6 --out mixtures.npz                pairs of random digits

An .npz contains the mixture, its sources and alphas, which `basis separate` compares its answer
with. A picture holds 8-bit values from 0 to 1: give alphas whose sum is at most 1, or --clip.
"""


def add(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = EPILOG
    parser.usage = "basis mix SOURCE SOURCE ... [--alphas A ...] [--out FILE] ..."
    parser.add_argument(
        "inputs", nargs="+", metavar="SOURCE", help="files, or images of a data set (sample:3)"
    )
    parser.add_argument(
        "--alphas", type=flags.number, nargs="+", metavar="A", help="one per source (default: 1)"
    )
    parser.add_argument(
        "--noise", type=flags.number, default=0.0, help="standard deviation of added noise"
    )
    parser.add_argument("--clip", action="store_true", help="cut off values above 1")
    parser.add_argument("--out", default="mixture.npz", metavar="FILE", help=".npz, .npy or .png")
    flags.add_reading(parser, invert=False)
    group = parser.add_argument_group("more")
    group.add_argument(
        "--count", type=flags.natural, default=6, help="mixtures of a data set (default 6)"
    )
    flags.add_seed(group)
    flags.add_root(group)


def run(args: argparse.Namespace) -> None:
    """Adds the sources and writes the mixture."""
    from basis._mix import mix, test_mixtures

    same = {"alphas": args.alphas, "noise": args.noise, "seed": args.seed}
    name = flags.data_set(args.inputs)
    if name is not None:
        mixture = test_mixtures(name, args.count, **same)
    else:
        mixture = mix(args.inputs, clip=args.clip, **flags.reading(args), **same)
    mixture.save(args.out)
    print(mixture)
    print(f"written to {args.out}")
