"""Where errors end: one printable line on stderr and an exit code, whatever was raised."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from basis.errors import BasisError, one_line, printable, shown
from basis.files import check_replaceable, protected

UNUSABLE, UNEXPECTED, INTERRUPTED = 2, 70, 130
"""Exit codes: input that cannot be used; a fault of this program; Ctrl-C."""

_WORDS = ("kind", "names", "action", "architecture", "protocol", "sampler", "choose", "effort")
_NOT_READ = ("out", "json", "line", "command", "run", "name", "called", "data_root", *_WORDS)
"""Arguments that name no input, beside those that are no text; folders may be named like words."""

_BESIDE_RESULTS = ("prior", "priors", "network")
"""Arguments that may name the folder that results go to: a prior's own folder is a place for what
was made with it.
"""


def guarded(args: argparse.Namespace, work: Callable[[argparse.Namespace], Any]) -> int:
    """Does a command's work; returns the exit code, and prints one line where it went wrong."""
    try:
        with _inputs_protected(args), warnings.catch_warnings():
            if not sys.warnoptions:  # python -W asks for what libraries tell their programmers
                warnings.simplefilter("ignore")
                logging.disable(logging.ERROR)
            work(args)
    except BasisError as error:
        return _tell(args, printable(error), UNUSABLE)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does; Python must not complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNUSABLE
    except OSError as error:
        return _tell(args, _system_error(error), UNUSABLE)
    except KeyboardInterrupt as stop:
        print(printable(stop) or "interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if _out_of_memory(error):
            advice = "ask for fewer or smaller images"
            return _tell(args, f"this needs more memory than there is; {advice}", UNUSABLE)
        if type(error).__name__ == "SafetensorError":
            return _tell(args, f"a file of tensors cannot be used: {one_line(error)}", UNUSABLE)
        if type(error).__name__ in ("LinAlgError", "_LinAlgError"):
            advice = "are the values and the model's weights sound?"
            return _tell(args, f"a matrix has no solution: {one_line(error)}; {advice}", UNUSABLE)
        if os.environ.get("BASIS_DEBUG"):
            raise
        return _tell(args, _unexpected(error), UNEXPECTED)
    finally:
        logging.disable(logging.NOTSET)
    return 0


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Escapes all output within the block: what a terminal would obey, or cannot show.

    File names, cards and messages of libraries may hold the codes of a terminal.
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


def _tell(args: argparse.Namespace, line: str, code: int) -> int:
    print(f"basis {args.command}: {line}", file=sys.stderr)
    return code


def _system_error(error: OSError) -> str:
    name = error.filename if error.filename is not None else ""
    text = error.strerror or one_line(error)
    return printable(f"{name}: {text}" if name else text)


def _out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on a processor or a graphics card."""
    words = ("allocate memory", "out of memory", "invalid buffer size", "storage size calculation")
    return isinstance(error, MemoryError) or any(w in str(error).lower() for w in words)


def _unexpected(error: Exception) -> str:
    """A fault of ours: what, where, and how to see more."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if f"{os.sep}basis{os.sep}" in f.filename] or list(frames)
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "nowhere"
    return (
        f"unexpected {type(error).__name__} at {place}: {one_line(error)}; "
        "this is a fault of the program (BASIS_DEBUG=1 shows where it comes from)"
    )


@contextmanager
def _inputs_protected(args: argparse.Namespace) -> Iterator[None]:
    """Within the block, no file that the arguments name as an input is replaced."""
    given = dict(_texts(args))
    with ExitStack() as stack:
        stack.enter_context(protected([text for texts in given.values() for text in texts]))
        if getattr(args, "json", None):
            check_replaceable(args.json)
        out = getattr(args, "out", None)
        for name, texts in given.items():
            for text in texts if name not in _BESIDE_RESULTS else ():
                if out and os.path.isdir(text) and _same(out, text) and not _named(args, text):
                    raise BasisError(f"{out} is read as input; give --out another folder")
        yield


def _texts(args: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    for name, value in vars(args).items():
        items = value if isinstance(value, list) else [value]
        texts = [item for item in items if isinstance(item, str) and item]
        if name not in _NOT_READ and texts:
            yield name, texts


def _named(args: argparse.Namespace, text: str) -> bool:
    """Whether a text is the name of a data set or of a prior, which come before folders."""
    from basis.signals.datasets import DATASETS
    from basis.store.loading import list_priors

    root = getattr(args, "data_root", None)
    return text in DATASETS or any(entry.name == text for entry in list_priors(root))


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False
