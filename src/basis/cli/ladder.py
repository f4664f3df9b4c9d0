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
from basis.cli.guard import INTERRUPTED
from basis.cli.field_flags import add_size_flags, sizes_from
from basis.nn.kinds import find_kind
from basis.settings import add_flags, flags_to_settings
from basis.training.config import TrainConfig

EPILOG = """\
examples:
  basis ladder --data mnist --out runs/ladder --first 400000 --each 50000
  basis ladder --data mnist --out runs/ladder --width 96 --depth 8

The noiseless model is trained first, then the ten levels of the paper from 0.01 to 1.0. The same
command continues a run that was stopped. The folder then holds a prior
(basis separate mixture.png --prior runs/ladder --method basis) and bits.png, the bits per dimension
of every level.
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
    parser.add_argument("--device", default="auto", help="torch device (default auto: GPU if any)")
    sizes = find_kind("glow").config
    assert sizes is not None
    add_flags(parser.add_argument_group("network"), sizes)
    add_flags(parser.add_argument_group("training"), TrainConfig, adam_lr=2e-3, warmup=5_000)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Trains all levels, or continues, and writes the prior."""
    from basis.training.ladder import train_ladder

    sizes = find_kind("glow").config
    assert sizes is not None
    settings = flags_to_settings(args, TrainConfig) | flags_to_settings(args, sizes)
    shared = ("first", "each", "size", "classes", "name", "held_out", "device")
    out = out_folder(args.out)
    try:
        train_ladder(
            args.data,
            out=out,
            root=args.data_root,
            **{name: getattr(args, name) for name in shared},
            **settings,
        )
    except KeyboardInterrupt as stop:
        say(str(stop) or "stopped")
        raise SystemExit(INTERRUPTED) from None
    say(f"prior: {out}  bits: {out / 'bits.png'}")
