"""`basis train`: a prior from data, continued from wherever a run was stopped."""

from __future__ import annotations

import argparse

from basis.cli.arguments import (
    add_root,
    add_training_set,
    device_from,
    number,
    out_folder,
    say,
    thread_count,
    training_set,
    whole_number,
)
from basis.cli.guard import INTERRUPTED
from basis.cli.field_flags import add_setting_flags, add_size_flags, settings_from, sizes_from
from basis.nn.kinds import KINDS, find_kind
from basis.training.config import TrainConfig

EPILOG = """\
examples:
  basis train --data mnist --out runs/mnist --images 2000000
  basis train --data photos/ --size 64 --hours 2 --out runs/photos
  basis train --data mnist --kind ncsn --out runs/ncsn --lr 0.01
  basis train --data mnist --kind energy --init mnist --out runs/energy --lr 0.004
  basis train --data mnist --kind glow --out runs/glow --width 96 --sigma-max 1.0

The same command continues a run that was stopped, to the step. Ctrl-C and SIGTERM save the state
first and end with exit code 130. Raise --images or --hours to train longer. The folder then holds
a prior: basis separate mixture.png --prior runs/mnist
"""
_SHARED = ("name", "held_out", "init", "teacher", "conditional", "sigma", "size", "classes")
_MEASURED = ("variance_images", "energy_pairs")


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    families = {kind: family for kind, family in KINDS.items() if family.trainable}
    add_training_set(parser)
    parser.add_argument(
        "--init",
        metavar="NAME|DIR",
        help="start a new run from this prior's weights; a U-Net has its size, or is larger",
    )
    parser.add_argument("--device", default="auto", help="torch device (default auto: GPU if any)")
    parser.add_argument(
        "--threads", type=thread_count, help="CPU threads (default: torch's choice)"
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="run steps through torch.compile: a slow start, then faster for large networks",
    )
    parser.add_argument(
        "--conditional",
        action="store_true",
        help="also learn the classes of labeled data, for --prior runs/digits:0,1,2",
    )
    parser.add_argument(
        "--teacher",
        metavar="NAME|DIR",
        help="models with a likelihood: the prior with which the gradient is compared",
    )
    network = parser.add_argument_group("network")
    network.add_argument(
        "--kind", choices=tuple(families), default="unet", help="kind of network (unet)"
    )
    for family in families.values():
        if family.config:
            add_flags(network, family.config)
    network.add_argument(
        "--sigma", type=number, help="glow: a model of this noise level only (0: noiseless)"
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--variance-images",
        type=int,
        default=100_000,
        help="images seen at the end to learn the variance of each value, at most as many as the "
        "run saw (default 100000)",
    )
    training.add_argument(
        "--energy-pairs",
        type=int,
        default=64,
        help="mixtures of held-out images separated at the end to measure typical energies "
        "(default 64; 0 for none)",
    )
    add_flags(training, TrainConfig)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Trains, or continues, and writes the prior."""
    import torch

    from basis.training.run import train

    if args.threads:
        torch.set_num_threads(args.threads)
    settings = flags_to_settings(args, TrainConfig)
    for family in KINDS.values():
        if family.trainable and family.config:
            settings |= flags_to_settings(args, family.config)
    shared = {name: getattr(args, name) for name in (*_SHARED, *_MEASURED)}
    out = out_folder(args.out)
    try:
        train(
            args.data,
            out=out,
            kind=args.kind,
            root=args.data_root,
            device=args.device,
            compiled=args.compiled,
            **shared,
            **settings,
        )
    except KeyboardInterrupt as stop:
        say(str(stop) or "stopped")
        raise SystemExit(INTERRUPTED) from None
    say(f"prior: {out}")
