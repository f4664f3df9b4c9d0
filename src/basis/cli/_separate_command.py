"""`basis separate`: mixtures in, sources, panel and record out."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis._errors import BasisError
from basis._run_folder import RunFolder
from basis.cli._arguments import (
    add_conversions,
    add_noise,
    add_root,
    natural,
    number,
    out_folder,
    say,
)
from basis.cli._blind import (
    check_unknown,
    is_unknown,
    known_rows,
    separate_blindly,
    source_count,
    weight,
)
from basis.cli._job_flags import add_job_flags, wants_job
from basis.cli._result_report import (
    in_order_of,
    print_verdict,
    write_draws,
)
from basis.cli._sampling import add_sampling, priors_from, run_separation, sampler_from, way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from basis import Mixing, Prior, Result

EPILOG = """\
examples:
  basis separate sample --count 6 --out separated       the built-in digits, mixed here
  basis separate mixture.npz --out separated            a file from `basis mix`
  basis separate two.png --alphas 0.5 0.5               a picture that is the average of two
  basis separate photos.png --alphas 0.5 0.5 --prior cifar10    photos, in tiles where larger
  basis separate a.png b.png --alphas 1 0.5 --alphas 0.5 1      two mixtures of the same sources
  basis separate sum.png --clipped                      a sum whose brightest pixels were cut off
  basis separate photo.jpg --convert --invert --resize  a photo of ink on paper, for the digits
  basis separate sample --k 4 --effort best             four digits in one picture
  basis separate two.png --alphas unknown unknown       weights estimated with the sources
  basis separate some.png --k unknown                   one to four sources, as many as it takes
  basis separate sample --sampler gibbs --samples 3     three draws from the posterior of each
  basis separate many.npy --out store --workers 4       thousands, in shards; goes on where it was
  basis separate --sampler gibbs --help                 the settings of a sampler

