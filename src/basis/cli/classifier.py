"""`basis classifier`: a small classifier, whose features compare sets of images of its kind."""

from __future__ import annotations

import argparse

from basis.cli.arguments import add_root, number, out_folder, say, seed_number

EPILOG = """\
examples:
  basis classifier --data mnist --out digits
  basis distance separated/ mnist --network digits

The classifier that `--network digits` names was made by the first of these. Images must be square
and labelled.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `basis classifier`."""
    parser.epilog = EPILOG
    parser.add_argument("--data", default="mnist", help="mnist (the default), cifar10 or sample")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the classifier")
    parser.add_argument("--epochs", type=number, default=5.0, help="times each image is seen (5)")
    parser.add_argument("--seed", type=seed_number, default=0, help="default 0")
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Trains a classifier and writes it with its accuracy."""
    import torch
    from tqdm import tqdm

    from basis.errors import BasisError
    from basis.lab.classifier import accuracy, train_classifier
    from basis.lab.inception import save_classifier
    from basis.signals.datasets import load_images

    out = out_folder(args.out)
    if args.epochs <= 0:
        raise BasisError(f"--epochs must be more than 0, not {args.epochs:g}")
    train = load_images(args.data, "train", root=args.data_root)
    test = load_images(args.data, "test", root=args.data_root)
    if train.labels is None or test.labels is None:
        raise BasisError(f"{args.data} has no labels")
    if train.images.ndim != 4 or train.images.dtype != torch.uint8:
        raise BasisError(f"{args.data} holds signals; a classifier is trained on pictures")
    form = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, leave=False, disable=None, bar_format=form) as bar:

        def progress(share: float) -> None:
            bar.update(share - bar.n)

        model = train_classifier(
            train.images, train.labels, epochs=args.epochs, seed=args.seed, progress=progress
        )
    right = accuracy(model, test.images, test.labels)
    about = {"command": args.line, "accuracy": right, "images": len(test), "data": args.data}
    path = save_classifier(model, out, about)
    say(f"names {right:.2%} of {len(test):,} test images correctly; written to {path}")
