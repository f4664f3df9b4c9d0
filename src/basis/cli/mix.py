"""`basis mix`: make a mixture file from images or other signals."""

from __future__ import annotations

import argparse
from pathlib import Path

from basis.cli.arguments import add_noise, add_root, natural, number, say, seed_number

EPILOG = """\
examples:
  basis mix sample:3 sample:18 --out mixture.npz
  basis mix a.png b.png --alphas 0.5 0.5 --out mixture.png
  basis mix flute.npy drum.npy --dims 1 --out mixture.npz     sound: (channels, time) or (time)

An .npz keeps the mixture in full precision with its sources and alphas, so that `basis separate`
can show the truth beside what it finds. A picture holds 8-bit values up to 1, so its alphas must
not sum to more, unless --clip cuts them off (`basis separate --clipped` then knows).
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `basis mix`."""
    parser.epilog = EPILOG
    parser.add_argument("images", nargs="+", help="image files, .npy, or SET:INDEX (sample:3)")
    parser.add_argument("--alphas", type=number, nargs="+", help="a weight per image (default: 1)")
    parser.add_argument(
        "--noise", type=number, default=0.0, help="Gaussian noise added (default 0)"
    )
    parser.add_argument(
        "--clip", action="store_true", help="cut off values above 1, as a picture of a sum does"
    )
    parser.add_argument("--seed", type=seed_number, default=0, help="seed of the noise (default 0)")
    parser.add_argument(
        "--out", default="mixture.npz", metavar="FILE", help=".npz, .npy or picture"
    )
    parser.add_argument(
        "--dims",
        type=natural,
        help="axes of a signal's size in .npy files: 2 for pictures (default), 1 for sound",
    )
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Reads the sources, adds them up and writes the mixture."""
    import torch

    from basis.cli.source_images import source_images
    from basis.errors import BasisError
    from basis.mixings.matrix import mixture
    from basis.signals.old_observation import MixtureFile, write_mixture

    alphas = tuple(args.alphas or [1.0] * len(args.images))
    if len(alphas) != len(args.images):
        raise BasisError(
            f"{len(alphas)} alphas for {len(args.images)} images; give one alpha per image"
        )
    out = Path(args.out)
    if out.exists() and any(Path(n).exists() and out.samefile(n) for n in args.images):
        raise BasisError(f"{out} is one of the images; give --out another name")
    sources = source_images(args.images, args.data_root, args.dims)[None]
    mixed = mixture(alphas, sources.shape[2])(sources)
    mixed = add_noise(mixed, args.noise, args.seed)
    mixed = mixed.clamp(0, 1) if args.clip else mixed
    write_mixture(args.out, MixtureFile(mixed, sources, torch.tensor(alphas)))
    terms = [f"{a:g} x {n}" for a, n in zip(alphas, args.images, strict=True)]
    say(f"{args.out}: {' + '.join(terms)}")
