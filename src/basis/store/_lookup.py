"""Names of priors: the package's own, those below the data root, those of installed packages."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from basis._errors import BasisError
from basis._texts import one_line
from basis.data import data_root
from basis.priors import Card, Prior
from basis.store._card_files import CARD, read_card
from basis.store._hub import fetch, hub_name

EMBEDDED = Path(__file__).parent / "embedded"
"""Where the priors lie that ship with the package."""
_GROUP = "basis.priors"


@dataclass(frozen=True)
class PriorEntry:
    """A prior that `load_prior` can find by name: in a folder, or made by an installed package.

    Attributes:
        problem: Why its card cannot be read; empty where it can. One bad card takes no other prior
            off the list.
    """

    name: str
    folder: Path | None
    card: Card | None
    maker: EntryPoint | None = None
    problem: str = ""

    @property
    def title(self) -> str:
        """One line about it."""
        if self.card is not None:
            return self.card.title
        if self.problem:
            return f"cannot be used: {self.problem}"
        assert self.maker is not None
        package = self.maker.dist.name if self.maker.dist else self.maker.module
        return f"made by the package {package}"

    def record(self) -> dict[str, Any]:
        """The entries of its card, or what there is to say without one."""
        if self.card is not None:
            return self.card.to_dict()
        return {"name": self.name, "title": self.title}

    def __repr__(self) -> str:
        shape = "" if self.card is None else f", {'x'.join(map(str, self.card.shape))}"
        return f"PriorEntry({self.name!r}{shape}, {self.title})"


def list_priors(root: str | Path | None = None) -> list[PriorEntry]:
    """The priors that can be loaded by name.

    These are the package's, those below the data root, and those of installed packages.
    """
    entries: dict[str, PriorEntry] = {}
    for place in (EMBEDDED, data_root(root) / "priors"):
        for path in sorted(place.glob(f"*/{CARD}")):
            name = path.parent.name
            if name not in entries:
                entries[name] = _entry(name, path.parent)
    for maker in entry_points(group=_GROUP):
        entries.setdefault(maker.name, PriorEntry(maker.name, None, None, maker))
    return list(entries.values())


def _entry(name: str, folder: Path) -> PriorEntry:
    try:
        return PriorEntry(name, folder, read_card(folder))
    except BasisError as error:
        return PriorEntry(name, folder, None, problem=str(error))


def split_classes(source: str | Path) -> tuple[str | Path, list[str]]:
    """A source such as "cifar10:cat,dog" without the classes after its colon, and these."""
    if not isinstance(source, str) or os.path.isdir(source):
        return source, []
    before, colon, after = source.rpartition(":")
    # One letter is a drive's, and "hf" says that the rest is a name on the model hub.
    if not colon or len(before) < 2 or before == "hf" or any(c in after for c in "/\\@"):
        return source, []
    return before, [name.strip() for name in after.split(",")]


def find_prior(source: str | Path, root: str | Path | None = None) -> Path:
    """The folder of a prior given by name, by folder, or by its name on the model hub."""
    return prior_folder(source, find_entry(source, root), root)


def find_entry(source: str | Path, root: str | Path | None) -> PriorEntry | None:
    """The entry of this name, where the source is a plain name."""
    if not isinstance(source, str) or Path(source).name != source:
        return None
    found = next((entry for entry in list_priors(root) if entry.name == source), None)
    if found is not None and found.problem:
        raise BasisError(f"prior {source!r} cannot be used: {found.problem}")
    return found


def prior_folder(source: str | Path, entry: PriorEntry | None, root: str | Path | None) -> Path:
    """The folder of an entry, or of a source that has none."""
    if entry is not None and entry.folder is not None:
        return entry.folder
    wanted = hub_name(source)
    if wanted is not None:
        return fetch(*wanted)
    path = Path(source)
    if os.path.isdir(path):  # where Path.is_dir raises on a name too long
        return path
    known = [entry.name for entry in list_priors(root)]
    near = difflib.get_close_matches(path.name, [*known, *_neighbours(path)], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise BasisError(
        f"unknown prior {str(source)!r}{hint}: give a folder, hf:owner/name@revision for one on "
        f"the model hub, or one of these names: {', '.join(known) or 'none'}"
    )


def _neighbours(path: Path) -> list[str]:
    """The folders beside a missing one, for the one that was meant."""
    try:
        return [place.name for place in path.parent.iterdir() if (place / CARD).is_file()]
    except OSError:
        return []


def make_prior(maker: EntryPoint) -> Prior:
    """The prior that an installed package makes."""
    try:
        made: Callable[[], Any] = maker.load()
        prior = made()
    except Exception as error:
        # Another package's code: whatever it raises, the user is told whose it was.
        raise BasisError(
            f"prior {maker.name!r}: {maker.value} failed with {type(error).__name__}: "
            f"{one_line(error)}"
        ) from error
    if not isinstance(prior, Prior):
        raise BasisError(f"prior {maker.name!r}: {maker.value} did not return a Prior")
    return prior
