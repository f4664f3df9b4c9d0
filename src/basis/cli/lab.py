"""`basis lab`: the paper's tables, benchmarks, image distances and published checkpoints."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import (
    add_autoguidance,
    add_estimate,
    add_json,
    add_root,
    add_seed_and_device,
    add_training_set,
    device_from,
    natural,
    number,
    out_folder,
    priors,
    say,
    seed_number,
)
from basis.errors import BasisError, markdown_code
from basis.files import check_no_link, read_json, write_json, write_text
from basis.lab import TABLES
from basis.settings import DEFAULT_METHOD

if TYPE_CHECKING:
    from basis.lab.bench import Quality
    from basis.priors.prior import Prior

_EPILOG = """\
examples:
  basis lab reproduce all --size quick          a quick version of all tables
  basis lab bench --count 128 --out bench       every method on the same mixtures of digits
  basis lab evaluate --method best --count 256  PSNR of one method
  basis lab distance separated/ mnist           how far a set of images is from another
"""

_REPRODUCE = """\
names: all, or some of
{names}

examples:
  basis lab reproduce all --size quick             a quick version of all tables
  basis lab reproduce mnist-split --size full      1,024 mixtures, hours
  basis lab reproduce colorization --size whole    distances of as many photos as the test set has
  basis lab reproduce gradients --prior mnist --prior runs/mine

The folder gets report.html (a single file), tables.md and a cache: an interrupted run continues,
and a second run with the same version, settings and weights is instant. --prior and --method are
for the tables that can measure any prior or method.
"""

_BENCH = """\
examples:
  basis lab bench --count 512                                     all methods on MNIST
  basis lab bench --method fast --method basis --sources 3        two of them, mixtures of three
  basis lab bench --data sample --count 8 --method 50 --method gibbs:steps=20
  basis lab evaluate --method best --json best.json               one method, no folder
  basis lab evaluate --method basis:delta=3e-5,weight=2           the settings of the authors' code
  basis lab evaluate --data cifar10 --prior cifar10 --estimate mean

A method is fast, balanced, best, a number of evaluations, or a sampler, after which settings may
follow. Signals without bounds, such as sound, are measured by SNR instead of PSNR.
"""

_DISTANCE = """\
examples:
  basis lab distance separated/ mnist                   digits, by the classifier of the package
  basis lab distance colored/ cifar10 --network efficientnet-lite0
  basis lab distance colored/ cifar10 --network inception     FID, Inception Score (96 MB, once)

IMAGES and REFERENCE are data sets by name (their test images), folders, .npy files or the folders
of jobs. Distances depend on the number of images: compare only those of equal numbers.
"""

_LADDER = """\
examples:
  basis lab ladder --data mnist --out runs/ladder --first 400000 --each 50000

The noiseless model is trained first, then the ten noise levels of the paper from 0.01 to 1. An
interrupted run continues when the same command is given again. The folder becomes a prior, and
bits.png shows the bits per dimension of every level.
"""

_CONVERT = """\
examples:
  basis lab convert ncsn checkpoint.pth --config config.yml --out priors/ncsn-mnist
  basis lab convert glow logs0point01/model_best_loss.ckpt logs0point016/model_best_loss.ckpt \\
      --sigmas 0.01 0.01668 --size 32 --out priors/glow-cifar

