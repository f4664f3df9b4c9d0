"""The site builds without warnings, is whole, asks nobody for anything and describes every name."""

import subprocess
import sys
from pathlib import Path

import pytest
from site_checks import (
    broken_links,
    documented,
    fetched_from_outside,
    missing_names,
    public_names,
    undescribed_names,
)

import basis

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it; a warning fails."""
    pytest.importorskip("furo", reason="the site needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    words = ["--fail-on-warning", "--keep-going", "--quiet", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_site_is_whole(site):
    assert broken_links(site) == []
    assert fetched_from_outside(site) == []


def test_every_page_of_the_docs_is_in_the_site(site):
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        assert built.is_file(), f"{page} is in no page of the site"
    assert "<math" in (site / "method.html").read_text(encoding="utf-8")


def test_every_public_name_is_in_the_reference(site):
    names = public_names()
    assert len(names) > 200
    assert missing_names(names, documented(site / "objects.inv")) == []


def test_every_name_of_basis_and_every_command_is_listed(site):
    from basis.cli import _COMMANDS

    door = (site / "reference" / "basis.html").read_text(encoding="utf-8")
    for name, value in public_names().items():
        if name.count(".") == 1 and name != "basis.__version__" and callable(value):
            assert f"{name}</span>" in door, name
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name in _COMMANDS:
        assert f"usage: basis {name}" in commands, name


def comments() -> dict[str, str]:
    """What stands below constants and fields, by name, over all files of the package."""
    parser = pytest.importorskip("sphinx.pycode.parser", reason="needs the extra docs")
    found = {}
    for path in Path(basis.__file__).parent.rglob("*.py"):
        parsed = parser.Parser(path.read_text(encoding="utf-8"))
        parsed.parse()
        for (owner, name), text in parsed.comments.items():
            found[f"{owner}.{name}" if owner else name] = text
    return found


def test_every_public_name_is_described_with_its_shapes():
    assert undescribed_names(public_names(), comments()) == []


def test_what_is_missing_is_found(tmp_path):
    def undocumented():
        pass

    def shapeless(x: "Tensor") -> None:  # noqa: F821
        """Takes something."""

    def shaped(x: "Tensor") -> None:  # noqa: F821
        """Takes x, (batch, channels)."""

    names = {"a.undocumented": undocumented, "a.shapeless": shapeless, "a.shaped": shaped, "a.N": 3}
    assert undescribed_names(names, {"N": "a number"}) == [
        "a.undocumented: what is it?",
        "a.shapeless: of which shape?",
    ]
    assert undescribed_names({"a.N": 3}, {}) == ["a.N: what is it?"]
    assert missing_names(names | {"b.shaped": shaped}, {"a.shaped", "a.N"}) == [
        "a.undocumented",
        "a.shapeless",
    ]
    (tmp_path / "a.html").write_text(
        '<a href="b.html">b</a> <a href="#here">h</a> <p id="there"><a href="#there">t</a>'
        '<a href="https://elsewhere.org">e</a><script src="https://cdn.org/x.js"></script>'
    )
    (tmp_path / "a.css").write_text("@import url(//fonts.org/f.css); a { background: url(b.png) }")
    assert broken_links(tmp_path) == ["a.html: #here", "a.html: b.html"]
    outside = ["a.html: https://cdn.org/x.js", "a.css: //fonts.org/f.css"]
    assert fetched_from_outside(tmp_path) == outside


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    pytest.importorskip("nbclient")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from run_notebooks import run_notebook

    monkeypatch.setenv("PYTHONPATH", str(Path(basis.__file__).parents[1]))
    stored = run_notebook.__globals__["nbformat"].read(path, as_version=4)
    done = run_notebook(path, tmp_path)

    def shown(notebook):
        return [
            [sorted(output.get("data", {"text": ""})) for output in cell.get("outputs", ())]
            for cell in notebook.cells
        ]

    assert shown(done) == shown(stored), "`make notebooks` stores what they show"
    assert len(path.read_bytes()) < 100_000


def test_there_are_three_notebooks():
    assert len(NOTEBOOKS) >= 3
