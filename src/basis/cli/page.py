"""`basis page`: a local page."""

from __future__ import annotations

import argparse
from pathlib import Path

from basis.cli.arguments import natural, number, whole_number
from basis.errors import BasisError

_LONGEST = 4096  # bytes of a password file's first line

EPILOG = """\
examples:
  basis page                                    a page on this computer, for this computer alone
  basis page --open                             and a browser that shows it
  basis page --host 0.0.0.0 --password-file secret.txt      for others too, behind a password
  basis page --host 0.0.0.0 --password-file secret.txt --name page.example.org    and by that name

The page needs Gradio: pip install 'basis-separation[page]'. Nothing is fetched from elsewhere and
nothing is sent there.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    from basis.page.limits import Limits

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
        "--name",
        action="append",
        default=[],
        help="a further host name that browsers may use for this page, such as that of a reverse "
        "proxy; can be given several times. The address given by --host is accepted without it, "
        "and with --host 0.0.0.0 the addresses and the name of this computer are",
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
    from basis.page.limits import Limits
    from basis.page.server import serve

    if not 0 <= args.port <= 65535:
        raise BasisError(f"--port must be from 0 to 65535, not {args.port}")
    if args.seconds <= 0:
        raise BasisError(f"--seconds must be more than 0, not {args.seconds:g}")
    limits = Limits(runs=args.runs, seconds=args.seconds)
    password = None if args.password_file is None else _password(Path(args.password_file))
    serve(
        args.host, args.port, limits=limits, password=password, browser=args.open, names=args.name
    )


def _password(path: Path) -> str:
    """The first line of a file, of which no more than `_LONGEST` bytes are read."""
    try:
        with open(path, "rb") as file:
            start = file.read(_LONGEST + 1)
    except OSError as error:
        raise BasisError(f"cannot read the password file {path}: {error.strerror}") from error
    line, ended, _ = start.partition(b"\n")
    if not ended and len(start) > _LONGEST:
        raise BasisError(f"the first line of the password file {path} is longer than a password")
    try:
        password = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise BasisError(f"cannot read the password file {path}: it is not text") from error
    if not password:
        raise BasisError(f"the password file {path} has no password in its first line")
    return password
