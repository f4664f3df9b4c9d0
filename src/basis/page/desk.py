"""What lies before one visitor: the sources that were chosen, and the run."""

from __future__ import annotations

import html
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.page.line import Ticket
from basis.page.markup import picture_url
from basis.page.run import Run
from basis.page.uploads import Picture, sample_picture, samples

MOST = 4
"""Sources that can be mixed."""
_SHELF = 30  # pictures that are offered at once


@dataclass
class Desk:
    """One visitor's own state of a tab.

    Attributes:
        name: The data set that pictures are offered from.
        slots: The sources, `MOST` of them; those beyond the number in use wait.
        active: The slot that is filled next.
        shelf: Which pictures are offered.
        run: The separation at work or done.
        ticket: The place in line.
        mask: What is painted over, (1, height, width), ones where the photo is seen.
        under: The photo that the mask belongs to, as a data URL.
        told: What the visitor was last told of an upload or a drawing.
        key: A name of its own, for files.
    """

    name: str
    slots: list[Picture] = field(repr=False)
    active: int = 0
    shelf: int = 0
    run: Run | None = None
    ticket: Ticket | None = None
    mask: Tensor | None = None
    under: str = ""
    told: str = ""
    key: str = field(default_factory=lambda: secrets.token_hex(8))

    def put(self, picture: Picture, slots: int) -> None:
        """Fills the active slot and goes on to the next."""
        self.slots[self.active] = picture
        self.active = (self.active + 1) % slots
        self.told = ""

    def offered(self) -> list[int]:
        """The numbers of the pictures on offer."""
        return offers(self.name, self.shelf)


def new_desk(name: str, indices: Sequence[int]) -> Desk:
    """A desk with sources on it, so that the first press of the button has something to do."""
    return Desk(name, [sample_picture(name, i) for i in indices])


@lru_cache(maxsize=64)
def offers(name: str, shelf: int) -> list[int]:
    """So many of a data set's pictures; digits in order of their class."""
    images = samples(name)
    count = len(images)
    start = shelf * _SHELF % count
    chosen = [(start + i) % count for i in range(_SHELF)]
    if name == "sample" and images.labels is not None:
        # As many of each digit, from another place on every shelf.
        own = [(images.labels == digit).nonzero().flatten().tolist() for digit in range(10)]
        rows = range(shelf * (_SHELF // 10), (shelf + 1) * (_SHELF // 10))
        chosen = [group[i % len(group)] for i in rows for group in own]
    return chosen


def shelf_view(desk: Desk) -> str:
    """The pictures on offer, each a button."""
    images = samples(desk.name)
    buttons = []
    for place, index in enumerate(desk.offered()):
        shown = sample_picture(desk.name, index)
        url = picture_url(images.images[index])
        buttons.append(
            f'<button type="button" data-index="{place}" title="{html.escape(shown.label)}" '
            f'aria-label="{html.escape(shown.label)}"><img src="{url}" alt=""></button>'
        )
    return f'<div class="shelf">{"".join(buttons)}</div>'


CLICKS = """
element.addEventListener('click', e => {
  const button = e.target.closest('button[data-index]');
  if (button) trigger('click', {index: +button.dataset.index});
});
"""
"""Script of an HTML block whose buttons carry numbers."""


def mixed(desk: Desk, alphas: Sequence[float]) -> tuple[Tensor, Tensor]:
    """The sources, (1, k, channels, height, width), and their mixture."""
    chosen = desk.slots[: len(alphas)]
    if len({p.image.shape for p in chosen}) > 1:
        raise BasisError("the pictures have different sizes: choose them again at one size")
    sources = torch.stack([p.image for p in chosen])[None]
    return sources, mixture(tuple(alphas))(sources)


def equation_view(desk: Desk, alphas: Sequence[float]) -> str:
    """The sum as a picture: weight times source plus weight times source is the mixture.

    Sources are buttons that choose which of them is filled next.
    """
    _, total = mixed(desk, alphas)
    top = max(1.0, total.max().item())
    parts = []
    for i, (alpha, chosen) in enumerate(zip(alphas, desk.slots, strict=False)):
        pressed = "true" if i == desk.active else "false"
        words = f"source {i + 1}: {chosen.label}"
        parts.append(
            f'<div class="term"><span class="weight">{alpha:g} ×</span>'
            f'<button type="button" data-index="{i}" aria-pressed="{pressed}" '
            f'aria-label="{html.escape(words)}; choose another">'
            f'<img src="{picture_url(chosen.image)}" alt="{html.escape(words)}"></button>'
            f'<span class="caption">{html.escape(chosen.label)}</span></div>'
        )
    sign = '<span class="sign" aria-hidden="true">+</span>'
    result = (
        f'<span class="sign" aria-hidden="true">=</span><div class="term sum"><span class="weight">'
        f'the mixture</span><img src="{picture_url(total[0] / top)}" alt="the mixture">'
        f'<span class="caption">{_reach(total.max().item())}</span></div>'
    )
    told = f'<p class="told" role="status">{html.escape(desk.told)}</p>' if desk.told else ""
    return f'<div class="equation">{sign.join(parts)}{result}</div>{told}'


def _reach(top: float) -> str:
    return f"brightest {top:.2f}"
