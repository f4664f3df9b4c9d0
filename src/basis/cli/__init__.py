"""The command `basis`: one module per command, imported when it is used."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from basis._version import __version__
from basis.cli.boundary import UNUSABLE, escaped_streams, guarded
from basis.errors import printable

_COMMANDS = {
    "separate": "separate mixtures into sources",
    "colorize": "add colors to grey photos",
    "mix": "make a mixture from pictures or other signals",
    "train": "train a prior on pictures or other signals",
    "sample": "draw samples of a prior",
    "check": "test whether a prior is suitable for separation",
    "page": "do the same in a browser",
    "priors": "list, show, add or measure priors",
    "lab": "tables and figures of the paper, benchmarks, data sets",
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    words: Sequence[str] = ()
    """The command line, for flags that depend on other flags."""
    hint = ""
    """What to add to the error of an unknown flag."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), known) or f"; accepted: {', '.join(known)}"
            raise argparse.ArgumentError(action, f"{value!r:.60} is not accepted{hint}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelled word, to be put behind a message."""
    by_name = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(word.lstrip("-"), list(by_name), n=1, cutoff=0.7)
    return f"; did you mean {by_name[near[0]]}?" if near else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit code: 2 for bad input, 130 if interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    with escaped_streams(), _data_root(words):
        return _run(words)


def _run(words: list[str]) -> int:
    parser = Parser(
        prog="basis",
        description="Source separation with deep generative priors.",
        epilog="Help on a command: basis COMMAND --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"basis {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    name = next((word for word in words if not word.startswith("-")), "")
    for command, summary in _COMMANDS.items():
        child = commands.add_parser(
            command,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command == name:
            module = importlib.import_module(f"basis.cli.{command}")
            child.words = words
            module.add(child)
            child.set_defaults(run=module.run)
    args, unknown = parser.parse_known_args(words)
    if unknown:
        own = commands.choices[args.command]
        hint = did_you_mean(unknown[0].split("=")[0], own._option_string_actions)
        own.error(f"unknown argument {unknown[0]}{hint or own.hint}")
    args.line = printable(shlex.join(["basis", *words]))
    return guarded(args, args.run)


@contextmanager
def _data_root(words: Sequence[str]) -> Iterator[None]:
    """Within the block `--data-root DIR` has the effect of the environment variable BASIS_DATA."""
    before = os.environ.get("BASIS_DATA")
    root = value_of("--data-root", words)
    try:
        if root:
            os.environ["BASIS_DATA"] = root
        yield
    finally:
        if root and before is None:
            del os.environ["BASIS_DATA"]
        elif root:
            os.environ["BASIS_DATA"] = str(before)


def value_of(flag: str, words: Sequence[str]) -> str:
    """The value of a flag on a command line that is not parsed yet, or nothing."""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word == flag:
            return following
        if word.startswith(flag + "="):
            return word.removeprefix(flag + "=")
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
