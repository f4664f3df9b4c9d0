"""What `basis separate` is given: mixtures and how they were mixed, from files or made here."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from basis.cli.arguments import add_noise
from basis.cli.blind import check_unknown, is_unknown, known_rows
from basis.errors import BasisError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from basis.mixings.mixing import Mixing
    from basis.priors.prior import Prior


@dataclass(frozen=True)
class Input:
    """What is to be separated: names, mixtures, and the truth and weights where they are known."""

    names: list[str]
    mixture: Tensor
    truth: Tensor | None
    weights: list[list[float]] | None


def check_weights(args: argparse.Namespace) -> None:
    """Refuses weights that contradict each other before anything is read."""
    check_unknown(args)
    rows = args.alphas or []
    if len({len(row) for row in rows}) > 1:
        raise BasisError("every --alphas must have one weight per source, all equally many")
    if rows and isinstance(args.k, int) and len(rows[0]) not in (args.k, int(is_unknown(args))):
        raise BasisError(f"{len(rows[0])} alphas for k = {args.k}; give one alpha per source")
    if args.noise < 0:
        raise BasisError(f"--noise must be at least 0, not {args.noise:g}")
    hidden = args.grey or args.mask or args.noise or args.clipped or args.rounded
    if len(rows) == 1 and len(rows[0]) == 1 and not (args.k or hidden or is_unknown(args)):
        raise BasisError(
            f"--alphas {rows[0][0]:g} is one source, and nothing is added to it; give a weight for "
            "each source"
        )


def read_input(args: argparse.Namespace, prior: Prior) -> Input:
    """The mixtures that the arguments name: files, or a data set to mix from."""
    from basis.signals.datasets import NAMES

    if len(args.inputs) == 1 and args.inputs[0] in NAMES:
        return _from_data_set(args)
    return _from_files(args, prior)


def _from_data_set(args: argparse.Namespace) -> Input:
    """Mixtures of the test images of a data set, made here."""
    from basis._mix import draw_pairs
    from basis.mixings.matrix import mixtures
    from basis.signals.datasets import load_images

    check_data_set_flags(args)
    images = load_images(args.inputs[0], "test", root=args.data_root)
    rows = known_rows(args) or [[1.0] * (args.k or max(2, len(args.prior or ())))]
    pairs = draw_pairs(images, args.count, k=len(rows[0]), seed=args.seed)
    mixed = add_noise(mixtures(rows)(pairs.sources), args.noise, args.seed)
    mixed = as_recorded(args, mixed)
    digits = max(2, len(str(args.count)))
    names = [f"{i + 1:0{digits}d}" for i in range(args.count)]
    return Input(names, mixed, pairs.sources, rows)


def check_data_set_flags(args: argparse.Namespace) -> None:
    """Refuses what is about files of mixtures, where mixtures are made here."""
    if args.grey or args.mask or args.convert or args.invert or args.resize:
        raise BasisError(
            "--grey, --mask, --convert, --invert and --resize go with files of mixtures, not with "
            "a data set's name"
        )


def as_recorded(args: argparse.Namespace, mixed: Tensor) -> Tensor:
    """Mixtures of any shape as the flags say that they were recorded: cut off at 1, rounded."""
    mixed = mixed.clamp(max=1.0) if args.clipped else mixed
    return mixed.mul(255).round().div(255) if args.rounded else mixed


def with_limits(args: argparse.Namespace, mixing: Mixing) -> Mixing:
    """The mixing that knows of it."""
    mixing = mixing.clipped() if args.clipped else mixing
    return mixing.rounded() if args.rounded else mixing


def _from_files(args: argparse.Namespace, prior: Prior) -> Input:
    """Mixtures from files; with several rows of weights, so many files are one observation."""
    import torch

    from basis.signals.observation import MAX_PIXELS as MOST_PIXELS
    from basis.signals.old_observation import MixtureFile, read_mixture, read_observation

    most = None if args.resize else MOST_PIXELS
    files = [read_mixture(path, dims=len(prior.shape) - 1, most=most) for path in args.inputs]
    fit = {name: getattr(args, name) for name in ("convert", "invert", "resize")}
    wanted = (1 if args.grey else prior.shape[0], *prior.shape[1:])
    for i, file in enumerate(files):
        fitted = read_observation(file, wanted, low=prior.low, high=prior.high, **fit)
        if fitted is not file.mixture:  # the sources of the file are not those of another picture
            files[i] = MixtureFile(fitted, None, file.alphas)
    names: list[str] = []
    brought: list[float] | None = None
    for path, file in zip(args.inputs, files, strict=True):
        stem, count = Path(path).stem, len(file.mixture)
        names += [stem] if count == 1 else [f"{stem}-{i + 1:04d}" for i in range(count)]
        if file.mixture.shape[1:] != files[0].mixture.shape[1:]:
            raise BasisError(
                f"{path} has shape {tuple(file.mixture.shape[1:])}, {args.inputs[0]} has "
                f"{tuple(files[0].mixture.shape[1:])}; separate them one at a time"
            )
        if file.alphas is not None:
            own = file.alphas.tolist()
            if len(args.alphas or ()) > 1:
                if not any(_same(own, row) for row in args.alphas):
                    raise BasisError(
                        f"{path} was mixed with alphas {' '.join(f'{a:g}' for a in own)}, which is "
                        "no row of --alphas"
                    )
                continue
            if brought is not None and own != brought:
                raise BasisError(f"{path} was mixed with other alphas than the files before it")
            brought = own
    mixture = torch.cat([file.mixture.float() for file in files])
    rows = len(args.alphas or [()])
    if rows > 1 and mixture.shape[1] == prior.shape[0]:
        names, mixture = _stack(names, mixture, rows)
    if len(set(names)) < len(names):
        names = [f"{i + 1:02d}-{n}" for i, n in enumerate(names)]
    known = [file.sources.float() for file in files if file.sources is not None]
    truth = torch.cat(known) if len(known) == len(files) and rows == 1 else None
    return Input(names, mixture, truth, None if brought is None else [brought])


def _same(weights: Sequence[float], others: Sequence[float]) -> bool:
    """Whether weights are the same but for rounding."""
    pairs = zip(weights, others, strict=False)
    return len(weights) == len(others) and all(abs(a - b) < 1e-6 for a, b in pairs)


def _stack(names: list[str], mixture: Tensor, rows: int) -> tuple[list[str], Tensor]:
    """Every `rows` mixtures become one observation of the same sources."""
    if len(mixture) % rows:
        raise BasisError(
            f"{len(mixture)} mixtures for {rows} rows of --alphas; give {rows} mixtures of the "
            "same sources for every observation"
        )
    stacked = mixture.unflatten(0, (-1, rows)).flatten(1, 2)
    return names[::rows], stacked


def mixing_from(args: argparse.Namespace, priors: Sequence[Prior], given: Input) -> Mixing:
    """The mixing that the flags and the files say."""
    from basis import mixings
    from basis.signals.old_observation import read_image

    rows, brought = args.alphas, given.weights
    if rows and brought and len(rows[0]) != len(brought[0]):
        raise BasisError(
            f"{len(rows[0])} alphas, but the file was mixed of {len(brought[0])} sources; "
            "give one alpha per source"
        )
    if args.k and brought and args.k != len(brought[0]):
        raise BasisError(f"k = {args.k}, but the file was mixed of {len(brought[0])} sources")
    mixing: Mixing
    if args.grey:
        if rows and len(rows) > 1:
            raise BasisError("--grey takes one row of --alphas")
        weights = (rows or brought or [[1.0] * (args.k or len(priors))])[0]
        mixing = mixings.grey(weights, priors[0].shape[0])
    else:
        count = args.k or max(2, len(priors))
        mixing = mixings.mixtures(rows or brought or [[1.0] * count])
    if args.mask:
        mask = read_image(args.mask, channels=1)
        if mask.shape[1:] != given.mixture.shape[2:]:
            raise BasisError(
                f"{args.mask} is {tuple(mask.shape[1:])} pixels, the mixture "
                f"{tuple(given.mixture.shape[2:])}"
            )
        mixing = mixing.replace(mask=(mask > 0.5).double())
    return with_limits(args, mixing.replace(noise=args.noise))


def check_truth(truth: Tensor | None, k: int, prior: Prior) -> None:
    """Refuses known sources that nothing found could be compared with, before the work."""
    if truth is not None and tuple(truth.shape[1:]) != (k, *prior.shape):
        raise BasisError(
            f"the file's sources have shape {tuple(truth.shape[1:])} each; {k} sources of this "
            f"prior have {(k, *prior.shape)}"
        )
