"""`basis sample`: signals drawn from a prior, to see what it believes."""

from __future__ import annotations

import argparse

from basis.cli._arguments import (
    add_root,
    add_seed_and_device,
    device_from,
    natural,
    out_folder,
    progress_bar,
    say,
    write_json,
)

EPILOG = """\
examples:
  basis sample mnist                            32 digits: samples.png and samples.npy
  basis sample runs/photos --count 2048 --out drawn
  basis distance drawn/samples.npy cifar10 --network efficientnet-lite0      how far from photos
"""

_ROW, _SHOWN = 8, 64


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("prior", metavar="NAME|DIR")
    parser.add_argument("--count", type=natural, default=32, help="images (32)")
    parser.add_argument(
        "--steps", type=natural, default=32, help="steps, of two network evaluations each (32)"
    )
    add_seed_and_device(parser)
    parser.add_argument("--out", default="samples", metavar="DIR", help="default: samples")
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Draws from the prior and writes the draws, a picture and a record."""
    import numpy as np

    from basis import load_prior, sample
    from basis._files import whole_file
    from basis.panels import grid, write_picture

    out = out_folder(args.out)
    prior = load_prior(args.prior, root=args.data_root, device=device_from(args.device))
    with progress_bar(f"{prior.name}: {args.count} samples") as progress:
        images = sample(prior, args.count, steps=args.steps, seed=args.seed, progress=progress)
    images = images.cpu()
    pixels = (prior.low, prior.high) == (0.0, 1.0)
    stored = images.mul(255).round().byte() if pixels else images
    with whole_file(out / "samples.npy") as path, path.open("wb") as file:
        np.save(file, stored.numpy())
    write_picture(out / "samples.png", grid(images[:_SHOWN], _ROW, low=prior.low, high=prior.high))
    record = {"command": args.line, "seed": args.seed, "steps": args.steps, "count": args.count}
    write_json(out / "run.json", record | {"prior": prior.describe()})
    say(f"picture: {out / 'samples.png'}  images: {out / 'samples.npy'}")
