"""The exception that users see, and text from outside made safe to print."""

from __future__ import annotations

import re


class BasisError(ValueError):
    """Something the caller gave cannot be used.

    The message is one line that names what is wrong and what is accepted; the command line prints
    it and exits with code 2.
    """


_LONGEST = 400
_MOVES = re.compile(r"(?:[\r\n ]|\x1b\[A)*")
_MARKUP = {"|": "\\|", "<": "&lt;", "`": "\\`", "](": "\\]("}
"""What would end a cell, begin a tag or code, or make a link or a picture."""


def printable(text: object) -> str:
    """The text on one line and without what a terminal would obey, each such character escaped.

    These are control characters, line and paragraph separators, marks that turn the direction of
    writing, and the halves of characters that stand for bytes of file names that are no UTF-8.
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def shown(text: str) -> str:
    """The text as it may reach a terminal: `printable`, but with its lines and tabs kept.

    What progress bars write is kept too: a carriage return at the beginning, and writes of nothing
    but moves of the cursor up, to the left and to the next line.
    """
    if text.isprintable() or _MOVES.fullmatch(text):
        return text
    first = "\r" if text.startswith("\r") else ""
    return first + "".join(
        c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text[len(first) :]
    )


def one_line(error: object, most: int = _LONGEST) -> str:
    """What an exception of any library says, on one printable line, or its type where it is mute.

    A KeyError says nothing but its key, and some libraries write whole pages: the first line that
    has words in it is taken, and cut after `most` characters.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = printable(lines[0]) if lines else ""
    if isinstance(error, BaseException) and (not text or isinstance(error, LookupError)):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


def markdown_cell(text: object) -> str:
    """The text as a cell of a Markdown table: it stays in its cell, and nothing in it is a tag, a
    link or a picture.
    """
    found = printable(text)
    for mark, escaped in _MARKUP.items():
        found = found.replace(mark, escaped)
    return found


def markdown_code(text: object) -> str:
    """The text as code in Markdown, whatever it holds."""
    found = printable(text)
    ticks = "`" * (1 + max(map(len, re.findall("`+", found)), default=0))
    space = " " if "`" in found else ""
    return f"{ticks}{space}{found}{space}{ticks}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
