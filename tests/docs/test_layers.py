"""The layers of the package: modules import downwards only, apart from a few methods."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import basis

PACKAGE = Path(basis.__file__).parent

# From the bottom; within a row, modules import from those to their left.
# Rows in parentheses are exempt: their modules may import each other.
LAYERS = """
(errors files settings devices metrics tensors progress _version)
nn mixings signals priors
adapters store samplers
search plots
(_inputs _separate result _colorize _mix _sample _check ecg)
training jobs
lab page
cli __main__
"""

# Methods and functions that import from a layer above, as "module -> layer".
UPWARD = {
    "priors.prior -> adapters",
    "priors.prior -> store",
    "priors.prior -> _sample",
}

BY_HAND = re.compile(r"\.(view|reshape)\(-1(, 1){2,}\)")
"""Shapes that count the axes of pictures; `basis.tensors.per_item` does not."""


def ranks() -> dict[str, tuple[int, int]]:
    """The row and the column of every layer."""
    found = {}
    for row, line in enumerate(LAYERS.split("\n")):
        for column, name in enumerate(line.strip("()").split()):
            found[name] = (row, 0 if line.startswith("(") else column)
    return found


def imported(tree: ast.AST, package: Path) -> Iterator[tuple[str, int]]:
    """The modules of the package that statements import, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("basis."):
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "basis":
            for alias in node.names:
                inside = package.joinpath(*node.module.split(".")[1:], alias.name)
                known = inside.is_dir() or inside.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if known else node.module, node.lineno


def violations(package: Path) -> tuple[list[str], set[str]]:
    """Imports of a layer above at module level, and those inside functions."""
    order, wrong, inside = ranks(), [], set()
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts == ("__init__",):
            continue
        mine = parts[0]
        if mine not in order:
            wrong.append(f"{'.'.join(parts)}: {mine} is not a layer")
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        checking = [
            node.body
            for node in tree.body
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ]
        for_types = {id(statement) for body in checking for statement in body}
        top = {
            line
            for statement in tree.body
            if isinstance(statement, ast.Import | ast.ImportFrom)
            for _, line in imported(statement, package)
        }
        typed = {
            line
            for node in ast.walk(tree)
            if id(node) in for_types
            for _, line in imported(node, package)
        }
        for module, line in imported(tree, package):
            theirs = [*module.split("."), ""][1]
            if line in typed or not theirs or theirs == mine:
                continue
            if theirs not in order:
                wrong.append(f"{'.'.join(parts)}:{line}: {module} is not in a layer")
            elif order[theirs] > order[mine]:
                if line in top:
                    wrong.append(f"{'.'.join(parts)}:{line} imports {module}")
                else:
                    inside.add(f"{'.'.join(parts)} -> {theirs}")
    return wrong, inside


def test_imports_go_down():
    wrong, inside = violations(PACKAGE)
    assert wrong == []
    assert inside == UPWARD


def test_no_line_counts_the_axes_of_pictures():
    found = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if BY_HAND.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "wrong", "inside"),
    [
        ("from basis.cli import main", ["priors.new:1 imports basis.cli"], set()),
        ("from basis import cli", ["priors.new:1 imports basis.cli"], set()),
        ("import basis.cli", ["priors.new:1 imports basis.cli"], set()),
        ("from basis.cellar import wine", ["priors.new:1: basis.cellar is not in a layer"], set()),
        ("def f():\n    from basis.cli import main", [], {"priors.new -> cli"}),
        ("from basis.errors import BasisError\nfrom basis.signals import load_images", [], set()),
        ("if TYPE_CHECKING:\n    from basis.cli import main", [], set()),
    ],
)
def test_upward_imports_are_found(tmp_path, text, wrong, inside):
    for name, content in {"cli": "", "errors": "", "signals": "", "priors/new": text}.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    assert violations(tmp_path) == (wrong, inside)
