"""The reference, generated from `__all__`, and the commands with their help.

Two directives: `{api}` describes every public name of a subpackage, `{commands}` every command.
Docstrings are plain text with names in single backticks, in which `*size` and |x| are no markup.
"""

import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import pkgutil
import re

from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

import basis
from basis.cli import main

CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
NAME = re.compile(r"`(~?[A-Za-z_][\w.]*)`")


def public_modules() -> list[str]:
    """The subpackages with public names, in the order of `basis.__all__`."""
    return [f"basis.{name}" for name in basis.__all__ if inspect.ismodule(getattr(basis, name))]


def public_names(module: str) -> dict[str, object]:
    """The names in `__all__` of a module, or else those that it defines, without modules."""
    found = importlib.import_module(module)
    own = [name for name, value in vars(found).items() if is_own(found, name, value)]
    names = [name for name in getattr(found, "__all__", own) if not name.startswith("__")]
    values = {name: getattr(found, name) for name in names}
    return {name: value for name, value in values.items() if not inspect.ismodule(value)}


def is_own(module, name: str, value: object) -> bool:
    """Whether a module defines a public class or function of this name."""
    return not name.startswith("_") and getattr(value, "__module__", None) == module.__name__


def home_of(module: str, name: str) -> str:
    """The full name under which an object is described: its first subpackage, else `basis`."""
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        for other in public_modules():
            if public_names(other).get(name) is value:
                return f"{other}.{name}"
    return f"{module}.{name}"


def describe(module: str, name: str, value: object) -> list[str]:
    """The directive that describes an object."""
    full = f"{module}.{name}"
    if inspect.isclass(value):
        if issubclass(value, Exception):
            return [f".. autoexception:: {full}", ""]
        return [f".. autoclass:: {full}", "   :members:", "   :show-inheritance:", ""]
    if inspect.isroutine(value):
        return [f".. autofunction:: {full}", ""]
    text = [f"   {plain(line)}" for line in comment_of(module, name)]
    return [f".. py:data:: {full}", "", *text, ""]


class Api(SphinxDirective):
    """Everything in `__all__` of a subpackage; names at the top level link to their subpackage."""

    required_arguments = 1

    def run(self):
        module = self.arguments[0]
        rows, lines = ["| name | description |", "|---|---|"], []
        for name, value in public_names(module).items():
            home = home_of(module, name)
            if module == "basis":
                first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
                rows.append(
                    f"| {{py:obj}}`{module}.{name} <{home}>` | {first.replace('|', '&#124;')} |"
                )
            if home == f"{module}.{name}":
                lines += describe(module, name, value)
        table = "\n".join(rows) if len(rows) > 2 else ""
        doc = inspect.getdoc(importlib.import_module(module)) or ""
        intro = "" if module == "basis" else doc.replace("*", "\\*").replace("|", "\\|")
        text = "\n".join([intro, "", table, "", "```{eval-rst}", *lines, "```"])
        return self.parse_text_to_nodes(text)


class Commands(SphinxDirective):
    """A section for every command with its `--help`."""

    def run(self):
        lines, names = [], []
        for name in re.findall(r"^ {4}([a-z]+)\b", help_of(), re.MULTILINE):
            names.append([name])
            if name == "lab":
                inner = re.findall(r"^ {4}([a-z]+)\b", help_of(name), re.MULTILINE)
                names += [[name, command] for command in inner]
        for words in names:
            lines += [f"## basis {' '.join(words)}", "", "```text", help_of(*words), "```", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def help_of(*words: str) -> str:
    """What a command prints for `--help`, 92 columns wide."""
    out, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "92"
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*words, "--help"])
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return out.getvalue()


def comment_of(module: str, name: str) -> list[str]:
    """The docstring below a constant, from whichever file of the subpackage defines it."""
    package = importlib.import_module(module)
    found = (m.name for m in pkgutil.iter_modules(getattr(package, "__path__", ())))
    for file in [module, *(f"{module}.{part}" for part in found if part != "__main__")]:
        analyzer = ModuleAnalyzer.for_module(file)
        analyzer.analyze()
        if analyzer.attr_docs.get(("", name)):
            return list(analyzer.attr_docs["", name])
    return []


def plain(line: str) -> str:
    """A line in which only backticks are markup."""
    parts = CODE.split(line)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", part)
        elif not NAME.fullmatch(part) and not part.startswith("``"):
            parts[i] = f"`{part}`"
    return "".join(parts)


def prepare(app, what, name, obj, options, lines) -> None:
    """Lists the settings of a class and escapes docstrings before napoleon reads their sections."""
    if what == "class" and dataclasses.is_dataclass(obj):
        described = [f for f in dataclasses.fields(obj) if f.metadata.get("help")]
        if described:
            lines += ["", "Args:", *(f"    {f.name}: {f.metadata['help']}" for f in described)]
    lines[:] = [plain(line) for line in lines]


def sign(app, what, name, obj, options, signature, returned):
    """Shows `...` for defaults that are made for each object."""
    return (signature or "").replace("<factory>", "...") or None, returned


def setup(app):
    """Registers the directives; docstrings are prepared before napoleon, whose priority is 500."""
    app.add_directive("api", Api)
    app.add_directive("commands", Commands)
    app.connect("autodoc-process-docstring", prepare, priority=400)
    app.connect("autodoc-process-signature", sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
