"""The page: a tab for digits and a tab for photos. Importing this module needs Gradio."""

from __future__ import annotations

from typing import Any

import gradio as gr
from torch import Tensor

from basis._mix import mix
from basis.errors import BasisError
from basis.page import images
from basis.page.app import QUIET, Chosen, Shared, Tab
from basis.page.events import logged
from basis.page.images import Picture
from basis.page.task import Task
from basis.page.views import equation_view, picture, picture_url, sentence
from basis.signals.observation import Observation

_INTRODUCTION = """
<h1>Source separation with deep generative priors</h1>
<p>Mix digits or photos, or remove the color or a part of a photo, and watch the sources being
found. Everything is computed on the computer that serves this page.</p>
"""
_CONCEPTS = """
- **Prior**: what a source looks like. A network that has seen many digits (or photos) but never a
  mixture. Given a noisy picture it estimates the clean one.
- **Mixing**: how the sources became what you see. Each is multiplied by its alpha, and they are
  added up. A grey photo and a photo with a hole are mixings too.
- **Sampler**: how the sources are found. It starts from noise and lowers the noise level step by
  step, so that the sources look right to the prior and add up to the mixture.
"""
_NOTHING_MARKED = "nothing is marked yet: brush over the part to fill in"


def build_page(shared: Shared) -> gr.Blocks:
    """The page."""
    with gr.Blocks(
        title="basis: source separation", analytics_enabled=False, delete_cache=(600, 3600)
    ) as page:
        gr.HTML(_INTRODUCTION)
        with gr.Accordion("Three concepts", open=True):
            gr.Markdown(_CONCEPTS)
        with gr.Tabs():
            for tab in (DigitsTab(shared), PhotosTab(shared)):
                with gr.Tab(tab.title, id=tab.name):
                    tab.build()
    for event in page.fns.values():
        if event.fn is not None:
            event.fn = logged(event.fn)
    page.queue(max_size=shared.limits.waiting, status_update_rate=1)
    return page


class DigitsTab(Tab):
    """Two to four digits, which are picked, drawn or uploaded, mixed and separated."""

    name, title, samples = "digits", "Digits", "sample"
    first, priors = (3, 18, 8, 61), ("mnist", "mnist-glow")
    initial = (2, 1.0, 1.0, 1.0, 1.0)

    def build_inputs(self) -> None:
        gr.HTML("<h2>1. Choose the sources</h2>")
        digits = gr.Radio([2, 3, 4], value=2, label="Digits", elem_id="digits-count")
        draw = "Draw with mouse, finger or keyboard (arrow keys and space)."
        self.build_sources("Dark ink on light paper is inverted.", draw)
        gr.HTML("<h2>2. Mix them</h2>")
        self.build_equation(4, 1.0)
        self.inputs = [digits, *self.alphas]
        self.shown = [self.state, self.equation]
        asked = [self.state, *self.inputs]
        self.pad.submit(self._draw, asked, self.shown, **QUIET)
        digits.change(self._change_count, asked, [*self.shown, *self.alphas], **QUIET)

    def count(self, *values: Any) -> int:
        return int(values[0])

    def accept(self, image: Tensor) -> Tensor:
        return images.as_digit(image)

    def view(self, chosen: Chosen, *values: Any) -> str:
        count, *alphas = values
        return equation_view(chosen.pictures[:count], alphas[:count], chosen.active)

    def task(self, chosen: Chosen, *values: Any) -> Task:
        count, *alphas = values
        sources = [picture.image for picture in chosen.pictures[:count]]
        return Task("separate", mix(sources, [float(a) for a in alphas[:count]]))

    def _draw(self, chosen: Chosen, event: gr.EventData, *values: Any) -> list[Any]:
        try:
            digit = images.as_digit(images.read_strokes(event.png))
            # The next stroke belongs to the same digit, so the source stays active.
            chosen.pictures[chosen.active], chosen.message = Picture(digit, "drawn"), ""
        except BasisError as error:
            chosen.message = sentence(error)
        return self.show(chosen, *values)

    def _change_count(self, chosen: Chosen, *values: Any) -> list[Any]:
        count = self.count(*values)
        chosen.active = min(chosen.active, count - 1)
        visible = [gr.update(visible=i < count) for i in range(len(self.alphas))]
        return [*self.show(chosen, *values), *visible]


