"""The exception that users see, and text from outside made safe to print."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class BasisError(ValueError):
    """An argument or a file cannot be used.

    The message is one line that names what is wrong and what is accepted; the command line prints
    it and exits with code 2.
    """


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A suggestion for a misspelled word, as the end of a message; empty if none is close."""
    by_name = {name.lstrip("-"): name for name in known}
    near = difflib.get_close_matches(str(word).lstrip("-"), list(by_name), n=1, cutoff=0.7)
    return f"; did you mean {by_name[near[0]]}?" if near else ""


_LONGEST = 400
_MOVES = re.compile(r"(?:[\r\n ]|\x1b\[A)*")
_MARKUP = {"|": "\\|", "<": "&lt;", "`": "\\`", "](": "\\]("}  # ends of cells, tags, code, links


def printable(text: object) -> str:
    """The text on one line, with every character escaped that could control a terminal.

    These are control characters, line and paragraph separators, marks that change the direction of
    writing, and surrogates, which stand for bytes of file names that are not valid UTF-8.
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def shown(text: str) -> str:
    """`printable`, but with lines and tabs kept, for text written to a terminal.

    What progress bars write is kept too: a carriage return at the beginning, and text that only
    moves the cursor up, to the left and to the next line.
    """
    if text.isprintable() or _MOVES.fullmatch(text):
        return text
    first = "\r" if text.startswith("\r") else ""
    return first + "".join(
        c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text[len(first) :]
    )


def one_line(error: object, most: int = _LONGEST) -> str:
    """The message of an exception on one printable line, or its type if the message is empty.

    The first non-empty line is taken and cut after `most` characters; the message of a KeyError,
    which is only its key, is preceded by the type.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = printable(lines[0]) if lines else ""
    if isinstance(error, BaseException) and (not text or isinstance(error, LookupError)):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


def named(error: BaseException) -> str:
    """The type and the message of an exception, on one line."""
    kind, text = type(error).__name__, one_line(error)
    return text if text.startswith(kind) else f"{kind}: {text}"


def markdown_cell(text: object) -> str:
    """The text as a cell of a Markdown table, with marks for cells, tags and links escaped."""
    found = printable(text)
    for mark, escaped in _MARKUP.items():
        found = found.replace(mark, escaped)
    return found


def markdown_code(text: object) -> str:
    """The text as code in Markdown, whatever it contains."""
    found = printable(text)
    ticks = "`" * (1 + max(map(len, re.findall("`+", found)), default=0))
    space = " " if "`" in found else ""
    return f"{ticks}{space}{found}{space}{ticks}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
