"""`basis distance`: how far a set of images is from another, through the eyes of a network."""

from __future__ import annotations

import argparse
import dataclasses

from basis.cli._arguments import add_json, add_root, natural, write_json

EPILOG = """\
examples:
  basis distance separated/ mnist                            digits, by the classifier that ships with the package
  basis distance colourings/ cifar10 --network efficientnet-lite0
  basis distance colourings/ cifar10 --network inception     FID and Inception Score; 96 MB are downloaded once
  basis distance a/ b/ --network inception --weights pt_inception-2015-12-05-6726825d.pth

IMAGES and REFERENCE are data sets by name (their test images), folders, or .npy files. A distance depends on the number of
images in both sets: compare only those of equal numbers.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("images", metavar="IMAGES")
    parser.add_argument("reference", metavar="REFERENCE")
    parser.add_argument(
        "--network",
        default="digits",
        metavar="NAME|DIR",
        help="digits (the default), efficientnet-lite0, inception, or a classifier's folder",
    )
    parser.add_argument("--weights", metavar="PATH", help="inception's weights (else downloaded)")
    parser.add_argument("--count", type=natural, help="at most so many images of either set")
    parser.add_argument("--splits", type=natural, default=10, help="parts of the score (10)")
    parser.add_argument("--size", type=natural, help="side to which photos are cut and scaled")
    add_json(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    from basis import BasisError
    from basis.data import load_images
    from basis.perception import compare, load_network

    sets = [
        load_images(name, "test", root=args.data_root, size=args.size).images[: args.count]
        for name in (args.images, args.reference)
    ]
    for name, images in zip((args.images, args.reference), sets, strict=True):
        if len(images) < 2:
            raise BasisError(f"{name} has {len(images)} image; a distance needs two or more")
    if args.weights and args.network != "inception":
        raise BasisError("--weights goes with --network inception")
    eyes = load_network(args.network, weights=args.weights, root=args.data_root)
    told = compare(eyes, *sets, splits=args.splits)
    print(
        f"{eyes.distance}: {told.distance:.4g}  ({told.count} images, {told.reference} of reference)"
    )
    spread = f" ± {told.score.deviation:.2f}" if told.score.deviation >= 0 else ""
    print(f"{eyes.score}: {told.score.mean:.3f}{spread} over {min(args.splits, told.count)} splits")
    if args.json:
        write_json(args.json, {"command": args.line, **dataclasses.asdict(told)})
