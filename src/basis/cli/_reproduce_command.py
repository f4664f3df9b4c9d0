"""`basis reproduce`: the paper's tables and figures, made again."""

from __future__ import annotations

import argparse
from typing import Any

from basis._files import write_text
from basis.cli._arguments import add_root, add_seed_and_device, device_from, number, out_folder

_NAMES = (
    "teaser", "mnist-agnostic", "mnist-split", "cifar-agnostic", "cifar-split", "colour", "class-priors",
    "scenes", "histogram", "ablation", "gradients", "likelihoods", "states", "repeats", "uncurated",
)  # fmt: skip
_SIZES = {"quick": 0.03, "full": 1.0}

EPILOG = """\
names: all, or some of
  teaser                        four digits in one picture, an ambiguous one marked
  mnist-agnostic, mnist-split   PSNR of every method on the same mixtures
  cifar-agnostic, cifar-split   distances of separated photos from photos
  colour                        grey photos coloured again
  class-priors, scenes          a prior for each source: halves of the classes, churches with bedrooms
  histogram                     PSNR of single mixtures
  ablation                      greedy and annealed ascent beside Langevin dynamics
  gradients, likelihoods        what the paper measures of priors
  states, repeats, uncurated    along the annealing; the same mixtures again; the first ones, whatever they look like

examples:
  basis reproduce all --size quick          a quick version of everything
  basis reproduce mnist-split --size full   as many mixtures as published

The folder gets report.html, a single file, its tables as tables.md, and shards of results: a run that was stopped goes on, and a second run with
the same settings is instant.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("names", nargs="+", choices=("all", *_NAMES), metavar="NAME")
    parser.add_argument(
        "--size", default="quick", help="quick (the default), full, or a share such as 0.1"
    )
    parser.add_argument("--data", default="mnist", help="mnist (the default) or sample")
    add_seed_and_device(parser)
    parser.add_argument("--out", default="reproduced", metavar="DIR", help="default: reproduced")
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    from tqdm import tqdm

    from basis import BasisError
    from basis.reproduce import PIECES, Shards, Workshop, report, tables_markdown

    try:
        size = _SIZES.get(args.size) or number(args.size)
    except argparse.ArgumentTypeError:
        size = 0.0
    if not 0 < size <= 1:
        raise BasisError(
            f"--size takes quick, full, or a share above 0 and up to 1, not {args.size}"
        )
    if args.data not in ("mnist", "sample"):
        raise BasisError(f"--data takes mnist or sample, not {args.data}")
    out = out_folder(args.out)
    names = list(PIECES) if "all" in args.names else list(dict.fromkeys(args.names))
    with tqdm(
        total=1.0,
        leave=False,
        disable=None,
        bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
    ) as bar:
        now = ""

        def tell(what: str, share: float) -> None:
            nonlocal now
            if what != now:
                now = what
                bar.reset(total=1.0)
                bar.set_description(what)
            bar.update(share - bar.n)

        shop: Any = Workshop(
            Shards(out / "shards"),
            size=size,
            seed=args.seed,
            root=args.data_root,
            data=args.data,
            device=device_from(args.device),
            tell=tell,
        )
        pieces = []
        for name in names:
            piece = PIECES[name](shop)
            pieces.append(piece)
            bar.write(f"{name}: {piece.seconds:.0f} s of computing")
            # The page grows as it is made, so that there is something to look at early.
            report(pieces, out / "report.html", command=args.line)
            write_text(out / "tables.md", tables_markdown(pieces, command=args.line))
    for piece in pieces:
        for table in piece.tables:
            print(f"\n{piece.title}")
            for row in (table.header, *table.rows):
                print("  " + " | ".join(row))
    print(f"\nreport: {out / 'report.html'}")
