"""`basis separate`: mixtures in, sources, panel and record out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli._arguments import (
    add_noise,
    add_root,
    add_sampling,
    natural,
    number,
    out_folder,
    priors_from,
    run_separation,
    sampler_from,
    way,
    write_json,
)

if TYPE_CHECKING:
    from torch import Tensor

    from basis import Mixing, Prior, Result

EPILOG = """\
examples:
  basis separate sample --count 6 --out separated       the built-in digits, mixed here
  basis separate mixture.npz --out separated            a file from `basis mix`
  basis separate two.png --alphas 0.5 0.5               a picture that is the average of two
  basis separate photos.png --alphas 0.5 0.5 --prior cifar10    photos; larger than the prior's 32x32 by overlapping tiles
  basis separate sample --k 4 --effort best             four digits in one picture, looked at long
  basis separate sample --sampler gibbs --samples 3     three draws from the posterior of each

Pixels of a mixture are in the units of sum alpha_i x_i with sources in [0, 1].
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "inputs",
        nargs="*",
        default=["sample"],
        help="image files, .npy, .npz, or the name of a data set to mix from (default: sample)",
    )
    parser.add_argument(
        "--alphas", type=number, nargs="+", help="a weight per source (default: 1 1)"
    )
    parser.add_argument("--k", type=natural, help="number of sources, all with alpha 1")
    parser.add_argument(
        "--grey", action="store_true", help="the input is the channel mean (colourise)"
    )
    parser.add_argument(
        "--mask", metavar="FILE", help="picture: white where observed, black where not"
    )
    parser.add_argument(
        "--noise", type=number, default=0.0, help="noise on the mixture (default 0)"
    )
    parser.add_argument("--count", type=natural, default=6, help="mixtures made of a data set")
    parser.add_argument(
        "--keep", type=number, nargs="+", help="noise levels whose states to show too"
    )
    parser.add_argument("--out", default="separated", metavar="DIR", help="default: separated")
    add_sampling(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    from basis import metrics
    from basis.panels import separation_panel, to_picture, write_picture
    from basis.priors import Tiled

    sampler = sampler_from(args)
    out = out_folder(args.out)
    priors = priors_from(args)
    names, mixture, truth, alphas = _read(args)
    priors = _large_enough(priors, mixture)
    mixing = _mixing(args, priors, alphas, mixture)
    result = run_separation(
        args, mixture, priors, mixing, sampler, "separating", keep=args.keep or ()
    )
    sources = result.sources if truth is None else metrics.reorder(result.sources, truth)

    shown = min(len(names), 24)
    called = " and ".join(dict.fromkeys(p.name for p in priors))
    title = f"{called} prior, {way(args)}, {result.evaluations} network evaluations per mixture"
    panel = separation_panel(
        mixture[:shown],
        sources[:shown],
        mixing,
        truth=None if truth is None else truth[:shown],
        names=names[:shown],
        title=title,
    )
    for name, item in zip(names, sources, strict=True):
        for i, image in enumerate(item):
            write_picture(out / f"{name}-source{i + 1}.png", to_picture(image))
    _write_arrays(out / "sources.npz", mixture, result, sources, truth)
    write_picture(out / "panel.png", panel)
    if result.kept:
        write_picture(out / "states.png", _states_panel(names[:shown], mixture, result))
    record = _record(args, names, result, truth)
    write_json(out / "run.json", record)
    if truth is not None:
        print(f"PSNR {metrics.summarise(metrics.psnr(sources, truth))} dB")
    worst = result.residual.max().item() * 255
    print(f"residual at most {worst:.2f}/255 rms, {result.seconds:.1f} s")
    if worst > 1 and not args.noise:
        print(
            "basis separate: warning: no sources in [0, 1] make this mixture; are the alphas those it was mixed with, "
            "and its pixels in their units?",
            file=sys.stderr,
        )
    if isinstance(priors[0], Tiled):
        tile = "x".join(map(str, priors[0].prior.shape[1:]))
        print(f"larger than the prior's {tile} pixels: seen through overlapping tiles")
    if shown < len(names):
        print(f"the picture shows the first {shown} of {len(names)} mixtures")
    print(f"picture: {out / 'panel.png'}")


def _read(
    args: argparse.Namespace,
) -> tuple[list[str], Tensor, Tensor | None, list[float] | None]:
    """Names, mixtures, truth where known, and the alphas that a file brings."""
    import torch

    from basis._errors import BasisError
    from basis.data import load_images, read_mixture
    from basis.data._places import NAMES
    from basis.pairs import draw_pairs

    if len(args.inputs) == 1 and args.inputs[0] in NAMES:
        if args.grey or args.mask:
            raise BasisError(
                "--grey and --mask go with files of mixtures, not with a data set's name"
            )
        images = load_images(args.inputs[0], "test", root=args.data_root)
        alphas = args.alphas or [1.0] * (args.k or max(2, len(args.prior or ())))
        pairs = draw_pairs(images, args.count, k=len(alphas), seed=args.seed)
        mixed = pairs.mix(alphas)
        mixed = add_noise(mixed, args.noise, args.seed)
        digits = max(2, len(str(args.count)))
        names = [f"{i + 1:0{digits}d}" for i in range(args.count)]
        return names, mixed, pairs.sources, alphas

    names = []
    mixtures: list[Tensor] = []
    truths: list[Tensor | None] = []
    brought: list[float] | None = None
    for path in args.inputs:
        file = read_mixture(path)
        stem = Path(path).stem
        count = len(file.mixture)
        names += [stem] if count == 1 else [f"{stem}-{i + 1:04d}" for i in range(count)]
        mixtures.append(file.mixture.float())
        truths.append(None if file.sources is None else file.sources.float())
        if file.alphas is not None:
            own = file.alphas.tolist()
            if brought is not None and own != brought:
                raise BasisError(f"{path} was mixed with other alphas than the files before it")
            brought = own
    for path, m in zip(args.inputs, mixtures, strict=True):
        if m.shape[1:] != mixtures[0].shape[1:]:
            raise BasisError(
                f"{path} has shape {tuple(m.shape[1:])}, {args.inputs[0]} has "
                f"{tuple(mixtures[0].shape[1:])}; separate them one at a time"
            )
    duplicated = {n for n in names if names.count(n) > 1}
    if duplicated:
        names = [f"{i + 1:02d}-{n}" for i, n in enumerate(names)]
    known = [t for t in truths if t is not None]
    truth = torch.cat(known) if len(known) == len(truths) else None
    return names, torch.cat(mixtures), truth, brought


def _large_enough(priors: list[Prior], mixture: Tensor) -> list[Prior]:
    """The priors for images of the mixture's size: through overlapping tiles where it is larger than theirs."""
    from basis.priors import Tiled

    height, width = mixture.shape[2:]
    tiles = [p.shape[1:] for p in priors]
    if any((height, width) == t or height < t[0] or width < t[1] for t in tiles):
        return priors  # as they are, or told to be too small later on
    return [Tiled(p, height, width) for p in priors]


def _mixing(
    args: argparse.Namespace, priors: list[Prior], brought: list[float] | None, mixture: Tensor
) -> Mixing:
    from basis import mixings
    from basis._errors import BasisError
    from basis.data import read_image

    if args.alphas and args.k and len(args.alphas) != args.k:
        raise BasisError(f"{len(args.alphas)} alphas for k = {args.k}; give one alpha per source")
    if args.alphas and brought and len(args.alphas) != len(brought):
        raise BasisError(
            f"{len(args.alphas)} alphas, but the file was mixed of {len(brought)} sources; "
            "give one alpha per source"
        )
    if args.k and brought and args.k != len(brought):
        raise BasisError(f"k = {args.k}, but the file was mixed of {len(brought)} sources")
    channels = priors[0].shape[0]
    if args.grey:
        mixing = mixings.grey_mixture(args.alphas or [1.0] * (args.k or len(priors)), channels)
    else:
        mixing = mixings.mixture(
            args.alphas or brought or [1.0] * (args.k or max(2, len(priors))), channels
        )
    if args.mask:
        mask = read_image(args.mask, channels=1)
        if mask.shape[1:] != mixture.shape[2:]:
            raise BasisError(
                f"{args.mask} is {tuple(mask.shape[1:])} pixels, the mixture {tuple(mixture.shape[2:])}"
            )
        mixing = mixing.masked((mask > 0.5).double())
    if args.noise < 0:
        raise BasisError(f"--noise must be at least 0, not {args.noise:g}")
    return mixing.noisy(args.noise)


def _states_panel(names: list[str], mixture: Tensor, result: Result) -> Any:
    from basis.panels import states_panel

    kept = {sigma: states[: len(names), 0] for sigma, states in result.kept.items()}
    return states_panel(mixture[: len(names)], kept, names=names)


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
    if truth is not None:
        scores = metrics.psnr(result.sources, truth)
        for row, score in zip(rows, scores.tolist(), strict=True):
            row["psnr"] = score
        record["psnr"] = vars(metrics.summarise(scores))
    return record
