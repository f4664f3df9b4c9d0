"""The site builds without warnings, its links work, and notebooks run."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import basis

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it; warnings are errors."""
    pytest.importorskip("furo", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    words = ["--fail-on-warning", "--keep-going", "--quiet", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "html"


class Page(HTMLParser):
    """The anchors of a page, its links, and the files that a browser loads to show it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.anchors |= {known[name] for name in ("id", "name") if name in known}
        if "href" in known:
            (self.links if tag in ("a", "use") else self.loaded).add(known["href"])
        if "src" in known:
            self.loaded.add(known["src"])


def broken_links(site: Path) -> list[str]:
    """Links within the site to missing files or headings."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links | page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            exists = target.is_file()
            if parts.fragment and target in pages:
                exists = unquote(parts.fragment) in pages[target].anchors
            if not exists:
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def loaded_from_outside(site: Path) -> list[str]:
    """Files that a browser would load from another server."""
    found = []
    for path in site.rglob("*.html"):
        page = Page(path.read_text(encoding="utf-8"))
        found += [f"{path.name}: {link}" for link in page.loaded if urlsplit(link).netloc]
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        urls = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", text)
        found += [f"{path.name}: {link}" for link in urls]
    return found


def test_links_work_and_nothing_is_loaded_from_outside(site):
    assert broken_links(site) == []
    assert loaded_from_outside(site) == []


def test_every_page_is_in_the_site(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page
    assert "<math" in (site / "method.html").read_text(encoding="utf-8")


def test_the_checks_find_what_is_wrong(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a href="b.html">b</a> <a href="#here">h</a> <p id="there"><a href="#there">t</a>'
        '<a href="https://elsewhere.org">e</a><script src="https://cdn.org/x.js"></script>'
    )
    (tmp_path / "a.css").write_text("@import url(//fonts.org/f.css); a { background: url(b.png) }")
    assert broken_links(tmp_path) == ["a.html: #here", "a.html: b.html"]
    outside = ["a.html: https://cdn.org/x.js", "a.css: //fonts.org/f.css"]
    assert loaded_from_outside(tmp_path) == outside


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    pytest.importorskip("nbclient")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from run_notebooks import run_notebook

    monkeypatch.setenv("PYTHONPATH", str(Path(basis.__file__).parents[1]))
    stored = run_notebook.__globals__["nbformat"].read(path, as_version=4)
    done = run_notebook(path, tmp_path)

    def kinds(notebook):
        return [
            [sorted(output.get("data", {"text": ""})) for output in cell.get("outputs", ())]
            for cell in notebook.cells
        ]

    assert kinds(done) == kinds(stored), "run `make notebooks`"
    assert len(path.read_bytes()) < 150_000