class PhotosTab(Tab):
    """Separate two photos, colorize one, or fill in what is brushed over."""

    name, title, samples = "photos", "Photos", "sample-photos"
    first, priors = (4, 13), ("cifar10", "cifar10-glow")
    initial = ("separate", 32, 0.5, 0.5)
    kinds = (
        ("Separate two photos", "separate"),
        ("Colorize a photo", "colorize"),
        ("Fill in a part of a photo", "inpaint"),
    )

    def build_inputs(self) -> None:
        kinds = list(self.kinds)
        kind = gr.Radio(kinds, value="separate", label="What to do", elem_id="photos-kind")
        gr.HTML("<h2>1. Choose the photos</h2>")
        self.build_sources(
            "A photo of any size can be colorized; otherwise its central square is made small."
        )
        info = "The prior was trained on 32 pixels. Larger photos are slower."
        size = gr.Radio([32, 48, self.limits.side], value=32, label="Size in pixels", info=info)
        gr.HTML("<h2>2. What is observed</h2>")
        self.build_equation(2, 0.5)
        with gr.Column(visible=False) as brush:
            self.pad = self.build_canvas("Brush over the part to fill in.", "#f0f", 0.12)
            gr.Markdown("Brush over the part to fill in.")
        self.inputs = [kind, size, *self.alphas]
        self.shown = [self.state, self.equation, self.pad]
        asked, depending = [self.state, *self.inputs], [*self.alphas, self.unknown, brush, size]
        kind.change(self._change_kind, asked, [*self.shown, *depending], **QUIET)
        size.change(self.show, asked, self.shown, **QUIET)
        self.pad.submit(self._brush, [self.state, size], [self.state], **QUIET)
        self.pad.clear(self._clear, [self.state], [self.state], **QUIET)

    def count(self, *values: Any) -> int:
        return 2 if values[0] == "separate" else 1

    def accept(self, image: Tensor) -> Tensor:
        return image

    def _squares(self, chosen: Chosen, size: int) -> list[Picture]:
        return [Picture(images.as_square(p.image, int(size), 3), p.label) for p in chosen.pictures]

    def view(self, chosen: Chosen, *values: Any) -> str:
        kind, size, *alphas = values
        if kind == "separate":
            return equation_view(self._squares(chosen, size), alphas, chosen.active)
        if kind == "inpaint":
            return ""
        photo = images.at_most(chosen.pictures[0].image, 256)
        grey = photo.mean(dim=0, keepdim=True)
        label = chosen.pictures[0].label
        both = picture(photo, label, label) + picture(grey, "grey", "its grey values: observed")
        return f'<div class="pics">{both}</div>'

    def task(self, chosen: Chosen, *values: Any) -> Task:
        kind, size, *alphas = values
        squares = [picture.image for picture in self._squares(chosen, size)]
        if kind == "separate":
            return Task(kind, mix(squares, [float(a) for a in alphas]))
        if kind == "inpaint":
            if chosen.mask is None:
                raise BasisError(_NOTHING_MARKED)
            return Task(kind, Observation(squares[0][None], batched=True), mask=chosen.mask)
        photo = images.at_most(chosen.pictures[0].image, self.limits.color_side)
        grey = images.in_bytes(photo.mean(dim=0, keepdim=True))
        return Task(kind, Observation(grey[None], batched=True))

    def show(self, chosen: Chosen, *values: Any) -> list[Any]:
        photo = picture_url(self._squares(chosen, values[1])[0].image)
        if photo != chosen.photo:
            chosen.photo, chosen.mask = photo, None
        return [*super().show(chosen, *values), photo]

    def _change_kind(self, chosen: Chosen, *values: Any) -> list[Any]:
        chosen.active, kind = 0, values[0]
        visible = [kind == "separate"] * 3 + [kind == "inpaint", kind != "colorize"]
        return [*self.show(chosen, *values), *(gr.update(visible=one) for one in visible)]

    def _brush(self, chosen: Chosen, event: gr.EventData, size: int) -> Chosen:
        try:
            strokes = images.as_square(images.read_strokes(event.png), int(size), 1)
            chosen.mask = (strokes < 0.25).float()
        except BasisError:
            chosen.mask = None
        return chosen

    def _clear(self, chosen: Chosen) -> Chosen:
        chosen.mask = None
        return chosen
