"""`basis distance`: how far a set of images is from another, by the features of a network."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from basis.cli.arguments import add_json, add_root, natural, say
from basis.files import write_json

EPILOG = """\
examples:
  basis distance separated/ mnist                         digits, by the classifier of the package
  basis distance colourings/ cifar10 --network efficientnet-lite0
  basis distance colourings/ cifar10 --network inception  FID and Inception Score (96 MB, once)
  basis distance a/ b/ --network inception --weights pt_inception-2015-12-05-6726825d.pth

IMAGES and REFERENCE are data sets by name (their test images), folders, or .npy files; the store of
a job is read piece by piece, whatever its size, and the kernel distance is told too. A distance
depends on the number of images in both sets: compare only those of equal numbers.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `basis distance`."""
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
    """Prints the distance and the score of the images."""
    from basis.errors import BasisError
    from basis.lab.features import compare
    from basis.lab.inception import load_network
    from basis.signals.datasets import load_images

    if any(map(_is_large, (args.images, args.reference))):
        _run_streamed(args)
        return
    sets = [
        load_images(name, "test", root=args.data_root, size=args.size).images[: args.count]
        for name in (args.images, args.reference)
    ]
    for name, images in zip((args.images, args.reference), sets, strict=True):
        if len(images) < 2:
            raise BasisError(f"{name} has {len(images)} image; a distance needs two or more")
    if args.weights and args.network != "inception":
        raise BasisError("--weights goes with --network inception")
    extractor = load_network(args.network, weights=args.weights, root=args.data_root)
    found = compare(extractor, *sets, splits=args.splits)
    count, score = found.count, found.score
    say(
        f"{extractor.distance_name}: {found.distance:.4g}  "
        f"({count} images, {found.reference} of reference)"
    )
    spread = f" ± {score.deviation:.2f}" if score.deviation >= 0 else ""
    splits = min(args.splits, count)
    say(f"{extractor.score_name}: {score.mean:.3f}{spread} over {splits} splits")
    if args.json:
        write_json(args.json, {"command": args.line, **dataclasses.asdict(found)})


def _is_large(name: str) -> bool:
    """Whether a set is the store of a job."""
    return (Path(name) / "store.json").is_file()


def _run_streamed(args: argparse.Namespace) -> None:
    """The same for sets of any size, with the kernel distance."""
    from basis.errors import BasisError
    from basis.jobs.store import open_store
    from basis.lab.features import ImagePieces, compare_streams
    from basis.lab.inception import load_network
    from basis.signals.datasets import load_images

    sets = []
    for name in (args.images, args.reference):
        if _is_large(name):
            store = open_store(name)
            if store.failures:
                raise BasisError(
                    f"{name} has {len(store.failures)} mixtures that could not be separated; a "
                    "distance needs all of its images"
                )
            found: Any = store["colours" if "colours" in store.arrays else "sources"]
        else:
            found = load_images(name, "test", root=args.data_root, size=args.size).images
        sets.append(ImagePieces(found, args.count))
    if min(map(len, sets)) < 2:
        raise BasisError("a distance needs two or more images in either set")
    extractor = load_network(args.network, weights=args.weights, root=args.data_root)
    result = compare_streams(extractor, *sets, splits=args.splits)
    print(
        f"{extractor.distance_name}: {result.distance:.4g}  "
        f"({result.count} images, {result.reference} of reference)"
    )
    kernel, score = result.kernel, result.score
    print(
        f"kernel distance: {kernel.distance:.4g} ± {kernel.error:.2g} over {kernel.blocks} blocks"
    )
    spread = f" ± {score.deviation:.2f}" if score.deviation >= 0 else ""
    splits = min(args.splits, result.count)
    print(f"{extractor.score_name}: {score.mean:.3f}{spread} over {splits} splits")
    if args.json:
        write_json(args.json, {"command": args.line, **dataclasses.asdict(result)})
