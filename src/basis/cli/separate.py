"""`basis separate`: mixtures to sources."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli import arguments as flags
from basis.errors import BasisError

if TYPE_CHECKING:
    from basis.cli import Parser
    from basis.signals.observation import Observation

_OF_SAMPLES = {"sample": "mnist", "sample-photos": "cifar10"}
"""The priors of the images of the package; all others need --prior."""

EPILOG = """\
examples:
  basis separate two.png                                  lists the priors that fit the picture
  basis separate two.png --prior mnist --alphas 0.5 0.5   the average of two digits
  basis separate photos.png --prior cifar10 --alphas 0.5 0.5   in tiles if it is larger
  basis separate paper.jpg --prior mnist --grey --invert --size 28   dark digits on white paper
  basis separate mixture.npz --prior mnist --method best --samples 20   with posterior samples
  basis separate two.png --prior mnist --alphas unknown   alphas estimated
  basis separate photo.png --mask mask.png --alphas 1 --prior cifar10   fills in what is masked
  basis separate some.png --prior mnist --sources unknown   one to four sources
  basis separate a.png b.png --prior mnist --alphas 1 0.5 --alphas 0.5 1   of the same sources
  basis separate folder/ --prior mnist --out store --workers 4   a job: resumable, in shards
  basis separate --method gibbs --help                    the settings of a sampler
"""


def add(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = EPILOG
    parser.usage = "basis separate [FILE ...] [--prior PRIOR] [--alphas A ...] [--out DIR] ..."
    parser.add_argument(
        "inputs",
        nargs="*",
        default=["sample"],
        metavar="FILE",
        help="pictures, .npy or .npz files, or a folder; or a data set whose images are mixed "
        "(default: sample)",
    )
    parser.add_argument(
        "--prior",
        action="append",
        metavar="PRIOR",
        help="a name or a folder; once, or once per source",
    )
    parser.add_argument(
        "--alphas",
        type=_alpha,
        nargs="+",
        action="append",
        metavar="A",
        help="one per source (default: those of the file, else 1 1), unknown for those to estimate",
    )
    flags.add_method(parser)
    parser.add_argument(
        "--samples", type=flags.natural, metavar="N", help="draw N posterior samples too"
    )
    flags.add_out(parser, "separated")
    flags.add_reading(parser)
    group = parser.add_argument_group("what is separated")
    group.add_argument(
        "--sources", type=_count, metavar="N", help="number of sources, or unknown for 1 to 4"
    )
    group.add_argument(
        "--noise", type=flags.number, default=0.0, help="standard deviation of noise (default 0)"
    )
    group.add_argument("--mask", metavar="FILE", help="a picture, white where FILE is known")
    group.add_argument(
        "--mixing",
        nargs="+",
        choices=("grey", "clipped", "rounded"),
        default=(),
        help="grey: the mean of the channels of one color picture; clipped: values above 1 were "
        "cut off; rounded: to 8 bits",
    )
    group.add_argument(
        "--count", type=flags.natural, default=6, help="mixtures made of a data set (default 6)"
    )
    group = parser.add_argument_group("how")
    flags.add_estimate(group)
    flags.add_autoguidance(group)
    flags.add_seed(group)
    flags.add_computing(parser)
    flags.add_jobs(parser)
    flags.add_sampler_settings(parser)


def run(args: argparse.Namespace) -> None:
    """Separates the inputs and writes the result."""
    out = flags.out_folder(args.out)
    args.prior = args.prior or [_prior_of_samples(args)]
    if flags.is_job(args, args.inputs, args.count):
        separate_as_job(args, out)
        return
    from basis._separate import separate
    from basis.result import check_output

    observation = _read(args)
    arguments = _arguments(args, observation)
    values = observation.values
    check_output(out, observation.names, 4, 4 * values.numel() * (3 + (args.samples or 0)))
    result = separate(observation, **arguments, workers=args.workers)
    result.save(out, command=args.line)
    print(result)
    print(f"written to {out}")


def separate_as_job(args: argparse.Namespace, out: Path) -> None:
    """Separates the inputs in shards."""
    from functools import partial

    from basis._inputs import read_mask
    from basis.jobs.job import separate_job
    from basis.jobs.streams import as_stream

    arguments = _arguments(args, None)
    if args.mask and args.size:
        arguments["mask"] = read_mask(args.mask, (args.size, args.size))
    observations: Any = partial(as_stream, args.inputs, skip=args.out, **flags.reading(args))
    if flags.data_set(args.inputs):
        observations = _read(args)
    flags.run_job(args, separate_job, observations, out=out, **arguments)


def _prior_of_samples(args: argparse.Namespace) -> str:
    """The prior of the package's images; for others an error, after the priors that fit."""
    from basis.jobs.streams import as_stream
    from basis.signals.observation import as_observation
    from basis.store.loading import list_priors

    names = {"" if Path(text).exists() else text.partition(":")[0] for text in args.inputs}
    if len(names) == 1 and names <= _OF_SAMPLES.keys():
        return _OF_SAMPLES[names.pop()]
    if any(Path(path).is_dir() for path in args.inputs):
        first = as_stream(args.inputs, skip=args.out, **flags.reading(args)).checked(0, 1)
        values = first.observation
    else:
        values = as_observation(_read(args)).values
    shape: tuple[int, ...] = tuple(values.shape[1:])
    # A grey picture that was saved in color fits priors of grey ones.
    shape = tuple(as_observation(values, (1, *shape[1:])).values.shape[1:])
    if "grey" in args.mixing:
        shape = (3, *shape[1:])
    size = _described(shape)
    entries = list_priors(fits=shape)
    if not entries:
        raise BasisError(
            f"no prior with a name fits observations of {size}: see basis priors list, convert "
            "with --size, --grey or --color, or train one with basis train and give --prior DIR"
        )
    print(f"priors that fit observations of {size}:", file=sys.stderr)
    for entry in entries:
        assert entry.card is not None
        print(f"  {entry.name:14} {_described(entry.card.shape):11} {entry.title}", file=sys.stderr)
    raise BasisError(f"choose one of these priors, such as --prior {entries[0].name}")


