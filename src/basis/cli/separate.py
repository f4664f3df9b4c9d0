"""`basis separate`: mixtures in, sources, panel and record out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import add_conversions, add_root, natural, number, out_folder, say
from basis.cli.blind import is_unknown, separate_blindly, source_count, weight
from basis.cli.job_flags import add_job_flags, wants_job
from basis.cli.result_report import in_order_of, in_steps, print_verdict, write_draws
from basis.cli.sampling import add_sampling, priors_from, run_separation, sampler_from, way
from basis.cli.separate_input import Input, check_truth, check_weights, mixing_from, read_input
from basis.files import RunFolder

if TYPE_CHECKING:
    from torch import Tensor

    from basis.priors.prior import Prior
    from basis.result import Result


EPILOG = """\
examples:
  basis separate sample --count 6 --out separated       the built-in digits, mixed here
  basis separate mixture.npz --out separated            a file from `basis mix`
  basis separate two.png --alphas 0.5 0.5               a picture that is the average of two
  basis separate photos.png --alphas 0.5 0.5 --prior cifar10    photos, in tiles where larger
  basis separate a.png b.png --alphas 1 0.5 --alphas 0.5 1      two mixtures of the same sources
  basis separate sum.png --clipped                      a sum whose brightest pixels were cut off
  basis separate photo.jpg --clipped --convert --invert --resize    ink on paper, for the digits
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


def run(args: argparse.Namespace) -> None:
    """Separates the inputs and writes sources, panel and record."""
    if wants_job(args, args.inputs, args.count):
        from basis.cli.separate_job import separate_as_job

        separate_as_job(args)
        return

    from basis import metrics, mixings
    from basis._inputs import overridden
    from basis.plots.drawing import to_picture, write_picture
    from basis.plots.panels import separation_panel
    from basis.priors.tiled import Tiled, large_enough
    from basis.result import has_draws, verdict_rows

    sampler = sampler_from(args)
    out = out_folder(args.out)
    folder = RunFolder(out)
    folder.refuse_job()
    priors = priors_from(args)
    check_weights(args)
    given = read_input(args, priors[0])
    mixture, truth, names = given.mixture, given.truth, given.names
    priors = large_enough(priors, tuple(mixture.shape[2:]))
    if is_unknown(args):
        most = 4 if args.k == "unknown" else int(args.k or 2)
        _check_places(args, out, given, most, priors[0])
        result, mixing = separate_blindly(args, mixture, priors, sampler)
        truth = truth if truth is not None and truth.shape == result.sources.shape else None
    else:
        mixing = mixing_from(args, priors, given)
        if (
            args.grey or mixture.shape[1] == priors[0].shape[0]
        ):  # else `separate` says what is wrong
            check_truth(truth, mixing.sources, priors[0])
        _check_places(args, out, given, mixing.sources, priors[0])
        told = overridden(mixing, given.weights[0]) if given.weights else None
        if told:
            print(f"basis separate: warning: {told}", file=sys.stderr)
        if not (args.alphas or args.k or given.weights):
            say(f"no weights were given: taken as a plain sum, {mixing!r}")
        result = run_separation(
            args, mixture, priors, mixing, sampler, "separating", keep=args.keep or ()
        )
    if truth is not None:
        result = in_order_of(result, truth)
    if is_unknown(args) and result.alphas is not None:
        mixing = mixings.PerItemMixing(result.alphas)
    sources = result.sources

    low, high = priors[0].low, priors[0].high
    shown = min(len(names), _SHOWN)
    called = " and ".join(dict.fromkeys(p.name for p in priors))
    title = f"{called} prior, {way(args)}, {result.evaluations} network evaluations per mixture"
    panel = separation_panel(
        mixture[:shown],
        sources[:shown],
        mixing.select(slice(shown)),
        truth=None if truth is None else truth[:shown],
        names=names[:shown],
        title=title,
        value_range=(low, high),
        plausibility=None if result.plausibility is None else result.plausibility[:shown],
        deviation=result.std[:shown] if has_draws(result) else None,
    )
    if len(priors[0].shape) == 3:
        for name, item in zip(names, sources, strict=True):
            for i, image in enumerate(item):
                picture = to_picture(image, (low, high))
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
        print(
            f"PSNR {metrics.summarize(metrics.psnr(sources, truth, (low, high), permute=True))} dB"
        )
    _print_residual(args, result, priors[0])
    print_verdict(names, result, priors)
    if sampler and (args.samples or 1) > 1 and args.choose in (None, "first"):
        print("shown is the first draw of each; --choose energy, likelihood or mean shows another")
    if isinstance(priors[0], Tiled):
        tile = "x".join(map(str, priors[0].prior.shape[1:]))
        print(f"larger than the prior's {tile} pixels: seen through overlapping tiles")
    if shown < len(names):
        print(f"the picture shows the first {shown} of {len(names)} mixtures")
    say(f"picture: {out / 'panel.png'}")


def _check_places(args: argparse.Namespace, out: Path, given: Input, k: int, prior: Prior) -> None:
    """Refuses results that would take the place of an input or find no room, before the work."""
    from math import prod

    from basis.files import check_disk_space, check_replaceable

    if len(prior.shape) == 3:
        for name in given.names:
            for i in range(k):
                check_replaceable(out / f"{name}-source{i + 1}.png")
    for name in ("sources.npz", "panel.png", "run.json"):
        check_replaceable(out / name)
    # Sources as numbers and as pictures, the mixture and the samples, hardly compressed.
    check_disk_space(out, 4 * len(given.names) * k * prod(prior.shape) * (2 + (args.samples or 1)))


def _print_residual(args: argparse.Namespace, result: Result, prior: Prior) -> None:
    """How far the sources are from the mixture, with a warning where they cannot make it."""
    worst = in_steps(result.residual.max().item(), prior)
    print(f"residual at most {worst:.2f}/255 rms, {result.seconds:.1f} s")
    if worst > 1 and not args.noise:
        bounded = prior.low is not None and prior.high is not None
        values = f"in [{prior.low:g}, {prior.high:g}]" if bounded else "of this prior"
        print(
            f"basis separate: warning: no sources {values} make this mixture; are the alphas "
            "those it was mixed with, and its values in their units?",
            file=sys.stderr,
        )


def _states_panel(
    names: list[str], mixture: Tensor, result: Result, low: float | None, high: float | None
) -> Any:
    from basis.plots.panels import trajectory_panel

    kept = {sigma: states[: len(names), 0] for sigma, states in result.kept.items()}
    return trajectory_panel(mixture[: len(names)], kept, names=names, value_range=(low, high))


def _write_arrays(
    path: Path, mixture: Tensor, result: Result, sources: Tensor, truth: Tensor | None
) -> None:
    import numpy as np

    from basis.files import whole_file

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
        scores = metrics.psnr(result.sources, truth, (low, high), permute=True)
        for row, score in zip(rows, scores.tolist(), strict=True):
            row["psnr"] = score
        record["psnr"] = vars(metrics.summarize(scores))
    return record
