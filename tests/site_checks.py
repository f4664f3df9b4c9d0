"""What is asked of the site: links lead somewhere, nothing is fetched, every name is there."""

import importlib
import inspect
import pkgutil
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import basis

SHAPE = re.compile(r"\([\w* ]+,|any shape|shapes? as in|of the shapes of|of any number of axes")
"""A shape in words: (batch, ...), or that there is none to keep to."""


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what a browser fetches to show it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.anchors |= {known[name] for name in ("id", "name") if name in known}
        if "href" in known:
            (self.links if tag in ("a", "use") else self.fetched).add(known["href"])
        if "src" in known:
            self.fetched.add(known["src"])


def broken_links(site: Path) -> list[str]:
    """Links within the site to pages, files or headings that are not there."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links | page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target.is_file()
            if parts.fragment and target in pages:
                there = unquote(parts.fragment) in pages[target].anchors
            if not there:
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def fetched_from_outside(site: Path) -> list[str]:
    """What a browser would ask another host for."""
    found = []
    for path in sorted(site.rglob("*.html")):
        outside = [link for link in Page(path).fetched if urlsplit(link).netloc]
        found += [f"{path.relative_to(site)}: {link}" for link in outside]
    for path in sorted(site.rglob("*.css")):
        text = path.read_text(encoding="utf-8")
        urls = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", text)
        found += [f"{path.relative_to(site)}: {url}" for url in urls]
    return found


def public_names() -> dict[str, object]:
    """Every public name of the package, by its full name, and what it stands for."""
    found: dict[str, object] = {}
    rooms = (m.name for m in pkgutil.iter_modules(basis.__path__) if not m.name.startswith("_"))
    for room in ["basis", *(f"basis.{name}" for name in rooms)]:
        module = importlib.import_module(room)
        found |= {
            f"{room}.{name}": getattr(module, name) for name in getattr(module, "__all__", ())
        }
    return found


def documented(inventory: Path) -> set[str]:
    """The Python names in a site's objects.inv."""
    packed = inventory.read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(packed).decode("utf-8").splitlines()
    return {line.split(" ")[0] for line in lines if line.split(" ")[1].startswith("py:")}


def missing_names(names: dict[str, object], described: set[str]) -> list[str]:
    """Public names that the reference describes neither where they are nor in another room."""
    elsewhere = {id(value) for name, value in names.items() if name in described}
    return [
        name
        for name, value in names.items()
        if name not in described
        and not (_has_docstring(value) and id(value) in elsewhere)
        and not inspect.ismodule(value)
        and not name.endswith(".__version__")
    ]


def undescribed_names(names: dict[str, object], comments: dict[str, str]) -> list[str]:
    """Public names without a docstring of their own, or with tensors and no word of their shapes.

    Args:
        names: As `public_names` gives them.
        comments: What stands below constants and fields in the source, by their last name.
    """
    found = []
    for name, value in names.items():
        if inspect.ismodule(value) or name.endswith(".__version__"):
            continue
        if not _has_docstring(value):
            if name.rpartition(".")[2] not in comments:
                found.append(f"{name}: what is it?")
            continue
        text = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
        if not text or text.startswith(f"{value.__name__}("):  # what a dataclass says by default
            found.append(f"{name}: what is it?")
            continue
        fields = getattr(value, "__annotations__", {}) if inspect.isclass(value) else {}
        text += "".join(comments.get(f"{value.__name__}.{field}", "") for field in fields)
        if "Tensor" in _signature(value) and not SHAPE.search(text):
            found.append(f"{name}: of which shape?")
    return found


def _has_docstring(value: object) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def _signature(value: object) -> str:
    try:
        return str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
