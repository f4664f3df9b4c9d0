"""What can be chosen in a tab, what a visitor has chosen, and what all share. Needs Gradio."""

from __future__ import annotations

import re
import tempfile
import threading
from dataclasses import dataclass, field
from typing import Any

from gradio.processing_utils import save_file_to_cache
from gradio.utils import get_upload_folder
from torch import Tensor

from basis.page.access import Limits, Visitors
from basis.page.images import Picture
from basis.page.task import Run
from basis.page.views import notice
from basis.priors.card import Card
from basis.settings import Estimate
from basis.store.loading import list_priors

METHODS = [
    ("fast: a short search", "fast"),
    ("balanced: a longer search", "balanced"),
    ("best: the longest search", "best"),
    ("gibbs: split Gibbs sampler, then Langevin", "gibbs"),
    ("langevin: preconditioned Langevin sampler", "langevin"),
    ("ancestral: ancestral sampling of diffusion models", "ancestral"),
    ("dirac: the last source is the remainder", "dirac"),
    ("basis: the sampler of the paper, 1,000 steps", "basis"),
]
ESTIMATES = [
    ("mode: the most probable sources found", "mode"),
    ("mean of the posterior: closest to the truth, but smooth", "mean"),
    ("sample of the posterior: as sharp as the prior's signals", "sample"),
]
_NAME = re.compile(r"[\w.-]+")  # also safe in code and commands
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}
"""Options of events that are quick."""


@dataclass(frozen=True)
class Shared:
    """What all visitors share.

    Attributes:
        limits: What visitors may ask for.
        visitors: Who may fetch which file.
        slots: As many as separations may run at the same time.
        threads: Threads of torch for each of them.
    """

    limits: Limits
    visitors: Visitors
    slots: threading.Semaphore
    threads: int

    def save(self, run: Run, session: str | None) -> list[str]:
        """Writes the files of a result to Gradio's cache and lets the visitor fetch them."""
        assert run.result is not None
        cache = get_upload_folder()
        with tempfile.TemporaryDirectory(prefix="basis-page-") as name:
            folder = run.result.save(name)
            run.task.save_inputs(folder)
            paths = [str(save_file_to_cache(path, cache)) for path in sorted(folder.iterdir())]
        for path in paths:
            self.visitors.give(path, self.visitors.of_session(session))
        return paths


@dataclass
class Chosen:
    """What one visitor has chosen in a tab.

    Attributes:
        pictures: The sources; those beyond the number in use are kept for later.
        active: The source that is replaced next.
        page: The page of samples that is shown.
        message: What was wrong with the last upload or drawing.
        mixture: The uploaded mixture.
        mask: Where the photo is kept (1) or filled in (0), (1, height, width).
        photo: The photo that the mask belongs to, as a data URL.
        run: The last separation, unless its inputs have changed.
        ready: The status before a separation.
    """

    pictures: list[Picture] = field(repr=False)
    active: int = 0
    page: int = 0
    message: str = ""
    mixture: Tensor | None = field(default=None, repr=False)
    mask: Tensor | None = None
    photo: str = ""
    run: Run | None = None
    ready: str = notice("Press the button to start.")


@dataclass(frozen=True)
class Form:
    """The values of a tab's controls.

    Attributes:
        kind: "mix" pictures on the page, separate a mixture of "mine", or "colorize" or "inpaint"
            a photo.
        count: The number of sources of a sum.
        size: The longest side of pictures, in pixels.
        method, prior, estimate, samples, seed: As in `Task`.
        unknown: Whether the alphas are estimated.
        alphas: The coefficients, also of sources that are not in use.
    """

    kind: str
    count: int
    size: int
    method: str
    prior: str
    estimate: Estimate
    samples: int
    seed: int | None
    unknown: bool
    alphas: tuple[float, ...]

    @classmethod
    def of(cls, values: tuple[Any, ...]) -> Form:
        """The form from the values of `Tab.controls`."""
        return cls(*[*values[:9], tuple(float(a) for a in values[9:])])

    @property
    def is_sum(self) -> bool:
        """Whether sources are added up."""
        return self.kind in ("mix", "mine")

    @property
    def pictures(self) -> int:
        """The number of pictures that are chosen."""
        return self.count if self.kind == "mix" else 1


def fitting_priors(channels: int, largest: int) -> dict[str, Card]:
    """The cards of the shipped and own priors of square pictures with values from 0 to 1.

    Args:
        channels: 1 for grey pictures, 3 for color.
        largest: The largest side.
    """
    found = {}
    for entry in list_priors():
        card = entry.card
        if card is None or card.value_range != (0.0, 1.0) or not _NAME.fullmatch(entry.name):
            continue
        side = card.shape[-1]
        if card.shape == (channels, side, side) and side <= largest:
            found[entry.name] = card
    return found
