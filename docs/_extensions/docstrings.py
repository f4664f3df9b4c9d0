"""Docstrings as they are written here, made ready for Sphinx.

They are plain text with names in single backticks, in which `*size` and |x| are no markup. Names
that a room's door shows load at first use, and constants are described where they are defined.
"""

import importlib
import inspect
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
    """Puts every public name into its door, where autodoc looks for it, constants with comments."""
    for room in public_rooms():
        module = importlib.import_module(room)
        analyzer = ModuleAnalyzer.for_module(room)  # kept by Sphinx, which asks for it again
        analyzer.analyze()
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            setattr(module, name, value)
            if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
                analyzer.attr_docs["", name] = comment_of(room, name)


def plain(line: str) -> str:
    """A line in which nothing but backticks is markup."""
    parts = CODE.split(line)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", part)
        elif not NAME.fullmatch(part) and not part.startswith("``"):
            parts[i] = f"`{part}`"
    return "".join(parts)


def comment_of(room: str, name: str) -> list[str]:
    """What stands below the definition of a constant, in whichever file of the room it is."""
    package = importlib.import_module(room)
    found = (m.name for m in pkgutil.iter_modules(getattr(package, "__path__", ())))
    # not __main__, which would run the command line
    files = [room, *(f"{room}.{file}" for file in found if file != "__main__")]
    for file in files:
        analyzer = ModuleAnalyzer.for_module(file)
        analyzer.analyze()
        if analyzer.attr_docs.get(("", name)):
            return list(analyzer.attr_docs["", name])
    return []


def prepare(app, what, name, obj, options, lines) -> None:
    """Run for every docstring before the sections in it are read."""
    lines[:] = [plain(line) for line in lines]


def sign(app, what, name, obj, options, signature, returned):
    """A default that is made anew for every object has no value to show."""
    return (signature or "").replace("<factory>", "...") or None, returned


def setup(app):
    """Before napoleon, whose priority is 500."""
    load_names()
    app.connect("autodoc-process-docstring", prepare, priority=400)
    app.connect("autodoc-process-signature", sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
