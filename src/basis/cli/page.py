"""`basis page`: a local web page."""

from __future__ import annotations

import argparse
from pathlib import Path

from basis.cli.arguments import whole_number
from basis.errors import BasisError
from basis.page.access import Limits
from basis.settings import add_flags, flags_to_settings

_LONGEST = 4096  # bytes of the first line of a password file

EPILOG = """\
examples:
  basis page                                              for this computer only
  basis page --open                                       the same, and open it in a browser
  basis page --host 0.0.0.0 --password-file secret.txt    for others too, with a password
  basis page --host 0.0.0.0 --password-file secret.txt --name page.example.org

The page needs Gradio: pip install 'basis-separation[page]'. Nothing is fetched from or sent to
other servers.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `basis page`."""
    parser.epilog = EPILOG
    parser.add_argument(
        "--port", type=whole_number, default=7860, help="0: any free port (default 7860)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on; all but this computer's own need a password (default "
        "127.0.0.1)",
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
        "proxy; may be given several times",
    )
    add_flags(parser.add_argument_group("limits"), Limits)


def run(args: argparse.Namespace) -> None:
    """Serves the page."""
    from basis.page.server import serve

    if not 0 <= args.port <= 65535:
        raise BasisError(f"--port must be from 0 to 65535, not {args.port}")
    serve(
        args.host,
        args.port,
        limits=Limits(**flags_to_settings(args, Limits)),
        password=None if args.password_file is None else _password(Path(args.password_file)),
        browser=args.open,
        names=args.name,
    )


def _password(path: Path) -> str:
    """The first line of a file, of which at most `_LONGEST` bytes are read."""
    try:
        with open(path, "rb") as file:
            start = file.read(_LONGEST + 1)
    except OSError as error:
        raise BasisError(f"cannot read the password file {path}: {error.strerror}") from error
    line, ended, _ = start.partition(b"\n")
    if not ended and len(start) > _LONGEST:
        raise BasisError(f"the first line of the password file {path} is too long")
    try:
        password = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise BasisError(f"the password file {path} is not text") from error
    if not password:
        raise BasisError(f"the first line of the password file {path} is empty")
    return password