def _described(shape: tuple[int, ...]) -> str:
    """A shape in words: "28x28 grey" or "32x32 color"; other signals with their channels."""
    kind = {1: "grey", 3: "color"}.get(shape[0]) if len(shape) == 3 else None
    return f"{'x'.join(map(str, shape[1:]))} {kind}" if kind else "x".join(map(str, shape))


def _read(args: argparse.Namespace) -> Observation:
    """The observation that the inputs are: files, or mixtures of the images of a data set."""
    from basis._mix import test_mixtures
    from basis.signals.observation import read

    name = flags.data_set(args.inputs)
    if name is None:
        files = args.inputs[0] if len(args.inputs) == 1 else args.inputs
        return read(files, **flags.reading(args))
    row = args.alphas[0] if args.alphas else [None]
    count = args.sources if isinstance(args.sources, int) else max(2, len(args.prior or ()))
    alphas = None if row == [None] else [1.0 if a is None else a for a in row]
    return test_mixtures(
        name, args.count, sources=count, alphas=alphas, noise=args.noise, seed=args.seed
    )


def _arguments(args: argparse.Namespace, observation: Observation | None) -> dict[str, Any]:
    """The arguments of `basis.separate` and `basis.separate_job`."""
    rows: Any = args.alphas
    alphas: Any = rows if rows is None or len(rows) > 1 else rows[0]
    if alphas == [None]:
        alphas = "unknown"
    mixing: Any = None
    if args.mixing:
        from basis.mixings.matrix import grey, mixture, mixtures

        own = None if observation is None or observation.alphas is None else observation.alphas
        if alphas is None and own is not None:
            alphas = own.tolist()
        count = args.sources or max(2, len(args.prior or ()))
        if "grey" in args.mixing:
            mixing = grey()
        elif rows is not None and len(rows) > 1:
            mixing = mixtures(alphas)
        else:
            mixing = mixture(alphas or (1.0,) * count)
        mixing = mixing.clipped() if "clipped" in args.mixing else mixing
        mixing = mixing.rounded() if "rounded" in args.mixing else mixing
        alphas = None
    prior = flags.priors(args, args.prior)
    return {
        "prior": prior[0] if len(prior) == 1 else prior,
        "alphas": alphas,
        "mixing": mixing,
        "sources": None if mixing is not None else args.sources,
        "noise": args.noise,
        "mask": args.mask,
        "method": flags.chosen_method(args),
        "estimate": args.estimate,
        "samples": args.samples,
        "seed": args.seed,
        "device": args.device,
        "batch_size": args.batch_size,
    }


def _alpha(text: str) -> float | None:
    return None if text == "unknown" else flags.number(text)


def _count(text: str) -> int | str:
    return text if text == "unknown" else flags.natural(text)
