"""The rooms of the package: imports go one way and through doors, and every file has its own name.

A room is a folder or file right below `basis`; its door is its `__init__` (or the file itself),
and files and names with a leading underscore stay inside. Files right below `basis` that begin
with an underscore are the foundation, open to all rooms.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import basis

PACKAGE = Path(basis.__file__).parent
ORDER = (
    "foundation", "families", "nn", "mixings", "data", "metrics", "priors", "adapters", "store",
    "samplers", "panels", "separation", "training", "pairs", "jobs", "perception", "baselines",
    "checks", "bench", "studies", "reproduce", "demo", "cli",
)  # fmt: skip
"""A room imports rooms to its left only."""

SPREAD = re.compile(r"\.(view|reshape)\(-1(, 1){2,}\)")
"""What `basis.tensors.per_item` is there for."""


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a module, whose name without `basis` is given in parts."""
    return "foundation" if parts[0].startswith("_") else parts[0]


def public_homes(package: Path) -> dict[str, str]:
    """The modules that names of `basis` itself come from."""
    found = {}
    for node in ast.walk(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "basis":
            found |= {alias.asname or alias.name: node.module for alias in node.names}
    return found


def imported(path: Path, package: Path) -> Iterator[tuple[int, str, str]]:
    """Line, module and name of everything that a file imports from the package."""
    homes = public_homes(package)
    here = ("basis", *path.relative_to(package).with_suffix("").parts)
    modules: dict[str, str] = {}  # names in the file that are modules of the package
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("basis."):
                    modules[alias.asname or alias.name] = alias.name
                    yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                module = ".".join((*here[: -node.level], *([module] if module else [])))
            if module.split(".")[0] != "basis":
                continue
            for alias in node.names:
                inside = package.joinpath(*module.split(".")[1:], alias.name)
                if inside.is_dir() or inside.with_suffix(".py").is_file():
                    modules[alias.asname or alias.name] = f"{module}.{alias.name}"
                    yield node.lineno, f"{module}.{alias.name}", ""
                elif module == "basis":
                    if alias.name not in ("BasisError", "__version__"):
                        yield node.lineno, homes.get(alias.name, "basis.unknown"), alias.name
                else:
                    yield node.lineno, module, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = modules.get(ast.unparse(node.value))
            if owner is not None:
                yield node.lineno, owner, node.attr


def files(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if path.stem != "__main__"]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def import_violations(package: Path) -> list[str]:
    """What the files of a package import that they may not."""
    found = []
    for path in files(package):
        if path == package / "__init__.py":
            continue  # the door of the house, which shows names of all rooms
        mine = room_of(path.relative_to(package).with_suffix("").parts)
        if mine not in ORDER:
            found.append(f"{path.relative_to(package)}: the room {mine} is not in the order")
            continue
        for line, module, name in imported(path, package):
            parts = tuple(module.split(".")[1:])
            theirs = room_of(parts)
            place = f"{path.relative_to(package)}:{line}"
            if theirs == mine and mine != "foundation":
                continue
            if theirs not in ORDER:
                found.append(f"{place}: {module} {name} is in no room of the order")
            elif ORDER.index(theirs) > ORDER.index(mine):
                found.append(f"{place}: {mine} imports {module}, a room to its right")
            elif any(is_private(part) for part in parts[1:]):
                found.append(f"{place}: {module} is a private file of {theirs}")
            elif is_private(name) and module != "basis." + path.stem:
                found.append(f"{place}: {module}.{name} is private")
    return found


def repeated_stems(package: Path) -> list[str]:
    """Names that several files have."""
    stems: dict[str, list[str]] = {}
    for path in files(package):
        if path.stem != "__init__":
            stems.setdefault(path.stem, []).append(str(path.relative_to(package)))
    return [" and ".join(paths) for paths in stems.values() if len(paths) > 1]


def spread_by_hand(package: Path) -> list[str]:
    """Lines that shape a number per item by counting the axes of pictures."""
    return [
        f"{path.relative_to(package)}:{number}"
        for path in files(package)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if SPREAD.search(line)
    ]


def test_imports_go_one_way_and_through_doors():
    assert import_violations(PACKAGE) == []


def test_every_file_has_its_own_name():
    assert repeated_stems(PACKAGE) == []


def test_nothing_counts_the_axes_of_pictures():
    assert spread_by_hand(PACKAGE) == []


def made(folder: Path, **texts: str) -> Path:
    """A package of made-up files; two underscores in a keyword are a folder."""
    package = folder / "basis"
    texts = {"__init__": "from basis.cli import main", "data__door": "", **texts}
    for key, text in texts.items():
        name = key if key == "__init__" else key.replace("__", "/").replace("door", "__init__")
        path = package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return package


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("from basis.cli import main", "a room to its right"),
        ("def f():\n    import basis.cli", "a room to its right"),
        ("from basis import main", "a room to its right"),
        ("from basis import cli", "a room to its right"),
        ("from ..cli import main", "a room to its right"),
        ("from basis.signals.places import NAMES", "a private file of data"),
        ("from basis.signals import _places", "a private file of data"),
        ("from basis.signals import _hidden", "is private"),
        ("from basis import data\ndata._hidden()", "is private"),
        ("import basis.signals\nbasis.data._hidden()", "is private"),
        ("from basis.files import _umask", "is private"),
        ("from basis.cellar import wine", "in no room of the order"),
        ("from basis import wine", "in no room of the order"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, text, complaint):
    package = made(
        tmp_path, priors___wrong=text, data___places="NAMES = ()", _files="", cli__door=""
    )
    found = import_violations(package)
    assert len(found) >= 1
    assert all(complaint in words and words.startswith("priors/_wrong.py:") for words in found)


def test_right_imports_are_left_alone(tmp_path):
    text = (
        "import torch\nfrom basis import BasisError, data\nfrom basis.errors import BasisError\n"
        "from basis.signals import NAMES\nfrom basis.priors._other import _helper\n"
        "from basis.signals.open_file import NAMES\n"
        "from . import _other\ndata.load()\nif __name__:\n    import basis.signals as d\n    d.load()"
    )
    package = made(
        tmp_path, priors___fine=text, priors___other="", _errors="_mine = 1", data__open_file=""
    )
    assert import_violations(package) == []
    made(tmp_path, cellar__door="")
    assert import_violations(package) == ["cellar/__init__.py: the room cellar is not in the order"]


def test_the_foundation_imports_no_room(tmp_path):
    package = made(tmp_path, _files="from basis.signals import NAMES", _errors="import basis.files")
    assert [words.split(":")[0] for words in import_violations(package)] == ["_files.py"]


def test_repeated_names_and_counted_axes_are_found(tmp_path):
    package = made(tmp_path, data___colour="x.view(-1, 1, 1, 1)", cli___colour="x.view(-1, 1)")
    assert repeated_stems(package) == ["cli/_colour.py and data/_colour.py"]
    assert spread_by_hand(package) == ["data/_colour.py:1"]
