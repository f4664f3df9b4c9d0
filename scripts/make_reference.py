"""Writes docs/reference from the public names, their docstrings, and the help of the commands.

`make reference` runs it; a test checks that the files are current. One page per subpackage, with a
heading for every name in its `__all__`; a name that `basis` exports too is described once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import re
import sys
import textwrap
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import basis
from basis.cli import main

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 96
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Shapes|Yields):")
FIELD = re.compile(r"(\*{0,2}[A-Za-z_][\w, *]*?): (.*)", re.DOTALL)


class Raw(str):
    """Text that is shown without quotes in a signature."""

    def __repr__(self) -> str:
        return str(self)


def subpackages() -> list[str]:
    """The subpackages and modules with public names, as `basis.__all__` lists them."""
    return [f"basis.{name}" for name in basis.__all__ if inspect.ismodule(getattr(basis, name))]


def public_names(module: str) -> dict[str, Any]:
    """The objects in `__all__` of a module, by name."""
    found = importlib.import_module(module)
    values = {name: getattr(found, name) for name in found.__all__ if not name.startswith("__")}
    return {name: value for name, value in values.items() if not inspect.ismodule(value)}


def home_of(name: str, value: Any) -> str:
    """The module whose page describes what `basis` exports under a name."""
    for module in subpackages():
        if public_names(module).get(name) is value:
            return module
    return "basis"


def signature_of(value: Any, name: str) -> str:
    """A call with its parameters, annotations as they are in the source."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return name
    found = inspect.signature(value)
    parameters = [
        p.replace(
            annotation=Raw(p.annotation) if isinstance(p.annotation, str) else p.annotation,
            default=Raw("...") if re.match("<(object|factory)", repr(p.default)) else p.default,
        )
        for p in found.parameters.values()
        if p.name not in ("self", "cls")
    ]
    returned = found.return_annotation
    if inspect.isclass(value) or returned == "None":
        returned = inspect.Signature.empty
    elif isinstance(returned, str):
        returned = Raw(returned)
    text = name + str(inspect.Signature(parameters, return_annotation=returned))
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False))


def plain(text: str) -> str:
    """Text in which only backticks are markup."""
    parts = re.split(r"(`[^`]+`)", text)
    parts[::2] = [re.sub(r"([*<|$\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def docstring(value: Any) -> str:
    """A docstring as Markdown: sections become lists of their fields."""
    text = value.__doc__ or ""
    lines = inspect.cleandoc(text).split("\n")
    out: list[str] = []
    section: list[str] | None = None
    for line in [*lines, "End:"]:
        if section is not None and (not line or line.startswith(" ")):
            section.append(line)
            continue
        if section is not None:
            out += [*fields("\n".join(section)), ""]
            section = None
        if SECTION.fullmatch(line):
            out += [f"**{line[:-1]}**", ""]
            section = []
        elif line != "End:":
            out.append(line if line.startswith("    ") else plain(line))
    return "\n".join(out).strip()


def fields(text: str) -> list[str]:
    """The entries of a section of a docstring, as items of a list or as a paragraph."""
    entries = re.split(r"\n(?=\S)", textwrap.dedent(text).strip())
    matches = [FIELD.fullmatch(entry) for entry in entries]
    if not all(matches):
        return [plain(textwrap.dedent(text).strip())]
    out = []
    for match in matches:
        words = " ".join(match[2].split())
        out += textwrap.wrap(f"- `{match[1]}`: {plain(words)}", WIDTH, subsequent_indent="  ")
    return out


def settings_of(value: type) -> list[str]:
    """The settings of a dataclass that describes them."""
    if not dataclasses.is_dataclass(value):
        return []
    described = [f for f in dataclasses.fields(value) if f.metadata.get("help")]
    items = [f"- `{f.name}`: {plain(f.metadata['help'])}" for f in described]
    return ["**Settings**", "", *items, ""] if items else []


def members(value: type) -> list[str]:
    """The public methods and properties that a class defines, each an item of a list."""
    out = []
    for name, found in vars(value).items():
        inner = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if name.startswith("_") or not (
            inspect.isroutine(inner) or isinstance(inner, property | cached_property)
        ):
            continue
        text = docstring(inner)
        if not text:  # as in the parent class
            continue
        title = name if isinstance(inner, property | cached_property) else signature_of(inner, name)
        out += [f"- `{' '.join(title.split())}`", "", textwrap.indent(text, "  "), ""]
    return ["**Members**", "", *out] if out else []


def comment_of(module: str, name: str) -> str:
    """The string below the assignment of a constant, in the file that makes it."""
    package = Path(importlib.import_module(module).__file__)
    for path in [package, *sorted(package.parent.glob("*.py"))]:
        pattern = rf'^{name}\b[^\n]* = .*?\n(?:\}}\n)?"""(.*?)"""'
        match = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if match:
            return plain(inspect.cleandoc(match[1]))
    raise ValueError(f"{module}.{name} has no description")


def describe(module: str, name: str, value: Any) -> list[str]:
    """The section of a name."""
    lines = [f"## {name}", ""]
    if inspect.isclass(value) or inspect.isroutine(value):
        lines += ["```python", signature_of(value, name), "```", "", docstring(value), ""]
        if inspect.isclass(value):
            lines += [*settings_of(value), *members(value)]
        return lines
    return [*lines, comment_of(module, name), ""]


def first_sentence(value: Any) -> str:
    """The first paragraph of a docstring in one line."""
    return plain(" ".join(inspect.getdoc(value).split("\n\n")[0].split()))


def module_page(module: str) -> str:
    """The page of a subpackage, or of the top level with links to the others."""
    names = public_names(module)
    lines = [f"# {module}", ""]
    if module == "basis":
        lines += ["The names at the top level. Most need nothing else.", ""]
        lines += ["| name | description |", "|---|---|"]
        for name, value in names.items():
            home = home_of(name, value)
            page = "" if home == "basis" else f"{home.removeprefix('basis.')}.md"
            lines.append(f"| [{name}]({page}#{name.lower()}) | {first_sentence(value)} |")
        lines.append("")
        names = {name: value for name, value in names.items() if home_of(name, value) == "basis"}
    else:
        lines += [docstring(importlib.import_module(module)), ""]
    for name, value in names.items():
        lines += describe(module, name, value)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def help_of(*words: str) -> str:
    """What a command prints for `--help`, 92 columns wide."""
    out = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS="92"),
        contextlib.redirect_stdout(out),
        contextlib.suppress(SystemExit),
    ):
        main([*words, "--help"])
    return out.getvalue().rstrip()


def command_page() -> str:
    """The help of every command."""
    commands = []
    for name in re.findall(r"^ {2}([a-z]+) {2,}", help_of(), re.MULTILINE):
        commands.append([name])
        if name == "lab":
            inner = re.findall(r"^ {4}([a-z]+)\b", help_of(name), re.MULTILINE)
            commands += [[name, command] for command in inner]
    lines = ["# Commands", "", "The help of every command.", ""]
    for words in commands:
        lines += [f"## basis {' '.join(words)}", "", "```text", help_of(*words), "```", ""]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """The text of every generated page by its file name."""
    found = {f"{m.removeprefix('basis.')}.md": module_page(m) for m in ["basis", *subpackages()]}
    return found | {"commands.md": command_page()}


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"written to {FOLDER}\n")
