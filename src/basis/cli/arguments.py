"""What several commands share: checks of arguments, progress bars, records."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from basis.errors import BasisError, printable
from basis.files import check_disk_space

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from basis.progress import Progress
    from basis.signals.image_set import ImageSet


_LEAST_ROOM = 1 << 20
"""Bytes that any result needs: less is told before the work."""


def number(text: str) -> float:
    """A finite number, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, not {text!r}")
    return value


def whole_number(text: str) -> int:
    """An integer, for argparse."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r:.60}") from None
    if not -(2**63) <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be a whole number below 2^63, not {text:.60}")
    return value


def seed_number(text: str) -> int:
    """A seed that a random generator takes, for argparse."""
    value = whole_number(text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be from 0 to 2^63 - 1, not {text}")
    return value


def out_folder(text: str) -> Path:
    """Where results go; refused before any work is done where no folder can be, or nothing can be
    written.
    """
    path = Path(text)
    for place in (path, *path.parents):
        if os.path.lexists(place):
            if not os.path.isdir(place):
                raise BasisError(f"{place} is a file; --out takes a folder")
            try:
                tempfile.TemporaryFile(dir=place).close()
            except OSError as error:
                raise BasisError(
                    f"nothing can be written to {place} ({error.strerror}); --out takes a folder"
                ) from error
            check_disk_space(place, _LEAST_ROOM)
            break
    return path


def say(line: object) -> None:
    """Prints one line: what file names and cards bring along (new lines, codes that a terminal
    obeys) is shown, not obeyed.
    """
    print(printable(line))


def warn(line: object) -> None:
    """Prints one line to stderr, escaped like those of `say`."""
    print(printable(line), file=sys.stderr)


def thread_count(text: str) -> int:
    """A number of threads that a machine like this one can start, for argparse."""
    value, most = natural(text), max(64, 4 * (os.cpu_count() or 1))
    if value > most:
        raise argparse.ArgumentTypeError(f"must be at most {most} on this machine, not {text}")
    return value


def _json_file(text: str) -> str:
    if os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text} is a folder; give a file")
    return text


def natural(text: str) -> int:
    """An integer of at least one, for argparse."""
    value = whole_number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def add_seed_and_device(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
) -> None:
    """What everything is drawn from, and where it is computed."""
    parser.add_argument("--seed", type=seed_number, default=0, help="default 0")
    parser.add_argument(
        "--device", default="cpu", help="torch device, or auto: a GPU if any (default: cpu)"
    )


def add_conversions(parser: argparse.ArgumentParser) -> None:
    """What is done to pictures that are not as the prior needs them, where it is asked for."""
    group = parser.add_argument_group("pictures that are not as the prior needs them")
    group.add_argument("--convert", action="store_true", help="colour to grey, or grey to colour")
    group.add_argument(
        "--invert", action="store_true", help="exchange light and dark (black on white)"
    )
    group.add_argument(
        "--resize", action="store_true", help="cut and resize to the prior's size (else: tiles)"
    )


def add_root(parser: argparse.ArgumentParser) -> None:
    """`--data-root`."""
    parser.add_argument(
        "--data-root",
        metavar="DIR",
        help="where data sets and priors lie (default: $BASIS_DATA, else ~/.cache/basis)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument(
        "--json", metavar="PATH", type=_json_file, help="also write the results as JSON"
    )


def add_pairs(parser: argparse.ArgumentParser, count: int) -> None:
    """Which test mixtures are measured on, `count` of them by default."""
    parser.add_argument("--data", default="mnist", help="test set to mix from (default: mnist)")
    parser.add_argument("--pairs", type=natural, default=count, help=f"mixtures (default {count})")
    parser.add_argument("--k", type=natural, default=2, help="sources per mixture (default 2)")
    parser.add_argument(
        "--protocol",
        choices=("agnostic", "split"),
        default="agnostic",
        help="any images (default), or one of each group of classes",
    )


def add_training_set(parser: argparse.ArgumentParser) -> None:
    """What a prior is trained on, and where it goes."""
    parser.add_argument("--data", default="mnist", help="mnist, cifar10, sample, a folder or .npy")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--name", help="what the prior is called (default: the folder's name)")
    parser.add_argument("--size", type=natural, help="side to which photos are cut and scaled")
    parser.add_argument(
        "--classes", type=int, nargs="+", metavar="LABEL", help="only images with these labels"
    )
    parser.add_argument(
        "--held-out",
        type=natural,
        help="images kept for validation (512, or a tenth of fewer than 5,120)",
    )


def training_set(args: argparse.Namespace) -> ImageSet:
    """The images that `add_training_set`'s arguments name."""
    from basis.signals.datasets import load_images

    images = load_images(args.data, "train", root=args.data_root, size=args.size)
    if args.classes:
        images = images.only(args.classes)
    if len(images) <= (args.held_out or 1):
        raise BasisError(
            f"{args.data} has {len(images)} images; training needs more than the "
            f"{args.held_out or 1} kept for validation (--held-out)"
        )
    return images


def add_noise(mixture: Tensor, noise: float, seed: int) -> Tensor:
    """The mixture with Gaussian noise of this standard deviation."""
    import torch

    if noise < 0:
        raise BasisError(f"--noise must be at least 0, not {noise:g}")
    generator = torch.Generator().manual_seed(seed)
    return mixture + noise * torch.randn(mixture.shape, generator=generator) if noise else mixture


def device_from(name: str) -> str:
    """A torch device that exists here, by its name or `auto`."""
    from basis.devices import find_device

    return str(find_device(name))


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """A bar with time left, fed by `separate`'s progress; only on a terminal."""
    from tqdm import tqdm

    with tqdm(desc=label, unit="step", leave=False, dynamic_ncols=True, disable=None) as bar:

        def update(progress: Progress) -> None:
            bar.total = progress.total
            bar.set_postfix(sigma=f"{progress.sigma:.3g}", refresh=False)
            bar.update(progress.done - bar.n)

        yield update
