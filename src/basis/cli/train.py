"""`basis train`: a prior from data, resumable."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from basis.cli import arguments as flags

if TYPE_CHECKING:
    from basis.cli import Parser

EPILOG = """\
examples:
  basis train photos/ --size 64 --hours 2 --out runs/photos
  basis train mnist --images 2000000 --out runs/mnist
  basis train photos/ --size 64 --widths 64 128 192 --blocks 2 2 3 --out runs/photos
  basis train mnist --kind energy --teacher mnist --lr 0.004 --out runs/energy

A run that was stopped in any way is resumed by the same command. The folder of a run is a prior:
basis separate mixture.png --prior runs/photos

`basis train --help-all` lists the settings of training and of the networks.
"""


def add(parser: Parser) -> None:
    """Adds the arguments of the command; the settings only if they are used."""
    parser.epilog = EPILOG
    parser.usage = "basis train DATA --out DIR [--size N] [--hours H] ..."
    parser.add_argument(
        "data", metavar="DATA", help="a folder of pictures, an .npy, or a data set such as mnist"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--size", type=flags.natural, help="crop and resize photos to N x N pixels")
    parser.add_argument("--hours", type=flags.number, help="how long to train")
    parser.add_argument("--images", type=flags.whole_number, help="or how many images to see")
    parser.add_argument("--help-all", action="help", help="list all settings")
    group = parser.add_argument_group("the model")
    group.add_argument("--name", help="name of the prior (default: that of the folder)")
    group.add_argument(
        "--kind",
        choices=("unet", "energy", "ncsn", "glow"),
        default="unet",
        help="unet (default); energy or glow have a likelihood; ncsn is the paper's",
    )
    group.add_argument("--conditional", action="store_true", help="learn the classes of the data")
    group.add_argument("--init", metavar="PRIOR", help="start with the weights of this prior")
    flags.add_device(group, "auto")
    _add_more(parser)
    known = parser._option_string_actions
    used = {word.split("=")[0] for word in parser.words if word.startswith("--")}
    if "--help-all" in used or used - known.keys():
        _add_settings(parser)


def _add_more(parser: Parser) -> None:
    """What few runs need: accepted always, listed by --help-all."""
    shown = "--help-all" in parser.words
    group = parser.add_argument_group("more")

    def add(flag: str, help: str, **options: Any) -> None:
        group.add_argument(flag, help=help if shown else argparse.SUPPRESS, **options)

    natural, whole = flags.natural, flags.whole_number
    add("--classes", "only these labels", type=int, nargs="+", metavar="LABEL")
    add("--held-out", "items for validation", type=natural, metavar="N")
    add("--teacher", "learn from this prior too", metavar="PRIOR")
    add("--sigma", "glow: a model of one noise level (0: noiseless)", type=flags.number)
    add(
        "--variance-images", "images to learn the variance from at the end (default 100000)",
        type=whole, default=100_000, metavar="N",
    )  # fmt: skip
    add(
        "--energy-pairs", "mixtures to measure typical energies on at the end (default 64)",
        type=whole, default=64, metavar="N",
    )  # fmt: skip
    add("--seed", "seed of all random numbers (default 0)", type=flags.seed_number, default=0)
    add("--threads", "CPU threads", type=flags.worker_count)
    add("--compile", "use torch.compile", action="store_true")
    add("--data-root", "folder of data sets and priors (default: $BASIS_DATA)", metavar="DIR")


def _add_settings(parser: Parser) -> None:
    """The settings of training and of the networks, which need torch."""
    from basis.nn.kinds import KINDS
    from basis.settings import add_flags
    from basis.training.config import TrainConfig

    add_flags(parser.add_argument_group("settings of training"), TrainConfig)
    for name, kind in KINDS.items():
        if kind.trainable and kind.config is not None:
            add_flags(parser.add_argument_group(f"settings of --kind {name}"), kind.config)


def run(args: argparse.Namespace) -> None:
    """Trains, or resumes training, and writes the prior."""
    import torch

    from basis.nn.kinds import find_kind
    from basis.settings import flags_to_settings
    from basis.training.config import TrainConfig
    from basis.training.run import train

    if args.threads:
        torch.set_num_threads(args.threads)
    out = flags.out_folder(args.out)
    names = (
        "kind", "size", "classes", "name", "held_out", "init", "teacher", "conditional", "sigma",
        "variance_images", "energy_pairs",
    )  # fmt: skip
    settings = flags_to_settings(args, TrainConfig)
    config = find_kind(args.kind, trainable=True).config
    if config is not None:
        settings |= flags_to_settings(args, config)
    settings = {name: value for name, value in settings.items() if value is not None}
    prior = train(
        args.data,
        out=out,
        device=args.device or "auto",
        compile=args.compile,
        **{name: getattr(args, name) for name in names},
        **settings,
    )
    print(prior)
    print(f"written to {out}")
