"""`basis demo`: a local page."""

from __future__ import annotations

import argparse
from pathlib import Path

from basis._errors import BasisError
from basis.cli._arguments import natural, number, whole_number

EPILOG = """\
examples:
  basis demo                                    a page on this computer, for this computer alone
  basis demo --open                             and a browser that shows it
  basis demo --host 0.0.0.0 --password-file secret.txt      for others too, behind a password

The page needs Gradio: pip install 'basis-separation[demo]'. Nothing is fetched from elsewhere and
nothing is sent there.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    from basis.demo import Limits

    least = Limits()
    parser.epilog = EPILOG
    parser.add_argument(
        "--port", type=whole_number, default=7860, help="default 7860; 0: any that is free"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, this computer alone); any other needs a "
        "password",
    )
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="a file whose first line is the password that visitors are asked for",
    )
    parser.add_argument(
        "--runs",
        type=natural,
        default=least.runs,
        help=f"separations at the same time, others wait in line ({least.runs})",
    )
    parser.add_argument(
        "--seconds",
        type=number,
        default=least.seconds,
        help=f"the longest that a separation may take ({least.seconds:g})",
    )


def run(args: argparse.Namespace) -> None:
    """Serves the page."""
    from basis.demo import Limits, serve

    if not 0 <= args.port <= 65535:
        raise BasisError(f"--port must be from 0 to 65535, not {args.port}")
    if args.seconds <= 0:
        raise BasisError(f"--seconds must be more than 0, not {args.seconds:g}")
    limits = Limits(runs=args.runs, seconds=args.seconds)
    password = None if args.password_file is None else _password(Path(args.password_file))
    serve(args.host, args.port, limits=limits, password=password, browser=args.open)


def _password(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise BasisError(f"cannot read the password file {path}: {why}") from error
    if not lines or not lines[0].strip():
        raise BasisError(f"the password file {path} has no password in its first line")
    return lines[0].strip()
