"""The page: a tab for digits and a tab for photos. Importing this module needs Gradio."""

from __future__ import annotations

from typing import Any

import gradio as gr
from torch import Tensor

from basis.errors import BasisError
from basis.page import images
from basis.page.app import Tab
from basis.page.events import logged
from basis.page.forms import QUIET, Chosen, Form, Shared
from basis.page.images import Picture
from basis.page.task import Task
from basis.page.views import picture, picture_url, sentence
from basis.signals.observation import Observation

_INTRODUCTION = """
<h1>Source separation with deep generative priors</h1>
<p>Mix digits or photos or upload a mixture, or remove the color or a part of a photo, and watch
the sources being found. Everything is computed on the computer that serves this page.</p>
"""
_CONCEPTS = """
- **Prior**: what a source looks like. A network that has seen many digits (or photos) but never a
  mixture. Given a noisy picture it estimates the clean one.
- **Mixing**: how the sources became what you see. Each is multiplied by its alpha, and they are
  added up. A grey photo and a photo with a hole are mixings too.
- **Sampler**: how the sources are found. It starts from noise and lowers the noise level step by
  step, so that the sources look right to the prior and add up to the mixture.
"""


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

    name, title, samples, prior = "digits", "Digits", "sample", "mnist"
    first, channels, alpha, estimate = (3, 18, 8, 61), 1, 1.0, "mode"
    hint = "Dark ink on light paper is inverted."
    kinds = (("Separate digits mixed here", "mix"), ("Separate a mixture of mine", "mine"))
    sized = ("mine",)

    def accept(self, image: Tensor) -> Tensor:
        return images.as_digit(image)

    def build_drawing(self) -> None:
        with gr.Tab("Draw"):
            words = "Draw a digit with mouse, finger or keyboard (arrow keys and space)."
            self.build_canvas(words, "white", 0.085)

    def connect(self) -> None:
        super().connect()
        self.pad.submit(self._draw, self.asked, self.shown, **QUIET)

    def _draw(self, chosen: Chosen, event: gr.EventData, *values: Any) -> dict[Any, Any]:
        try:
            digit = images.as_digit(images.read_strokes(event.png))
            # The next stroke belongs to the same digit, so the source stays active.
            chosen.pictures[chosen.active], chosen.message = Picture(digit, "drawn"), ""
        except BasisError as error:
            chosen.message = sentence(error)
        return self.show(chosen, Form.of(values))


class PhotosTab(Tab):
    """Separate two or three photos, colorize one, or fill in what is brushed over."""

    name, title, samples, prior = "photos", "Photos", "sample-photos", "cifar10"
    first, channels, alpha = (4, 13, 27), 3, 0.5
    # With 200 evaluations, the mean PSNR of the 64 pairs of
    # basis.test_mixtures("sample-photos", 64, seed=0) is 16.33 dB for "mean", 15.89 dB for "mode",
    # 15.53 dB for "sample"; the command is in docs/page.md.
    estimate = "mean"
    hint = "A photo of any size can be colorized; otherwise its central square is made small."
    kinds = (
        ("Separate photos mixed here", "mix"),
        ("Separate a mixture of mine", "mine"),
        ("Colorize a photo", "colorize"),
        ("Fill in a part of a photo", "inpaint"),
    )
    sized = ("mix", "mine", "inpaint")

    def build_brush(self) -> None:
        with gr.Column(visible=False) as self.brush:
            self.build_canvas("Brush over the part to fill in.", "#f0f", 0.12)
        self.depending = (self.pad, self.brush)

    def connect(self) -> None:
        super().connect()
        # Not the canvas, which would lose its strokes.
        outputs = [part for part in self.shown if part is not self.pad]
        self.pad.submit(self._brush, self.asked, outputs, **QUIET)
        self.pad.clear(self._clear, self.asked, outputs, **QUIET)

    def visible(self, form: Form) -> dict[Any, bool]:
        return {**super().visible(form), self.brush: form.kind == "inpaint"}

    def view(self, chosen: Chosen, form: Form) -> str:
        if form.is_sum:
            return super().view(chosen, form)
        if form.kind == "inpaint":
            return ""
        photo = images.at_most(chosen.pictures[0].image, 256)
        grey = photo.mean(dim=0, keepdim=True)
        label = chosen.pictures[0].label
        both = picture(photo, label, label) + picture(grey, "grey", "its grey values: observed")
        return f'<div class="pics">{both}</div>'

    def task(self, chosen: Chosen, form: Form) -> Task:
        if form.is_sum:
            return super().task(chosen, form)
        settings = self.settings(form)
        if form.kind == "inpaint":
            square = Observation(self.squares(chosen, form)[0].image[None], batched=True)
            return Task("inpaint", square, mask=chosen.mask, **settings)
        least = self.sides[form.prior]
        photo = images.at_most(chosen.pictures[0].image, max(self.limits.color_side, least), least)
        grey = images.in_bytes(photo.mean(dim=0, keepdim=True))
        return Task("colorize", Observation(grey[None], batched=True), **settings)

    def show(self, chosen: Chosen, form: Form) -> dict[Any, Any]:
        photo = picture_url(self.squares(chosen, form)[0].image)
        if photo != chosen.photo:
            chosen.photo, chosen.mask = photo, None
        return {**super().show(chosen, form), self.pad: photo}

    def _brush(self, chosen: Chosen, event: gr.EventData, *values: Any) -> dict[Any, Any]:
        form = Form.of(values)
        try:
            strokes = images.as_square(images.read_strokes(event.png), self.side(form), 1)
            chosen.mask = (strokes < 0.25).float()
        except BasisError:
            chosen.mask = None
        return super().show(chosen, form)

    def _clear(self, chosen: Chosen, *values: Any) -> dict[Any, Any]:
        chosen.mask = None
        return super().show(chosen, Form.of(values))
