"""The command `basis`: one module per command, imported when it is used."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

from basis._version import __version__
from basis.errors import BasisError, did_you_mean, one_line, printable, shown
from basis.files import check_replaceable, protected

UNUSABLE, UNEXPECTED, INTERRUPTED = 2, 70, 130
"""Exit codes: bad input; a bug of this program; Ctrl-C."""

_OUTPUTS = ("out", "json", "line", "command")
_FOLDERS = ("inputs", "data", "images", "reference")
"""Arguments that may name folders to read, which must not be the folder of the output."""

_GROUPS = {
    "separate": {
        "separate": "separate mixtures into sources",
        "colorize": "add colors to grey photos",
        "mix": "make a mixture from pictures or other signals",
        "page": "separate, colorize and fill in pictures in the browser",
        "priors": "list, show, add or measure priors",
    },
    "your own models": {
        "train": "train a prior on pictures or other signals",
        "sample": "draw samples of a prior",
        "check": "test whether a prior is suitable for separation",
    },
    "research": {
        "lab": "tables and figures of the paper, benchmarks, data sets",
    },
}
_COMMANDS = {name: text for group in _GROUPS.values() for name, text in group.items()}


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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns the exit code: 2 for bad input, 130 if interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    with escaped_streams(), _data_root(words):
        return _run(words)


def _run(words: list[str]) -> int:
    parser = Parser(
        prog="basis",
        description="Source separation with deep generative priors.",
        epilog=_overview(),
        usage="basis COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"basis {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", prog="basis", help=argparse.SUPPRESS
    )
    name = next((word for word in words if not word.startswith("-")), "")
    for command, summary in _COMMANDS.items():
        child = commands.add_parser(
            command,
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
        own = _innermost(parser, args)
        hint = did_you_mean(unknown[0].split("=")[0], own._option_string_actions)
        own.error(f"unknown argument {unknown[0]}{hint or own.hint}")
    if args.command is None:
        parser.error("give a COMMAND")
    args.line = printable(shlex.join(["basis", *words]))
    return guarded(args, args.run)


def _overview() -> str:
    """All commands in groups."""
    lines: list[str] = []
    for group, commands in _GROUPS.items():
        lines += [f"{group}:", *(f"  {name:10} {text}" for name, text in commands.items()), ""]
    return "\n".join([*lines, "Help on a command: basis COMMAND --help"])


def _innermost(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Parser:
    """The parser of the command that was given, such as that of `basis lab bench`."""
    for action in parser._actions:
        chosen = getattr(args, action.dest, None)
        if isinstance(action, argparse._SubParsersAction) and chosen is not None:
            return _innermost(action.choices[chosen], args)
    assert isinstance(parser, Parser)
    return parser


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


# Errors and output of commands: one printable line per error, and an exit code.


def guarded(args: argparse.Namespace, work: Callable[[argparse.Namespace], Any]) -> int:
    """Runs a command and returns the exit code; errors are printed in one line."""
    try:
        with _inputs_protected(args), warnings.catch_warnings():
            if not sys.warnoptions:  # python -W asks for the warnings of libraries
                warnings.simplefilter("ignore")
                logging.disable(logging.ERROR)
            work(args)
    except BasisError as error:
        return _print_error(args, printable(error), UNUSABLE)
    except BrokenPipeError:
        # The reader of our output has ended, as `head` does; Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except OSError as error:
        return _print_error(args, _system_error(error), UNUSABLE)
    except KeyboardInterrupt as stop:
        print(printable(stop) or "interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if _out_of_memory(error):
            advice = "ask for fewer or smaller images"
            return _print_error(args, f"this needs more memory than there is; {advice}", UNUSABLE)
        if type(error).__name__ == "SafetensorError":
            return _print_error(
                args, f"a file of tensors cannot be used: {one_line(error)}", UNUSABLE
            )
        if type(error).__name__ in ("LinAlgError", "_LinAlgError"):
            advice = "are the values and the model's weights sound?"
            return _print_error(
                args, f"a matrix has no solution: {one_line(error)}; {advice}", UNUSABLE
            )
        if os.environ.get("BASIS_DEBUG"):
            raise
        return _print_error(args, _unexpected(error), UNEXPECTED)
    finally:
        logging.disable(logging.NOTSET)
    return 0


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Escapes control characters in all output within the block.

    File names, cards and messages of libraries may contain the codes of a terminal.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    with ExitStack() as stack:
        if sys.stdout is not None:
            stack.enter_context(redirect_stdout(_Escaped(sys.stdout)))
        if sys.stderr is not None:
            stack.enter_context(redirect_stderr(_Escaped(sys.stderr)))
        yield


class _Escaped:
    """A text stream whose writes are escaped; everything else is that of the stream itself."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(shown(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _print_error(args: argparse.Namespace, line: str, code: int) -> int:
    print(f"basis {args.command}: {line}", file=sys.stderr)
    return code


def _system_error(error: OSError) -> str:
    name = error.filename if error.filename is not None else ""
    text = error.strerror or one_line(error)
    return printable(f"{name}: {text}" if name else text)


def _out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on a CPU or a GPU."""
    words = ("allocate memory", "out of memory", "invalid buffer size", "storage size calculation")
    return isinstance(error, MemoryError) or any(w in str(error).lower() for w in words)


def _unexpected(error: Exception) -> str:
    """The line for a bug of this program."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"{os.sep}basis{os.sep}" in f.filename] or list(frames)
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "nowhere"
    return (
        f"unexpected {type(error).__name__} at {place}: {one_line(error)}; "
        "this is a bug (BASIS_DEBUG=1 shows the traceback)"
    )


@contextmanager
def _inputs_protected(args: argparse.Namespace) -> Iterator[None]:
    """Within the block, no file that the arguments name as an input is replaced."""
    out = getattr(args, "out", None)
    with ExitStack() as stack:
        stack.enter_context(protected(_texts(args, set(vars(args)) - set(_OUTPUTS))))
        if getattr(args, "json", None):
            check_replaceable(args.json)
        for text in _texts(args, _FOLDERS):
            if out and os.path.isdir(text) and _same(out, text):
                raise BasisError(f"{out} is read as input; give --out another folder")
        yield


def _texts(args: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """The texts among the arguments of these names."""
    values = [getattr(args, name, None) for name in names]
    items = [v for value in values for v in (value if isinstance(value, list) else [value])]
    return [item for item in items if isinstance(item, str) and item]


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False
