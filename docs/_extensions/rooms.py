"""The names of `basis` itself, the commands with their help, and pages that no list names."""

import contextlib
import inspect
import io
import os
import re
from pathlib import Path

from sphinx.util.docutils import SphinxDirective

import basis
from basis.cli import main


def home_of(name: str) -> str:
    """The full name under which the reference describes a name of `basis`."""
    room = getattr(basis, name).__module__.split(".")[1]
    return f"basis.{name}" if room.startswith("_") else f"basis.{room}.{name}"


class Door(SphinxDirective):
    """A table of the public names of `basis`, each with its first sentence and a link."""

    def run(self):
        """Rows by name; rooms have pages of their own."""
        rows = ["| name | what it is |", "|---|---|"]
        for name in sorted(basis.__all__):
            value = getattr(basis, name)
            if not name.startswith("_") and not inspect.ismodule(value):
                first = inspect.getdoc(value).split("\n\n")[0].replace("\n", " ")
                link = f"{{py:obj}}`basis.{name} <{home_of(name)}>`"
                rows.append(f"| {link} | {first.replace('|', chr(92) + '|')} |")
        return self.parse_text_to_nodes("\n".join(rows))


class Commands(SphinxDirective):
    """A section for every command, with what its `--help` says."""

    def run(self):
        """The commands in the order of `basis --help`."""
        lines = []
        for name in re.findall(r"^    ([a-z]+)\b", help_of(), re.MULTILINE):
            lines += [f"## basis {name}", "", "```text", help_of(name), "```", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def help_of(*words: str) -> str:
    """What a command prints when it is asked for help, for a screen of 90 columns."""
    out, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "92"
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*words, "--help"])
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return out.getvalue()


def add_pages(app, docname, source):
    """A page of docs that the front page does not list is put at the end of its contents."""
    if docname == "index":
        listed = set(re.findall(r"^(?:.*<)?([\w-]+)>?$", source[0], re.MULTILINE)) | {"index"}
        further = sorted({p.stem for p in Path(app.srcdir).glob("*.md")} - listed)
        if further:
            lines = ["```{toctree}", ":hidden:", ":caption: Further pages", "", *further, "```"]
            source[0] += "\n" + "\n".join(lines) + "\n"


def setup(app):
    """Registers them."""
    app.connect("source-read", add_pages)
    app.add_directive("door", Door)
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
