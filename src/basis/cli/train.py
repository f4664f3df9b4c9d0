"""`basis train`: a prior from images, resumed from wherever it was left."""

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
from basis.cli.boundary import INTERRUPTED
from basis.cli.field_flags import add_setting_flags, add_size_flags, settings_from, sizes_from
from basis.nn.kinds import KINDS, find_kind
from basis.training.config import TrainConfig

EPILOG = """\
examples:
  basis train --data mnist --out runs/mnist --images 2000000
  basis train --data photos/ --size 64 --out runs/photos --widths 64 128 192 --blocks 2 2 3
  basis train --data mnist --architecture ncsn --out runs/ncsn --lr 0.01
  basis train --data mnist --architecture energy --init mnist --out runs/energy --lr 0.004
  basis train --data mnist --architecture glow --out runs/glow --width 96 --sigma-max 1.0

A run stopped at any moment goes on to the step when the same command is given again; Ctrl-C and
SIGTERM save its state first, and end it with exit code 130. Raise --images to train longer. The
folder of a finished run holds a prior:
basis separate sample --prior runs/mnist
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    families = {kind: family for kind, family in KINDS.items() if family.trainable}
    add_training_set(parser)
    parser.add_argument(
        "--init",
        metavar="NAME|DIR",
        help="start a new run from this prior's weights; a U-Net is as large as it, or larger",
    )
    parser.add_argument("--device", default="cpu", help="torch device, or auto (default: cpu)")
    parser.add_argument(
        "--threads", type=thread_count, help="CPU threads (default: torch's choice)"
    )
    parser.add_argument(
        "--compile",
        action="store_true",
        help="run steps through torch.compile: a slow start, then "
        "faster where networks are large (needs a C++ compiler)",
    )
    parser.add_argument(
        "--conditional",
        action="store_true",
        help="tell the network at times which classes an image may be of (data with labels), so "
        "that the prior answers for some of them: --prior runs/digits:0,1,2",
    )
    network = parser.add_argument_group("network")
    network.add_argument(
        "--architecture", choices=tuple(families), default="unet", help="what to train (unet)"
    )
    add_size_flags(network, families.values())
    network.add_argument(
        "--single",
        type=number,
        metavar="SIGMA",
        help="glow: a model of this noise level alone (0: noiseless) instead of one for all",
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--variance-images",
        type=int,
        default=100_000,
        help="images seen at the end to learn how sure the network is of each pixel (default "
        "100000, and no more than the run itself saw); --init's own goes on",
    )
    training.add_argument(
        "--energy-pairs",
        type=whole_number,
        default=64,
        help="mixtures of held-out images that a finished run separates, to write typical energies "
        "into its card (default 64, and no more than one for 64 images seen; 0 for none)",
    )
    add_setting_flags(training, TrainConfig)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Trains, or goes on training, and writes the prior."""
    import torch

    from basis.training.run import train

    if args.threads:
        torch.set_num_threads(args.threads)
    out = out_folder(args.out)
    config = settings_from(args, TrainConfig)
    sizes = sizes_from(args, find_kind(args.architecture))
    trained = train(
        training_set(args),
        out,
        family=args.architecture,
        sizes=sizes,
        config=config,
        name=args.name,
        held_out=args.held_out,
        init=args.init,
        single=args.single,
        conditional=args.conditional,
        variance_images=args.variance_images,
        energy_pairs=args.energy_pairs,
        about_data={"classes": sorted(set(args.classes))} if args.classes else None,
        root=args.data_root,
        device=device_from(args.device),
        compiled=args.compile,
        report=say,
    )
    if trained is None:
        raise SystemExit(INTERRUPTED)