Values of a mixture are in the units of sum alpha_i x_i with sources in the prior's range.
"""

_SHOWN = 24  # mixtures in the panel


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "inputs",
        nargs="*",
        default=["sample"],
        help="image files or a folder of them, .npy, .npz, or the name of a data set to mix from "
        "(default: sample)",
    )
    parser.add_argument(
        "--alphas",
        type=weight,
        nargs="+",
        action="append",
        help="a weight per source (default: 1 1), or unknown for those to estimate; given several "
        "times, one row for each of several mixtures of the same sources",
    )
    parser.add_argument(
        "--k",
        type=source_count,
        help="number of sources, all with alpha 1, or unknown for 1 to 4",
    )
    parser.add_argument(
        "--grey", action="store_true", help="the input is the channel mean (colourise)"
    )
    parser.add_argument(
        "--mask", metavar="FILE", help="picture: white where observed, black where not"
    )
    parser.add_argument(
        "--noise", type=number, default=0.0, help="noise on the mixture (default 0)"
    )
    parser.add_argument(
        "--clipped",
        action="store_true",
        help="values above 1 were cut off: a saturated pixel was at least so bright",
    )
    parser.add_argument(
        "--rounded", action="store_true", help="values were rounded to the steps of 8 bits"
    )
    add_conversions(parser)
    parser.add_argument("--count", type=natural, default=6, help="mixtures made of a data set")
    parser.add_argument(
        "--keep", type=number, nargs="+", help="noise levels whose states to show too"
    )
    parser.add_argument("--out", default="separated", metavar="DIR", help="default: separated")
    add_sampling(parser)
    add_job_flags(parser)
    add_root(parser)


@dataclass(frozen=True)
class _Input:
    """What is to be separated: names, mixtures, and the truth and weights where they are known."""

    names: list[str]
    mixture: Tensor
    truth: Tensor | None
    weights: list[list[float]] | None


def run(args: argparse.Namespace) -> None:
    """Separates the inputs and writes sources, panel and record."""
    if wants_job(args, args.inputs, args.count):
        from basis.cli._separate_job import separate_as_job

        separate_as_job(args)
        return

    from basis import metrics, mixings
    from basis.panels import separation_panel, to_picture, write_picture
    from basis.priors import Tiled
    from basis.separation import has_draws, overridden, verdict_rows

    sampler = sampler_from(args)
    out = out_folder(args.out)
    folder = RunFolder(out)
    priors = priors_from(args)
    _check_weights(args)
    given = _read(args, priors[0])
    mixture, truth, names = given.mixture, given.truth, given.names
    priors = _large_enough(priors, mixture)
    if is_unknown(args):
        most = 4 if args.k == "unknown" else int(args.k or 2)
        _check_places(args, out, given, most, priors[0])
        result, mixing = separate_blindly(args, mixture, priors, sampler)
        truth = truth if truth is not None and truth.shape == result.sources.shape else None
    else:
        mixing = _mixing(args, priors, given)
        if (
            args.grey or mixture.shape[1] == priors[0].shape[0]
        ):  # else `separate` says what is wrong
            _check_truth(truth, mixing.sources, priors[0])
        _check_places(args, out, given, mixing.sources, priors[0])
        told = overridden(mixing, given.weights[0]) if given.weights else None
        if told:
            print(f"basis separate: warning: {told}", file=sys.stderr)
        result = run_separation(
            args, mixture, priors, mixing, sampler, "separating", keep=args.keep or ()
        )
    if truth is not None:
        result = in_order_of(result, truth)
    if is_unknown(args) and result.alphas is not None:
        mixing = mixings.WeightedMixing(result.alphas)
    sources = result.sources

    low, high = priors[0].low, priors[0].high
    shown = min(len(names), _SHOWN)
    called = " and ".join(dict.fromkeys(p.name for p in priors))
    title = f"{called} prior, {way(args)}, {result.evaluations} network evaluations per mixture"
    panel = separation_panel(
        mixture[:shown],
        sources[:shown],
        mixing.rows(slice(shown)),
        truth=None if truth is None else truth[:shown],
        names=names[:shown],
        title=title,
        low=low,
        high=high,
        plausibility=None if result.plausibility is None else result.plausibility[:shown],
        deviation=result.std[:shown] if has_draws(result) else None,
    )
    if len(priors[0].shape) == 3:
        for name, item in zip(names, sources, strict=True):
            for i, image in enumerate(item):
                picture = to_picture(image, low=low, high=high)
                write_picture(folder.path(f"{name}-source{i + 1}.png"), picture)
    _write_arrays(folder.path("sources.npz"), mixture, result, sources, truth)
    write_picture(folder.path("panel.png"), panel)
    if has_draws(result):
        write_draws(folder, names, mixture, result, low, high, shown)
    if result.kept:
        states = _states_panel(names[:shown], mixing.observe(mixture), result, low, high)
        write_picture(folder.path("states.png"), states)
    record = _record(args, names, result, truth, low, high)
    for row, verdict in zip(record["mixtures"], verdict_rows(result), strict=True):
        row.update(verdict)
    folder.finish(record)
    if truth is not None and low is not None and high is not None:
        print(f"PSNR {metrics.summarise(metrics.psnr(sources, truth, low, high))} dB")
    _print_residual(args, result, priors[0])
    print_verdict(names, result, priors)
    if isinstance(priors[0], Tiled):
        tile = "x".join(map(str, priors[0].prior.shape[1:]))
        print(f"larger than the prior's {tile} pixels: seen through overlapping tiles")
    if shown < len(names):
        print(f"the picture shows the first {shown} of {len(names)} mixtures")
    say(f"picture: {out / 'panel.png'}")


def _check_truth(truth: Tensor | None, k: int, prior: Prior) -> None:
    """Refuses known sources that nothing found could be compared with, before the work."""
    if truth is not None and tuple(truth.shape[1:]) != (k, *prior.shape):
        raise BasisError(
            f"the file's sources have shape {tuple(truth.shape[1:])} each; {k} sources of this "
            f"prior have {(k, *prior.shape)}"
        )


def _check_places(args: argparse.Namespace, out: Path, given: _Input, k: int, prior: Prior) -> None:
    """Refuses results that would take the place of an input or find no room, before the work."""
    from math import prod

    from basis._files import check_replaceable, check_room

    if len(prior.shape) == 3:
        for name in given.names:
            for i in range(k):
                check_replaceable(out / f"{name}-source{i + 1}.png")
    for name in ("sources.npz", "panel.png", "run.json"):
        check_replaceable(out / name)
    # Sources as numbers and as pictures, the mixture and the samples, hardly compressed.
    check_room(out, 4 * len(given.names) * k * prod(prior.shape) * (2 + (args.samples or 1)))


def _print_residual(args: argparse.Namespace, result: Result, prior: Prior) -> None:
    """How far the sources are from the mixture, with a warning where they cannot make it."""
    width = (
        prior.spread / 0.3 if prior.low is None or prior.high is None else prior.high - prior.low
    )
    worst = result.residual.max().item() / width * 255
    print(f"residual at most {worst:.2f}/255 rms, {result.seconds:.1f} s")
    if worst > 1 and not args.noise:
        bounded = prior.low is not None and prior.high is not None
        values = f"in [{prior.low:g}, {prior.high:g}]" if bounded else "of this prior"
        print(
            f"basis separate: warning: no sources {values} make this mixture; are the alphas "
            "those it was mixed with, and its values in their units?",
            file=sys.stderr,
        )


def _check_weights(args: argparse.Namespace) -> None:
    """Refuses weights that contradict each other before anything is read."""
    check_unknown(args)
    rows = args.alphas or []
    if len({len(row) for row in rows}) > 1:
        raise BasisError("every --alphas must have one weight per source, all equally many")
    if rows and isinstance(args.k, int) and len(rows[0]) not in (args.k, int(is_unknown(args))):
        raise BasisError(f"{len(rows[0])} alphas for k = {args.k}; give one alpha per source")
    if args.noise < 0:
        raise BasisError(f"--noise must be at least 0, not {args.noise:g}")


def _read(args: argparse.Namespace, prior: Prior) -> _Input:
    from basis.data import NAMES

    if len(args.inputs) == 1 and args.inputs[0] in NAMES:
        return _from_data_set(args)
    return _from_files(args, prior)


def _from_data_set(args: argparse.Namespace) -> _Input:
    """Mixtures of the test images of a data set, made here."""
    from basis import mixtures
    from basis.data import load_images
    from basis.pairs import draw_pairs

    check_data_set_flags(args)
    images = load_images(args.inputs[0], "test", root=args.data_root)
    rows = known_rows(args) or [[1.0] * (args.k or max(2, len(args.prior or ())))]
    pairs = draw_pairs(images, args.count, k=len(rows[0]), seed=args.seed)
    mixed = add_noise(mixtures(rows)(pairs.sources), args.noise, args.seed)
    mixed = as_recorded(args, mixed)
    digits = max(2, len(str(args.count)))
    names = [f"{i + 1:0{digits}d}" for i in range(args.count)]
    return _Input(names, mixed, pairs.sources, rows)


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


def _from_files(args: argparse.Namespace, prior: Prior) -> _Input:
    """Mixtures from files; with several rows of weights, so many files are one observation."""
    import torch

    from basis.data import MixtureFile, read_mixture, read_observation

    files = [read_mixture(path, dims=len(prior.shape) - 1) for path in args.inputs]
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
    return _Input(names, mixture, truth, None if brought is None else [brought])


def _stack(names: list[str], mixture: Tensor, rows: int) -> tuple[list[str], Tensor]:
    """Every `rows` mixtures become one observation of the same sources."""
    if len(mixture) % rows:
        raise BasisError(
            f"{len(mixture)} mixtures for {rows} rows of --alphas; give {rows} mixtures of the "
            "same sources for every observation"
        )
    stacked = mixture.unflatten(0, (-1, rows)).flatten(1, 2)
    return names[::rows], stacked


def _large_enough(priors: list[Prior], mixture: Tensor) -> list[Prior]:
    """The priors for signals of the mixture's size, through tiles where it is larger than
    theirs.
    """
    from basis.priors import Tiled

    size = tuple(mixture.shape[2:])
    tiles = [p.shape[1:] for p in priors]
    if any(len(size) != len(tile) or size == tile for tile in tiles) or any(
        side < own for tile in tiles for side, own in zip(size, tile, strict=True)
    ):
        return priors  # as they are, or refused as too small later on
    return [Tiled(p, *size) for p in priors]


def _mixing(args: argparse.Namespace, priors: Sequence[Prior], given: _Input) -> Mixing:
    from basis import mixings
    from basis.data import read_image

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
        mixing = mixings.grey_mixture(weights, priors[0].shape[0])
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
        mixing = mixing.masked((mask > 0.5).double())
    return with_limits(args, mixing.noisy(args.noise))


def _states_panel(
    names: list[str], mixture: Tensor, result: Result, low: float | None, high: float | None
) -> Any:
    from basis.panels import states_panel

    kept = {sigma: states[: len(names), 0] for sigma, states in result.kept.items()}
    return states_panel(mixture[: len(names)], kept, names=names, low=low, high=high)


def _write_arrays(
    path: Path, mixture: Tensor, result: Result, sources: Tensor, truth: Tensor | None
) -> None:
    import numpy as np

    from basis._files import whole_file

    arrays = {"mixture": mixture, "sources": sources, "samples": result.samples}
    if truth is not None:
        arrays["truth"] = truth
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        named: Any = {name: t.cpu().numpy() for name, t in arrays.items()}
        np.savez_compressed(file, **named)


def _record(
    args: argparse.Namespace,
    names: list[str],
    result: Result,
    truth: Tensor | None,
    low: float | None,
    high: float | None,
) -> dict[str, Any]:
    from basis import metrics

    rows: list[dict[str, Any]] = [
        {"name": n, "residual_rms": r} for n, r in zip(names, result.residual.tolist(), strict=True)
    ]
    record: dict[str, Any] = {
        "command": args.line,
        "inputs": args.inputs,
        "seed": result.seed,
        "evaluations_per_mixture": result.evaluations,
        "seconds": round(result.seconds, 3),
        "settings": result.settings,
        "mixtures": rows,
    }
    if truth is not None and low is not None and high is not None:
        scores = metrics.psnr(result.sources, truth, low, high)
        for row, score in zip(rows, scores.tolist(), strict=True):
            row["psnr"] = score
        record["psnr"] = vars(metrics.summarise(scores))
    return record
