"""`basis colorize`: colors for grey photos."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli import arguments as flags

if TYPE_CHECKING:
    from basis.cli import Parser
    from basis.signals.observation import Observation

EPILOG = """\
examples:
  basis colorize photo.png                         one colorization
  basis colorize a.jpg b.jpg --samples 5           five of each photo
  basis colorize photo.png --preview               a rough answer in seconds
  basis colorize photo.png --samples 3 --diverse   three with different colors
  basis colorize sample-photos:4                   a photo of the package
  basis colorize photos/ --crop 64 --workers 2     a job: resumable, in shards

A color photo is first reduced to the mean of its channels, which the result keeps exactly.
"""


def add(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = EPILOG
    parser.usage = "basis colorize PHOTO ... [--samples N] [--preview] [--out DIR] ..."
    parser.add_argument("inputs", nargs="+", metavar="PHOTO", help="pictures, or a folder")
    parser.add_argument("--prior", default="cifar10", help="a name or a folder (default: cifar10)")
    parser.add_argument("--samples", type=flags.natural, metavar="N", help="colorizations of each")
    parser.add_argument(
        "--preview", action="store_true", help="a rough answer in seconds, at the prior's size"
    )
    flags.add_out(parser, "colored")
    group = parser.add_argument_group("how")
    group.add_argument(
        "--size",
        type=flags.natural,
        default=64,
        help="resolution of the colors, longest side in pixels; results have the photo's size (64)",
    )
    group.add_argument(
        "--diverse", action="store_true", help="keep samples whose colors differ most"
    )
    group.add_argument(
        "--saturation", type=flags.number, default=1.0, help="factor on the colors (default 1)"
    )
    group.add_argument(
        "--method",
        type=flags.method,
        help="as for basis separate (default: the ancestral sampler, made for colors)",
    )
    flags.add_estimate(group, "what a colorization is")
    flags.add_autoguidance(group)
    flags.add_seed(group)
    flags.add_computing(parser)
    flags.add_jobs(parser)
    parser.add_argument(
        "--crop", type=flags.natural, metavar="N", help="jobs: crop and resize photos to N x N"
    )
    flags.add_sampler_settings(parser)


def run(args: argparse.Namespace) -> None:
    """Colorizes every photo and writes the results."""
    out = flags.out_folder(args.out)
    arguments: dict[str, Any] = {
        name: getattr(args, name)
        for name in ("samples", "size", "diverse", "preview", "saturation", "estimate", "seed")
    }
    arguments |= {"device": args.device, "batch_size": args.batch_size}
    arguments["method"] = None if args.method is None else flags.chosen_method(args)
    arguments["prior"] = flags.priors(args, [args.prior])[0]
    if flags.is_job(args, args.inputs, flags.MANY + 1):
        from basis.jobs.job import colorize_job

        flags.run_job(args, colorize_job, _stream(args), out=out, **arguments)
        return
    from basis._colorize import colorize
    from basis.result import check_output

    photos = {Path(name.replace(":", "-")).stem: _photo(name) for name in args.inputs}
    for name, photo in photos.items():
        folder = out if len(photos) == 1 else out / name
        check_output(folder, photo.names, 1, photo.values.numel() * (4 + (args.samples or 1)))
    for name, photo in photos.items():
        result = colorize(photo, **arguments, workers=args.workers)
        folder = result.save(out if len(photos) == 1 else out / name, command=args.line)
        print(result)
        print(f"written to {folder}")


def _photo(name: str) -> Observation:
    """A photo from a file, or of a data set (sample-photos:4)."""
    from basis._mix import mix
    from basis.signals.observation import read

    if ":" in name and not Path(name).exists():
        return replace(mix([name]), names=(Path(name.replace(":", "-")).stem,), sources=None)
    return read(name)


def _stream(args: argparse.Namespace) -> Any:
    """The photos of a job: files, folders or a data set."""
    from basis.jobs.streams import as_stream
    from basis.signals.datasets import load_images

    inputs: Any = args.inputs
    name = flags.data_set(args.inputs)
    if name is not None:
        inputs = load_images(name, "test", size=args.crop).images
    return as_stream(inputs, skip=args.out, mean=True, size=args.crop)
