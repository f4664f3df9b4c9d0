"""Docstrings as they are written here, made ready for Sphinx.

They are plain text with names in single backticks, in which `*size` and |x| are no markup. Names
that a room's door shows load at first use, and constants are described where they are defined.
"""

import importlib
import pkgutil
import re

from sphinx.pycode import ModuleAnalyzer

import basis

CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
NAME = re.compile(r"`(~?[A-Za-z_][\w.]*)`")


def public_rooms() -> list[str]:
    """The modules with public names."""
    found = (m.name for m in pkgutil.iter_modules(basis.__path__))
    return ["basis", *sorted(f"basis.{name}" for name in found if not name.startswith("_"))]


def load_names() -> None:
    """Puts every public name into its door, where autodoc looks for it."""
    for room in public_rooms():
        module = importlib.import_module(room)
        for name in getattr(module, "__all__", ()):
            setattr(module, name, getattr(module, name))


def plain(line: str) -> str:
    """A line in which nothing but backticks is markup."""
    parts = CODE.split(line)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", part)
        elif not NAME.fullmatch(part) and not part.startswith("``"):
            parts[i] = f"`{part}`"
    return "".join(parts)


def comment_of(name: str) -> list[str]:
    """What stands below the definition of a constant, in whichever file of the room it is."""
    room, _, last = name.rpartition(".")
    package = importlib.import_module(room)
    files = [room]
    if hasattr(package, "__path__"):
        files += [f"{room}.{m.name}" for m in pkgutil.iter_modules(package.__path__)]
    for file in files:
        analyzer = ModuleAnalyzer.for_module(file)
        analyzer.analyze()
        if ("", last) in analyzer.attr_docs:
            return list(analyzer.attr_docs["", last])
    return []


def prepare(app, what, name, obj, options, lines) -> None:
    """Run for every docstring before the sections in it are read."""
    if what == "data":  # by default, what the constant's type says of itself
        lines[:] = comment_of(name) or lines
    lines[:] = [plain(line) for line in lines]


def setup(app):
    """Before napoleon, whose priority is 500."""
    load_names()
    app.connect("autodoc-process-docstring", prepare, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
