"""`basis check`: is a prior sound for separation?"""

from __future__ import annotations

import argparse

from basis.cli.arguments import add_json, add_root, add_seed_and_device, device_from, natural, say
from basis.files import write_json

EPILOG = """\
examples:
  basis check mnist
  basis check cifar10
  basis check runs/photos --data photos/ --count 200
"""

_SAMPLES: dict[tuple[int, ...], str] = {(1, 28, 28): "sample", (3, 32, 32): "sample-photos"}
"""Images that the package has, by the shape of a prior's signals."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("prior", metavar="NAME|DIR", help="the prior to test")
    parser.add_argument(
        "--data", help="held-out images of its kind (default: the package's digits or photos)"
    )
    parser.add_argument("--size", type=natural, help="side to which photos are cut and scaled")
    parser.add_argument("--count", type=natural, default=256, help="images used (default 256)")
    add_seed_and_device(parser)
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Tests the prior and prints the findings; exit code 2 when the prior is not sound."""
    import dataclasses

    from basis._check import check_prior, verdict
    from basis.errors import BasisError
    from basis.signals.datasets import load_images
    from basis.store.loading import load_prior

    prior = load_prior(args.prior, root=args.data_root, device=device_from(args.device))
    data = args.data or _SAMPLES.get(prior.shape)
    if data is None:
        raise BasisError(
            f"prior {prior.name!r} is of signals of shape {prior.shape}, of which the package has "
            "none: give --data, held-out images of its kind"
        )
    images = load_images(data, "test", root=args.data_root, size=args.size)
    signals = images.floats(slice(args.count)).to(prior.device or "cpu")
    findings = check_prior(prior, signals, seed=args.seed)
    for f in findings:
        say(f"{'ok ' if f.sound else 'NOT'} {f.name:9} {f.text}")
    summary, sound = verdict(findings), all(f.sound for f in findings)
    if args.json:
        record = {
            "command": args.line,
            "prior": prior.describe(),
            "sound": sound,
            "verdict": summary,
            "findings": [dataclasses.asdict(f) for f in findings],
        }
        write_json(args.json, record)
    if not sound:
        raise BasisError(f"prior {prior.name!r} is {summary}")
    say(f"prior {prior.name!r} is {summary}")
