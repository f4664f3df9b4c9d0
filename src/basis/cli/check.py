"""`basis check`: whether a prior is suitable for separation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from basis.cli import arguments as flags

if TYPE_CHECKING:
    from basis.cli import Parser

EPILOG = """\
examples:
  basis check mnist
  basis check runs/photos --data photos/ --count 200
"""


def add(parser: Parser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = EPILOG
    parser.usage = "basis check PRIOR [--data DATA] ..."
    parser.add_argument("prior", metavar="PRIOR", help="a name or a folder")
    parser.add_argument(
        "--data", help="held-out signals of its kind (default: digits or photos of the package)"
    )
    parser.add_argument("--size", type=flags.natural, help="crop and resize photos to N x N pixels")
    parser.add_argument("--count", type=flags.natural, default=256, help="signals (default 256)")
    group = parser.add_argument_group("more")
    flags.add_seed_and_device(group)
    flags.add_root(group)
    flags.add_json(group)


def run(args: argparse.Namespace) -> None:
    """Tests the prior and prints the findings; exit code 2 if a test fails."""
    from dataclasses import asdict

    from basis._check import check
    from basis.errors import BasisError
    from basis.files import write_json

    names = ("data", "count", "size", "seed", "device")
    report = check(args.prior, **{name: getattr(args, name) for name in names})
    print(report)
    if args.json:
        findings = [asdict(f) for f in report.findings]
        record = {"prior": args.prior, "passed": report.passed, "findings": findings}
        write_json(args.json, {"command": args.line, **record})
    if not report.passed:
        raise BasisError(f"prior {args.prior!r} is not suitable for separation")
