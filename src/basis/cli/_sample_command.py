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
  basis sample cifar10 --guide cifar10-guide    sharper photos, less varied
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
    parser.add_argument(
        "--guide", metavar="NAME|DIR", help="a weaker prior of the same signals, to lead away from"
    )
    parser.add_argument(
        "--strength", type=float, default=0.25, help="how far beyond the prior a guide leads (0.25)"
    )
    parser.add_argument(
        "--above", type=float, default=0.8, help="least noise that is guided, in spreads (0.8)"
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
    from basis.priors import Guided

    out, device = out_folder(args.out), device_from(args.device)
    prior = load_prior(args.prior, root=args.data_root, device=device)
    if args.guide is not None:
        guide = load_prior(args.guide, root=args.data_root, device=device)
        prior = Guided(prior, guide, args.strength, above=args.above)
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
