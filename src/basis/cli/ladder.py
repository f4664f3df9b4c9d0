"""`basis ladder`: one flow per noise level, each fine-tuned from the one below."""

from __future__ import annotations

import argparse

from basis.cli.arguments import (
    add_root,
    add_seed_and_device,
    add_training_set,
    device_from,
    natural,
    number,
    out_folder,
    say,
    training_set,
)
from basis.cli.boundary import INTERRUPTED
from basis.cli.field_flags import add_size_flags, sizes_from
from basis.nn.kinds import find_kind

EPILOG = """\
examples:
  basis ladder --data mnist --out runs/ladder --first 400000 --each 50000
  basis ladder --data mnist --out runs/ladder --width 96 --depth 8

The noiseless model is trained first, then the ten levels of the paper from 0.01 to 1.0. A run
stopped at any moment goes on when the same command is given again. The folder then holds a prior
(basis separate sample --prior runs/ladder --sampler basis) and bits.png, the bits per dimension of
every level.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    add_training_set(parser)
    parser.add_argument(
        "--first", type=natural, default=400_000, help="images for the noiseless model (400000)"
    )
    parser.add_argument(
        "--each", type=natural, default=50_000, help="images for every noisy level (50000)"
    )
    network = parser.add_argument_group("network")
    add_size_flags(network, [find_kind("glow")])
    training = parser.add_argument_group("training")
    training.add_argument("--batch", type=natural, default=128, help="images per step (128)")
    training.add_argument("--lr", type=number, default=0.03, help="step of the matrices (0.03)")
    training.add_argument("--adam-lr", type=number, default=2e-3, help="step of the rest (2e-3)")
    training.add_argument(
        "--warmup", type=natural, default=5_000, help="images over which steps grow (5000)"
    )
    training.add_argument(
        "--score", type=number, default=2.0, help="weight of the gradient's denoising error (2)"
    )
    add_seed_and_device(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Trains all levels, or goes on training, and writes the prior."""
    from basis.training.config import TrainConfig
    from basis.training.ladder import train_ladder

    out = out_folder(args.out)
    names = ("batch", "lr", "adam_lr", "warmup", "score", "seed")
    trained = train_ladder(
        training_set(args),
        out,
        sizes=sizes_from(args, find_kind("glow")),
        config=TrainConfig(**{name: getattr(args, name) for name in names}),
        first=args.first,
        each=args.each,
        name=args.name,
        held_out=args.held_out,
        about_data={"classes": sorted(set(args.classes))} if args.classes else None,
        device=device_from(args.device),
        report=say,
    )
    if trained is None:
        raise SystemExit(INTERRUPTED)
