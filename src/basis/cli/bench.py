"""`basis bench`: quality, cost, speed and growth, in one run."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import (
    add_json,
    add_pairs,
    add_root,
    add_seed_and_device,
    device_from,
    natural,
    out_folder,
    progress_bar,
    say,
)
from basis.errors import markdown_code
from basis.files import write_json, write_text

if TYPE_CHECKING:
    from torch import Tensor

    from basis.lab.bench import Growth, Quality
    from basis.priors.prior import Prior


EPILOG = """\
examples:
  basis lab --pairs 512 --out lab                       every effort and every sampler on MNIST
  basis lab --ways fast best basis --k 3 --pairs 64       three of them on mixtures of three
  basis lab --data sample --pairs 8 --ways fast gibbs --mixtures 100     a quick look with no data

The folder gets lab.md (the tables), lab.png (PSNR against cost) and lab.json.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = EPILOG
    add_pairs(parser, 64)
    parser.add_argument(
        "--ways",
        nargs="+",
        metavar="WAY",
        help="efforts (names or numbers of evaluations) and samplers to compare (default: every "
        "name but the two ascents)",
    )
    parser.add_argument(
        "--mixtures",
        type=int,
        nargs="*",
        default=[100, 1000],
        help="numbers of mixtures for the growth of time and memory (default: 100 1000; none: no "
        "growth)",
    )
    parser.add_argument(
        "--sources",
        type=natural,
        nargs="*",
        default=[2, 3, 4],
        help="numbers of sources for the growth of time (default: 2 3 4)",
    )
    parser.add_argument(
        "--no-times",
        action="store_true",
        help="leave times out of tables and plot: for a machine that does other work as well",
    )
    parser.add_argument(
        "--peers",
        type=natural,
        nargs="?",
        const=200,
        metavar="EVALUATIONS",
        help="also run azula's MMPS, TMPD and DPS with so many evaluations, back-propagations "
        "counted (200)",
    )
    parser.add_argument("--prior", default="mnist", metavar="NAME|DIR", help="default: mnist")
    add_seed_and_device(parser)
    parser.add_argument("--out", default="lab", metavar="DIR", help="default: lab")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Measures what the arguments ask for and writes tables, plot and record."""
    from basis import lab
    from basis._mix import draw_pairs
    from basis._version import __version__
    from basis.plots.charts import require_matplotlib
    from basis.signals.datasets import load_images
    from basis.store.loading import load_prior

    ways = [lab.find_way(name) for name in args.ways or lab.DEFAULT_WAYS]
    cases = lab.growth_cases(args.mixtures, args.sources)
    require_matplotlib()
    out = out_folder(args.out)
    prior = load_prior(args.prior, root=args.data_root, device=device_from(args.device))
    images = load_images(args.data, "test", root=args.data_root)
    pairs = draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)

    rows = [lab.average_quality(pairs, prior)]
    _print_row(rows[0])
    for way in ways:
        with progress_bar(way.name) as progress:
            row = lab.measure_quality(way, prior, pairs, seed=args.seed, progress=progress)
        rows.append(row)
        _print_row(row)
    for peer in lab.PEERS if args.peers else ():
        row = lab.measure_peer(peer, prior, pairs, evaluations=args.peers, seed=args.seed)
        rows.append(row)
        _print_row(row)
    speed = None if args.no_times else lab.measure_speed(prior)
    signals = images.floats(slice(1000))
    growth = [_growth(prior, signals, mixtures, k) for mixtures, k in cases]
    tables = lab.markdown(rows, speed, growth, times=not args.no_times)
    tables += f"\n{markdown_code(args.line)}, version {__version__}\n"
    title = f"{args.pairs} mixtures of {args.k} ({args.data}, {args.protocol}), {prior.name} prior"
    lab.plot_quality(rows, out / "lab.png", title, times=not args.no_times)
    write_text(out / "lab.md", tables)
    record = {
        "command": args.line,
        "data": args.data,
        "protocol": args.protocol,
        "pairs": args.pairs,
        "k": args.k,
        "seed": args.seed,
        "prior": prior.describe(),
        **lab.record(rows, speed, growth),
    }
    write_json(out / "lab.json", record)
    if args.json:
        write_json(args.json, record)
    print("\n" + tables)
    say(f"picture: {out / 'lab.png'}")


def _print_row(row: Quality) -> None:
    """Prints a row as soon as it is known: the whole table may take long."""
    print(
        f"{row.way:20} {row.mean:6.2f} ± {row.stderr:.2f} dB, median {row.median:.2f}, "
        f"{row.evaluations:.0f} evaluations, {row.seconds:.3f} s per mixture"
    )
    sys.stdout.flush()


def _growth(prior: Prior, signals: Tensor, mixtures: int, k: int) -> Growth:
    """Measures growth behind a progress bar."""
    from tqdm import tqdm

    from basis import lab

    label = f"{mixtures} mixtures of {k}"
    with tqdm(total=mixtures, desc=label, leave=False, disable=None) as bar:

        def progress(done: int, bar: Any = bar) -> None:
            bar.update(done - bar.n)

        return lab.measure_growth(prior, signals, mixtures=mixtures, k=k, progress=progress)
