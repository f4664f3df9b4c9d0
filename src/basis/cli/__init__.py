"""The command `basis`."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from basis._version import __version__
from basis.cli.boundary import escaped_streams, guarded
from basis.errors import printable

_COMMANDS = {
    "separate": "pull mixtures apart: sources, a panel picture and a record",
    "colorize": "colours for grey photos",
    "mix": "make a mixture file from images",
    "evaluate": "measure PSNR on test mixtures",
    "bench": "compare samplers and efforts in one run: quality, cost, speed, growth",
    "study": "gradients, likelihoods and cost of priors, as data and figures",
    "distance": "how far a set of images is from another, by the features of a network",
    "reproduce": "the tables and figures of the paper, made again",
    "train": "train a prior on images",
    "ladder": "train one flow per noise level, each from the one below",
    "classifier": "train a small classifier, whose features distances are taken in",
    "sample": "images drawn from a prior: what it believes",
    "check": "say whether a prior is sound for separation",
    "priors": "list priors, show a card, add a prior, or measure its typical energies",
    "convert": "make a prior of a published NCSN or Glow checkpoint",
    "data": "list data sets, or download one",
    "page": "a local web page: mix, watch the separation, download the sources",
}


class _Parser(argparse.ArgumentParser):
    words: Sequence[str] = ()
    """the command line, for flags that depend on other flags"""

    def error(self, message: str) -> NoReturn:
        # One line: the usage is a --help away.
        self.exit(2, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit code (2 for input that cannot be used)."""
    with escaped_streams():
        return _run(list(sys.argv[1:] if argv is None else argv))


def _run(words: list[str]) -> int:
    parser = _Parser(
        prog="basis",
        description="Source separation with deep generative priors: "
        "a prior, a mixing and a sampler.",
    )
    parser.add_argument("--version", action="version", version=f"basis {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in _COMMANDS.items():
        child = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in words:  # only the command at hand is imported
            module = importlib.import_module(f"basis.cli.{name}")
            child.words = words
            module.add(child)
            child.set_defaults(run=module.run)
    args, unknown = parser.parse_known_args(words)
    if unknown:
        from basis.cli.sampling import setting_hint

        hint = setting_hint(unknown) if args.command in ("separate", "evaluate") else None
        own = commands.choices[args.command]
        own.error(hint or f"unrecognized arguments: {' '.join(unknown)}")
    args.line = printable(shlex.join(["basis", *words]))
    return guarded(args, args.run)


if __name__ == "__main__":
    raise SystemExit(main())
