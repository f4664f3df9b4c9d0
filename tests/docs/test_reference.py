"""The reference is current, has every public name, and every public name is described."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
TENSOR = re.compile(r"(: |-> )'?(Tensor|torch\.Tensor)")
SHAPE = re.compile(r"\([\w* ]+,|any shape|any number of axes|shapes? as")


@pytest.fixture(scope="module")
def generator():
    """The script that writes the reference."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("make_reference")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def names(generator):
    """Every public object by its full name."""
    return {
        f"{module}.{name}": value
        for module in ["basis", *generator.subpackages()]
        for name, value in generator.public_names(module).items()
    }


def test_the_reference_is_current(generator):
    for name, text in generator.pages().items():
        if name == "commands.md" and sys.version_info >= (3, 13):
            continue  # argparse writes the help differently
        found = (REFERENCE / name).read_text(encoding="utf-8")
        assert found == text, f"{name}: run `make reference`"


def test_the_reference_has_the_public_names_and_no_others(generator, names):
    described = set()
    for path in REFERENCE.glob("*.md"):
        module = "basis" if path.stem == "basis" else f"basis.{path.stem}"
        text = path.read_text(encoding="utf-8")
        if path.stem not in ("index", "commands"):
            described |= {f"{module}.{name}" for name in re.findall(r"^## (\w+)$", text, re.M)}
        if path.stem == "basis":
            listed = re.findall(r"^\| \[(\w+)\]", text, re.M)
    top = {name for name in names if name.count(".") == 1}
    assert {f"basis.{name}" for name in listed} == top
    elsewhere = {n for n in top if generator.home_of(n.split(".")[1], names[n]) != "basis"}
    assert described == set(names) - elsewhere
    assert len(described) <= 90


def test_every_command_is_in_the_reference():
    text = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    commands = ["separate", "colorize", "mix", "train", "sample", "check", "priors", "page"]
    for name in (*commands, "lab bench"):
        assert f"usage: basis {name}" in text, name


def test_every_public_name_has_a_docstring_with_shapes(names):
    assert undescribed(names) == []


def undescribed(names: dict[str, object]) -> list[str]:
    """Classes and functions without a docstring, or with tensors and no shape."""
    found = []
    for name, value in names.items():
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        text = (value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
        if not text or text.startswith(f"{value.__name__}("):  # the default of a dataclass
            found.append(f"{name}: no docstring")
            continue
        takes = str(inspect.signature(value)) if inspect.isroutine(value) else ""
        if TENSOR.search(takes) and not SHAPE.search(text):
            found.append(f"{name}: no shapes")
    return found


def test_names_without_descriptions_are_found():
    def undocumented():
        pass

    def shapeless(x: "Tensor") -> None:  # noqa: F821
        """Takes something."""

    def shaped(x: "Tensor") -> None:  # noqa: F821
        """Takes x, (batch, channels)."""

    found = {"a.undocumented": undocumented, "a.shapeless": shapeless, "a.shaped": shaped}
    assert undescribed(found) == ["a.undocumented: no docstring", "a.shapeless: no shapes"]
