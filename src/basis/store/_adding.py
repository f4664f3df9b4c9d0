"""Adding a prior to those below the data root, which have names."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from basis._errors import BasisError
from basis._texts import one_line, printable
from basis.data import data_root
from basis.store._card_files import CARD, read_card
from basis.store._hub import hub_name
from basis.store._loading import load_prior
from basis.store._lookup import EMBEDDED, PriorEntry, find_prior
from basis.store._saving import write_prior
from basis.store._weight_files import WEIGHTS, weights_path


def add_prior(
    source: str | Path, *, name: str | None = None, root: str | Path | None = None
) -> PriorEntry:
    """Copies a prior to the folder below the data root in which `load_prior` finds it by name.

    Args:
        source: A prior's folder, a pipeline's folder in diffusers' layout, or a name on the model
            hub (hf:owner/name@revision).
        name: What to call it; its folder's or hub name by default.
        root: The data root.

    It is loaded before it is put in place, so that whatever has a name works.
    """
    text = str(source).rstrip("/\\")
    hub = hub_name(source)
    folder = find_prior(source, root)
    called = name or (hub[0].split("/")[1] if hub else Path(text).name) or folder.name
    if not re.fullmatch(r"[\w.-]+", called) or called.startswith("."):
        raise BasisError(
            f"a prior cannot be called {called!r}: letters, digits, _, - and . will do"
        )
    place = data_root(root) / "priors"
    if (place / called).exists() or (EMBEDDED / called).exists():
        raise BasisError(f"there is a prior called {called!r} already; choose another with --name")
    prior = load_prior(folder)
    title = "@".join(hub) if hub else Path(text).name
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place, prefix=".adding-") as work:
            new = Path(work, called)
            if (folder / CARD).is_file():
                new.mkdir()
                weights = weights_path(folder, read_card(folder).sha256)
                shutil.copyfile(weights, new / WEIGHTS)
                shutil.copyfile(folder / CARD, new / CARD)
            else:
                write_prior(prior, new, name=called, title=f"converted from {printable(title)}")
            new.rename(place / called)
    except OSError as error:
        raise BasisError(f"cannot write {place}: {error.strerror or one_line(error)}") from error
    return PriorEntry(called, place / called, read_card(place / called))
