"""The tab of photos: separate two, colourise one, fill in what is brushed over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from basis.errors import BasisError
from basis.page.canvas import canvas
from basis.page.desk import CLICKS, Desk, equation_view, mixed, new_desk, shelf_view
from basis.page.digits_tab import METHODS
from basis.page.events import with_event
from basis.page.markup import notice, picture, picture_url, row
from basis.page.pane import Pane
from basis.page.task import Kind, Task, Way
from basis.page.uploads import (
    Picture,
    as_square,
    at_most,
    decode_canvas,
    in_bytes,
    read_upload,
    sample_picture,
)
from basis.page.work import Work

_KINDS = [
    ("Separate two photos", "separate"),
    ("Colourise one", "colorize"),
    ("Fill in a hole", "inpaint"),
]
_VERBS = {"separate": "Separate", "colorize": "Colourise", "inpaint": "Fill in"}
_FIRST = (4, 13, 1, 7)  # photos on the desk of a new visitor
_TOUCHED = 0.25  # share of a pixel under the brush that counts as painted over


def build(work: Work) -> None:
    """Lays out the tab and connects it."""
    import gradio as gr

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    start = new_desk("sample-photos", _FIRST)
    desk = gr.State(start)
    pane = Pane(work, "photos", ["cifar10", "cifar10-glow"], METHODS)
    with gr.Row():
        with gr.Column(scale=5, min_width=320):
            kind = gr.Radio(_KINDS, value="separate", label="What to do", elem_id="photos-kind")
            gr.HTML("<h2>1 · Choose</h2>")
            with gr.Tabs():
                with gr.Tab("Pick"):
                    shelf = gr.HTML(shelf_view(start), js_on_load=CLICKS, elem_id="photos-shelf")
                    more = gr.Button("Other photos", size="sm")
                with gr.Tab("Upload"):
                    upload = gr.File(label="A photo", elem_id="photos-upload")
                    gr.HTML(
                        f'<p class="hint">PNG, JPEG, WebP, BMP or TIFF, up to '
                        f"{work.limits.megabytes:g} MB. Colours are put on a photo of any size; "
                        "to separate or fill in, its middle is cut out and made small.</p>"
                    )
            size = gr.Radio(
                [32, 48, work.limits.side], value=32, label="Size in pixels",
                info="The prior knows photos of 32 pixels; larger ones go through tiles, slower.",
            )  # fmt: skip
            gr.HTML("<h2>2 · What the separation sees</h2>")
            view = gr.HTML(
                _view(start, "separate", 32, (0.5, 0.5)), js_on_load=CLICKS,
                elem_id="photos-equation",
            )  # fmt: skip
            with gr.Row():
                sliders = [
                    gr.Slider(
                        0, 1, 0.5, step=0.05, label=f"Weight {i + 1}", min_width=150,
                        elem_id=f"photos-weight{i + 1}",
                    )
                    for i in range(2)
                ]  # fmt: skip
            unknown = gr.Checkbox(
                label="Weights unknown: they are estimated with the photos",
                elem_id="photos-unknown",
            )
            with gr.Column(visible=False) as brush:
                pad = canvas(
                    "Brush over what is to be filled in.", elem_id="photos-pad",
                    ink="#f0f", brush=0.12,
                )  # fmt: skip
                gr.HTML('<p class="hint">Brush over what is to be filled in.</p>')
        with gr.Column(scale=7, min_width=320):
            gr.HTML("<h2>3 · Pull it apart</h2>")
            pane.build_controls()
            pane.build_results()
            pane.build_comparison()

    own = [kind, size, *sliders]
    shown = [desk, view, pad]

    def drawn(desk: Desk, kind: Kind, size: int, *weights: float) -> list[Any]:
        url = picture_url(_square(desk.slots[0], size))
        if url != desk.under:
            desk.under, desk.mask = url, None
        return [desk, _view(desk, kind, size, weights), url]

    def pick(desk: Desk, kind: Kind, size: int, *weights: float, event: Any) -> list[Any]:
        place = int(event.index)
        if 0 <= place < len(desk.offered()):
            desk.put(sample_picture("sample-photos", desk.offered()[place]), _count(kind))
        return drawn(desk, kind, size, *weights)

    def choose(desk: Desk, kind: Kind, size: int, *weights: float, event: Any) -> list[Any]:
        desk.active = min(max(int(event.index), 0), _count(kind) - 1)
        return drawn(desk, kind, size, *weights)

    def uploaded(desk: Desk, file: str | None, kind: Kind, *values: float) -> list[Any]:
        if file is not None:
            try:
                desk.put(Picture(read_upload(file, work.limits), "uploaded"), _count(kind))
            except BasisError as error:
                text = str(error)
                desk.told = text[:1].upper() + text[1:]
        return drawn(desk, kind, int(values[0]), *values[1:])

    def turned(desk: Desk, kind: Kind, *values: float) -> list[Any]:
        desk.active = 0
        one = kind != "separate"
        return [
            *drawn(desk, kind, int(values[0]), *values[1:]),
            *(gr.update(visible=not one) for _ in (*sliders, unknown)),
            gr.update(visible=kind == "inpaint"),
            gr.update(visible=kind != "colorize"),
            gr.update(value=_VERBS[kind]),
        ]

    def brushed(desk: Desk, size: int, event: Any) -> Desk:
        painted = as_square(decode_canvas(event.png, work.limits), int(size), 1)
        desk.mask = (painted < _TOUCHED).float()
        return desk

    def wiped(desk: Desk) -> Desk:
        desk.mask = None
        return desk

    def turn(desk: Desk) -> tuple[Desk, str]:
        desk.shelf += 1
        return desk, shelf_view(desk)

    shelf.click(with_event(pick, "index"), [desk, *own], shown, **quiet)
    view.click(with_event(choose, "index"), [desk, *own], shown, **quiet)
    upload.upload(uploaded, [desk, upload, *own], shown, **quiet)
    more.click(turn, [desk], [desk, shelf], **quiet)
    kind.change(turned, [desk, *own], [*shown, *sliders, unknown, brush, size, pane.go], **quiet)
    size.change(drawn, [desk, *own], shown, **quiet)
    pad.submit(with_event(brushed, "png"), [desk, size], [desk], **quiet)
    pad.clear(wiped, [desk], [desk], **quiet)
    for slider in sliders:
        slider.input(drawn, [desk, *own], shown, trigger_mode="always_last", **quiet)

    def ask(
        desk: Desk, way: Way, seed: int, unknown: bool, kind: Kind, size: int, *weights: float
    ) -> Task:
        asked = _task(desk, way, seed, kind, int(size), weights, work)
        return replace(asked, told=not unknown or kind != "separate")

    pane.wire(desk, [unknown, *own], ask)


def _task(
    desk: Desk, way: Way, seed: int, kind: Kind, size: int, weights: tuple[float, ...], work: Work
) -> Task:
    """What is asked for."""
    if kind == "colorize":
        photo = at_most(desk.slots[0].image, work.limits.colour_side)
        return Task(kind, in_bytes(photo.mean(dim=0, keepdim=True))[None], (1.0,), way, seed)
    if kind == "inpaint":
        if desk.mask is None:
            raise BasisError("nothing is brushed over yet: brush over what is to be filled in")
        photo = _square(desk.slots[0], size)
        return Task(kind, photo[None], (1.0,), way, seed, mask=desk.mask)
    alphas = tuple(float(w) for w in weights)
    sources, observed = mixed(_sized(desk, size), alphas)
    references = tuple(p.reference if size == 32 else None for p in desk.slots[:2])
    return Task(kind, observed, alphas, way, seed, sources, references)


def _count(kind: Kind) -> int:
    return 2 if kind == "separate" else 1


def _square(chosen: Picture, size: int) -> Tensor:
    return as_square(chosen.image, int(size), 3)


def _sized(desk: Desk, size: int) -> Desk:
    """The desk with its photos at the size that they are separated at."""
    slots = [Picture(_square(p, size), p.label, p.reference) for p in desk.slots[:2]]
    return Desk(desk.name, slots, desk.active, told=desk.told)


def _view(desk: Desk, kind: str, size: int, weights: tuple[float, ...]) -> str:
    """What the separation will see, and what it is not shown."""
    if kind == "separate":
        return equation_view(_sized(desk, size), weights)
    told = notice(desk.told, "bad") if desk.told else ""
    chosen = desk.slots[0]
    if kind == "inpaint":
        return told
    photo = at_most(chosen.image, 256)
    both = [
        picture(photo, f"the photo: {chosen.label}", chosen.label),
        picture(photo.mean(dim=0, keepdim=True), "its grey", "its grey: all that is seen"),
    ]
    return told + row(both, "seen")
