"""`basis bench`: quality, cost, speed and growth, in one run."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from basis._files import write_text
from basis._texts import markdown_code
from basis.cli._arguments import (
    add_json,
    add_pairs,
    add_root,
    add_seed_and_device,
    device_from,
    natural,
    out_folder,
    progress_bar,
    say,
    write_json,
)

if TYPE_CHECKING:
    from torch import Tensor

    from basis.bench import Growth, Quality
    from basis.priors import Prior

EPILOG = """\
examples:
  basis bench --pairs 512 --out bench                       every effort and every sampler on MNIST
  basis bench --ways fast best basis --k 3 --pairs 64       three of them on mixtures of three
  basis bench --data sample --pairs 8 --ways fast gibbs --mixtures 100     a quick look with no data

The folder gets bench.md (the tables), bench.png (PSNR against cost) and bench.json.
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
    parser.add_argument("--out", default="bench", metavar="DIR", help="default: bench")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Measures what the arguments ask for and writes tables, plot and record."""
    from basis import bench, load_prior
    from basis._figures import require_matplotlib
    from basis._version import __version__
    from basis.data import load_images
    from basis.pairs import draw_pairs

    ways = [bench.find_way(name) for name in args.ways or bench.DEFAULT_WAYS]
    cases = bench.growth_cases(args.mixtures, args.sources)
    require_matplotlib()
    out = out_folder(args.out)
    prior = load_prior(args.prior, root=args.data_root, device=device_from(args.device))
    images = load_images(args.data, "test", root=args.data_root)
    pairs = draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)

    rows = [bench.average_quality(pairs, prior)]
    _print_row(rows[0])
    for way in ways:
        with progress_bar(way.name) as progress:
            row = bench.measure_quality(way, prior, pairs, seed=args.seed, progress=progress)
        rows.append(row)
        _print_row(row)
    for peer in bench.PEERS if args.peers else ():
        row = bench.measure_peer(peer, prior, pairs, evaluations=args.peers, seed=args.seed)
        rows.append(row)
        _print_row(row)
    speed = None if args.no_times else bench.measure_speed(prior)
    signals = images.floats(slice(1000))
    growth = [_growth(prior, signals, mixtures, k) for mixtures, k in cases]
    tables = bench.markdown(rows, speed, growth, times=not args.no_times)
    tables += f"\n{markdown_code(args.line)}, version {__version__}\n"
    title = f"{args.pairs} mixtures of {args.k} ({args.data}, {args.protocol}), {prior.name} prior"
    bench.plot_quality(rows, out / "bench.png", title, times=not args.no_times)
    write_text(out / "bench.md", tables)
    record = {
        "command": args.line,
        "data": args.data,
        "protocol": args.protocol,
        "pairs": args.pairs,
        "k": args.k,
        "seed": args.seed,
        "prior": prior.describe(),
        **bench.record(rows, speed, growth),
    }
    write_json(out / "bench.json", record)
    if args.json:
        write_json(args.json, record)
    print("\n" + tables)
    say(f"picture: {out / 'bench.png'}")


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

    from basis import bench

    label = f"{mixtures} mixtures of {k}"
    with tqdm(total=mixtures, desc=label, leave=False, disable=None) as bar:

        def progress(done: int, bar: Any = bar) -> None:
            bar.update(done - bar.n)

        return bench.measure_growth(prior, signals, mixtures=mixtures, k=k, progress=progress)