ncsn needs the authors' checkpoint.pth; glow needs the prefixes of TensorFlow 1 checkpoints (without
.index), one per noise level. Nothing in the files is executed.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the commands of `basis lab`."""
    parser.epilog = _EPILOG
    commands = parser.add_subparsers(dest="lab_command", metavar="COMMAND", required=True)
    for name, (summary, epilog, arguments, _) in _COMMANDS.items():
        child = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        arguments(child)


def run(args: argparse.Namespace) -> None:
    """Runs one of the commands."""
    _COMMANDS[args.lab_command][3](args)


def _reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    names = "\n".join(f"  {name:22} {title}" for name, (_, title) in TABLES.items())
    parser.epilog = _REPRODUCE.format(names=names)
    parser.add_argument("names", nargs="+", choices=("all", *TABLES), metavar="NAME")
    parser.add_argument(
        "--size", default="quick", help="quick (the default), full, whole, or a fraction like 0.1"
    )
    parser.add_argument(
        "--data", choices=("mnist", "sample"), default="mnist", help="default mnist"
    )
    parser.add_argument("--prior", action="append", metavar="NAME|DIR", help="priors to measure")
    parser.add_argument("--method", help="method to measure")
    parser.add_argument("--fresh", action="store_true", help="ignore cached results")
    add_seed_and_device(parser)
    parser.add_argument("--out", default="reproduced", metavar="DIR", help="default: reproduced")
    add_root(parser)


def _reproduce(args: argparse.Namespace) -> None:
    from tqdm import tqdm

    from basis.lab.bench import find_method
    from basis.lab.cache import ResultCache
    from basis.lab.context import Context
    from basis.lab.report import Section, build_report, resolve_size
    from basis.progress import bar_size

    out = out_folder(args.out)
    resolve_size(args.size)
    check_no_link(out / "cache")
    form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, leave=False, disable=None, bar_format=form, **bar_size()) as bar:
        label = ""

        def on_progress(what: str, fraction: float) -> None:
            nonlocal label
            if what != label:
                label = what
                bar.reset(total=1.0)
                bar.set_description(what)
            bar.update(fraction - bar.n)

        def on_section(section: Section) -> None:
            bar.write(f"{section.name}: {section.seconds:.0f} s")

        ctx = Context(
            ResultCache(out / "cache", fresh=args.fresh),
            seed=args.seed,
            root=args.data_root,
            data=args.data,
            device=device_from(args.device),
            chosen=args.prior or (),
            method=None if args.method is None else find_method(args.method),
            on_progress=on_progress,
        )
        sections = build_report(
            args.names, ctx, out, size=args.size, command=args.line, on_section=on_section
        )
    for section in sections:
        for table in section.tables:
            print()
            say(section.title)
            for row in (table.header, *table.rows):
                say("  " + " | ".join(row))
    print()
    say(f"report: {out / 'report.html'}")


def _bench_arguments(parser: argparse.ArgumentParser, count: int = 64) -> None:
    """The arguments of bench and of evaluate, which is a bench of one method."""
    parser.add_argument("--data", default="mnist", help="test set to mix from (default mnist)")
    parser.add_argument("--count", type=natural, default=count, help=f"mixtures (default {count})")
    parser.add_argument(
        "--sources", type=natural, default=2, help="sources per mixture (default 2)"
    )
    parser.add_argument(
        "--protocol",
        choices=("agnostic", "split"),
        default="agnostic",
        help="any images (default), or one of each group of classes",
    )
    parser.add_argument(
        "--prior", action="append", metavar="NAME|DIR", help="default mnist; once, or per source"
    )
    parser.add_argument(
        "--method", action="append", metavar="METHOD", help="may be given several times"
    )
    parser.add_argument(
        "--peers",
        type=natural,
        nargs="?",
        const=200,
        metavar="EVALUATIONS",
        help="also azula's MMPS, TMPD and DPS (default 200 evaluations, back-propagations count)",
    )
    parser.add_argument(
        "--clip", action="store_true", help="clip mixtures at 1 without telling the separation"
    )
    parser.add_argument("--clipped", action="store_true", help="clip mixtures at 1 as a mixing")
    parser.add_argument("--rounded", action="store_true", help="round mixtures as a mixing")
    add_autoguidance(parser)
    add_estimate(parser)
    parser.add_argument("--samples", type=natural, help="posterior samples, for further rows")
    parser.add_argument("--batch-size", type=natural, default=128, help="default 128")
    parser.add_argument("--no-times", action="store_true", help="leave times out")
    parser.add_argument("--out", metavar="DIR", help="also write bench.md, bench.json, bench.png")
    add_seed_and_device(parser)
    add_root(parser)
    add_json(parser)


def _bench(args: argparse.Namespace, default: tuple[str, ...] | None = None) -> None:
    from basis import mixings
    from basis._inputs import load_priors
    from basis._mix import draw_pairs
    from basis._version import __version__
    from basis.lab import bench
    from basis.plots.charts import require_matplotlib
    from basis.progress import progress_bar
    from basis.signals.datasets import load_images

    methods = args.method or list(default or bench.DEFAULT_METHODS)
    found = [bench.find_method(method) for method in methods]
    out = None if args.out is None else out_folder(args.out)
    if out is not None:
        require_matplotlib()
    used = load_priors(priors(args, args.prior or ["mnist"]), device_from(args.device))
    images = load_images(args.data, "test", root=args.data_root)
    pairs = draw_pairs(images, args.count, k=args.sources, protocol=args.protocol, seed=args.seed)
    mixing: mixings.Mixing = mixings.mixture((1.0,) * args.sources, images.images.shape[1])
    mixing = mixing.clipped() if args.clipped else mixing
    mixing = mixing.rounded() if args.rounded else mixing
    observation = mixing(pairs.sources).clamp(max=1.0) if args.clip else None
    prior = used[0] if len(used) == 1 else used
    rows = [bench.average_quality(pairs, used[0])]
    _print_rows(rows)
    for text, method in zip(methods, found, strict=True):
        with progress_bar(None, f"{text} on {args.count} mixtures") as progress:
            more = bench.measure_quality(
                method,
                prior,
                pairs,
                name=text,
                mixing=mixing,
                observation=observation,
                estimate=args.estimate,
                samples=args.samples,
                seed=args.seed,
                batch_size=args.batch_size,
                progress=progress,
            )
        rows += more
        _print_rows(more)
    for peer in bench.PEERS if args.peers else ():
        row = bench.measure_peer(peer, used[0], pairs, evaluations=args.peers, seed=args.seed)
        rows.append(row)
        _print_rows([row])
    names = ("data", "protocol", "count", "sources", "seed", "estimate")
    record: dict[str, Any] = {"command": args.line} | {n: getattr(args, n) for n in names}
    record |= {"priors": [p.describe() for p in used], "indices": pairs.indices.tolist()}
    record |= {"quality": [asdict(row) for row in rows]}
    if args.json:
        write_json(args.json, record)
    if out is None:
        return
    tables = bench.quality_table(rows, times=not args.no_times).markdown()
    tables += f"\n{markdown_code(args.line)}, version {__version__}\n"
    title = f"{args.count} mixtures of {args.sources} ({args.data}, {args.protocol})"
    bench.plot_quality(rows, out / "bench.png", title, times=not args.no_times)
    write_text(out / "bench.md", tables)
    write_json(out / "bench.json", record)
    print("\n" + tables)


def _print_rows(rows: list[Quality]) -> None:
    """Prints rows as soon as they are known: the whole table may take long."""
    for row in rows:
        say(
            f"{row.method:20} {row.measure.upper()} {row.mean:.2f} ± {row.stderr:.2f} dB, "
            f"median {row.median:.2f}, "
            f"{row.evaluations:.0f} evaluations, {row.seconds:.3f} s per mixture, residual "
            f"{row.residual:.2g}"
        )
    sys.stdout.flush()


def _distance_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("images", metavar="IMAGES")
    parser.add_argument("reference", metavar="REFERENCE")
    parser.add_argument(
        "--network",
        default="digits",
        metavar="NAME|DIR",
        help="digits (the default), efficientnet-lite0, inception, or a classifier's folder",
    )
    parser.add_argument("--weights", metavar="PATH", help="inception's weights (else downloaded)")
    parser.add_argument("--count", type=natural, help="at most this many images of each set")
    parser.add_argument("--splits", type=natural, default=10, help="parts of the score (10)")
    parser.add_argument("--size", type=natural, help="side to which photos are cropped and resized")
    add_json(parser)
    add_root(parser)


def _distance(args: argparse.Namespace) -> None:
    from basis.lab.features import compare
    from basis.lab.networks import load_network
    from basis.signals.datasets import load_images

    if args.weights and args.network != "inception":
        raise BasisError("--weights needs --network inception")
    sets = []
    for name in (args.images, args.reference):
        if (Path(name) / "store.json").is_file():
            from basis.jobs.store import open_store

            store = open_store(name)
            if store.failures:
                raise BasisError(f"{name}: {len(store.failures)} mixtures could not be separated")
            images: Any = store["sources"]
        else:
            images = load_images(name, "test", root=args.data_root, size=args.size).images
        sets.append(images)
    extractor = load_network(args.network, weights=args.weights, root=args.data_root)
    found = compare(extractor, *sets, count=args.count, splits=args.splits)
    kernel, score, splits = found.kernel, found.score, min(args.splits, found.count)
    say(
        f"{extractor.distance_name}: {found.distance:.4g}  "
        f"({found.count} images, {found.reference} of reference)"
    )
    error = f" ± {kernel.error:.2g}" if kernel.error >= 0 else ""
    say(f"kernel distance: {kernel.distance:.4g}{error} over {kernel.blocks} blocks")
    std = f" ± {score.std:.2f}" if score.std >= 0 else ""
    say(f"{extractor.score_name}: {score.mean:.3f}{std} over {splits} splits")
    if args.json:
        write_json(args.json, {"command": args.line, **asdict(found)})


def _ladder_arguments(parser: argparse.ArgumentParser) -> None:
    add_training_set(parser)
    for flag, default, text in (
        ("--first", 400_000, "images for the noiseless model"),
        ("--each", 50_000, "images for every noise level"),
        ("--batch-size", 128, "images per step"),
        ("--warmup", 5_000, "images over which the learning rate rises"),
        ("--width", 96, "hidden channels of a coupling"),
        ("--depth", 8, "steps per level of the flow"),
    ):
        parser.add_argument(flag, type=natural, default=default, help=f"{text} ({default})")
    for name, rate, text in (
        ("--lr", 0.03, "learning rate of matrices"),
        ("--adam-lr", 2e-3, "learning rate of other parameters"),
        ("--score-weight", 2.0, "weight of the denoising error of the gradient"),
    ):
        parser.add_argument(name, type=number, default=rate, help=f"{text} ({rate:g})")
    add_seed_and_device(parser)
    add_root(parser)


def _ladder(args: argparse.Namespace) -> None:
    from basis.training.ladder import train_ladder

    names = ("batch_size", "lr", "adam_lr", "warmup", "score_weight", "seed", "width", "depth")
    train_ladder(
        args.data,
        out=out_folder(args.out),
        first=args.first,
        each=args.each,
        size=args.size,
        classes=args.classes,
        name=args.name,
        held_out=args.held_out,
        root=args.data_root,
        device=device_from(args.device),
        **{name: getattr(args, name) for name in names},
    )


def _convert_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("ncsn", "glow"), help="what the checkpoint is of")
    parser.add_argument("checkpoints", nargs="+", metavar="FILE", help="one; glow: one per level")
    parser.add_argument("--out", required=True, metavar="DIR", help="the prior's folder")
    parser.add_argument("--name", help="the prior's name (default: the folder's name)")
    parser.add_argument("--size", type=natural, help="side of the images (required for glow)")
    parser.add_argument("--config", metavar="FILE", help="ncsn: the config.yml of the checkpoint")
    parser.add_argument(
        "--sigmas", type=number, nargs="+", help="glow: the noise level of every checkpoint"
    )


def _convert(args: argparse.Namespace) -> None:
    from basis.adapters.glow import from_glow
    from basis.adapters.ncsn import from_ncsn
    from basis.store.folder import CARD, write_prior

    out = Path(args.out)
    if (out / CARD).exists():
        raise BasisError(f"{out} already contains a prior; use another folder")
    name = args.name or out.resolve().name
    if args.kind == "ncsn":
        if len(args.checkpoints) != 1 or args.sigmas:
            raise BasisError("basis lab convert ncsn takes one checkpoint and no --sigmas")
        size = {} if args.size is None else {"size": args.size}
        prior: Prior = from_ncsn(args.checkpoints[0], args.config, name=name, **size)
        title = "score network converted from a published NCSN checkpoint"
    else:
        if args.config:
            raise BasisError("--config is for ncsn")
        if not args.size:
            raise BasisError("basis lab convert glow needs --size, the side of its images")
        sigmas = args.sigmas or ([0.0] if len(args.checkpoints) == 1 else [])
        prior = from_glow(args.checkpoints, sigmas=sigmas, size=args.size, name=name)
        title = "flow converted from published checkpoints"
    say(f"prior: {write_prior(prior, out, title=title)}")


def _classifier_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default="mnist", help="labeled square images (default mnist)")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the classifier")
    parser.add_argument(
        "--epochs", type=number, default=5.0, help="how often to see each image (5)"
    )
    parser.add_argument("--seed", type=seed_number, default=0, help="default 0")
    add_root(parser)


def _classifier(args: argparse.Namespace) -> None:
    import torch
    from tqdm import tqdm

    from basis.lab.networks import accuracy, save_classifier, train_classifier
    from basis.progress import bar_size
    from basis.signals.datasets import load_images

    out = out_folder(args.out)
    if args.epochs <= 0:
        raise BasisError(f"--epochs must be more than 0, not {args.epochs:g}")
    train = load_images(args.data, "train", root=args.data_root)
    test = load_images(args.data, "test", root=args.data_root)
    if train.labels is None or test.labels is None:
        raise BasisError(f"{args.data} has no labels")
    if train.images.ndim != 4 or train.images.dtype != torch.uint8:
        raise BasisError(f"{args.data} has no 8-bit images; a classifier is trained on pictures")
    form = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, leave=False, disable=None, bar_format=form, **bar_size()) as bar:

        def progress(fraction: float) -> None:
            bar.update(fraction - bar.n)

        model = train_classifier(
            train.images, train.labels, epochs=args.epochs, seed=args.seed, progress=progress
        )
    right = accuracy(model, test.images, test.labels)
    about = {"command": args.line, "accuracy": right, "images": len(test), "data": args.data}
    path = save_classifier(model, out, about)
    say(f"{right:.2%} of {len(test):,} test images are classified correctly; written to {path}")


def _data_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "download"), default="list")
    parser.add_argument("name", nargs="?", help="with download: mnist or cifar10")
    add_root(parser)
    add_json(parser)


def _data(args: argparse.Namespace) -> None:
    from basis.files import data_root
    from basis.signals.datasets import download, list_datasets

    if args.action == "download":
        if not args.name:
            raise BasisError("give a name: basis lab data download mnist (or cifar10)")
        say(f"{args.name}: {download(args.name, args.data_root)}")
        return
    entries = list_datasets(args.data_root)
    say(f"data root: {data_root(args.data_root)}")
    for entry in entries:
        say(f"{entry.name:16} {entry.about}")
        say(f"{'':16} {entry.where or 'missing: ' + entry.how}")
    if args.json:
        rows = [{k: str(v) for k, v in asdict(entry).items()} for entry in entries]
        write_json(args.json, {"data": rows})


def _results_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="docs/results.json", help="the measurements")
    parser.add_argument("--out", metavar="FILE", help="default: the same name with .md")


def _results(args: argparse.Namespace) -> None:
    from basis.lab.results import results_page

    out = Path(args.out) if args.out else Path(args.file).with_suffix(".md")
    write_text(out, results_page(read_json(args.file, "measurements")))
    say(f"written to {out}")


_COMMANDS: dict[str, tuple[str, str, Any, Any]] = {
    "reproduce": ("the paper's tables and figures", "", _reproduce_arguments, _reproduce),
    "bench": ("compare methods on the same mixtures", _BENCH, _bench_arguments, _bench),
    "evaluate": (
        "measure one method on test mixtures",
        _BENCH,
        partial(_bench_arguments, count=256),
        partial(_bench, default=(DEFAULT_METHOD,)),
    ),
    "distance": ("distance between two sets of images", _DISTANCE, _distance_arguments, _distance),
    "ladder": ("train one flow per noise level", _LADDER, _ladder_arguments, _ladder),
    "convert": ("convert published checkpoints", _CONVERT, _convert_arguments, _convert),
    "classifier": ("train a classifier for distances", "", _classifier_arguments, _classifier),
    "data": ("list or download data sets", "", _data_arguments, _data),
    "results": ("write the page of results", "", _results_arguments, _results),
}
"""Name, summary, epilog, arguments, function."""
