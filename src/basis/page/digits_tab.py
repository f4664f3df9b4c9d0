"""The tab of digits: pick, draw or upload two to four, slide their weights, pull them apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from basis.errors import BasisError
from basis.page.canvas import canvas
from basis.page.desk import CLICKS, MOST, Desk, equation_view, mixed, new_desk, shelf_view
from basis.page.events import with_event
from basis.page.pane import Pane
from basis.page.task import Task, Way
from basis.page.uploads import Picture, as_digit, decode_canvas, read_upload
from basis.page.work import Work

METHODS = [
    ("fast: a quick search (effort)", "fast"),
    ("balanced: a longer search (effort)", "balanced"),
    ("best: the longest search (effort)", "best"),
    ("gibbs: split Gibbs, then Langevin (sampler)", "gibbs"),
    ("langevin: preconditioned Langevin (sampler)", "langevin"),
    ("ancestral: as diffusion models are sampled (sampler)", "ancestral"),
    ("posterior-sde: means and fresh noise (sampler)", "posterior-sde"),
    ("posterior-ode: deterministic flow (sampler)", "posterior-ode"),
    ("dirac: the last source is what is left (sampler)", "dirac"),
    ("basis: the paper's, 1,000 steps (sampler)", "basis"),
]
_FIRST = (3, 18, 8, 61)  # digits on the desk of a new visitor


def build(work: Work) -> None:
    """Lays out the tab and connects it."""
    import gradio as gr

    quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
    start = new_desk("sample", _FIRST)
    desk = gr.State(start)
    pane = Pane(work, "digits", ["mnist", "mnist-glow", "mnist-vae"], METHODS)
    with gr.Row():
        with gr.Column(scale=5, min_width=320):
            gr.HTML("<h2>1 · Choose the sources</h2>")
            count = gr.Radio([2, 3, 4], value=2, label="How many digits", elem_id="digits-count")
            with gr.Tabs():
                with gr.Tab("Pick"):
                    shelf = gr.HTML(shelf_view(start), js_on_load=CLICKS, elem_id="digits-shelf")
                    more = gr.Button("Other digits", size="sm")
                with gr.Tab("Draw"):
                    pad = canvas("Draw a digit.", elem_id="digits-pad", ink="white", brush=0.085)
                    gr.HTML(
                        '<p class="hint">Draw with mouse, finger or keyboard: it becomes the '
                        "chosen source as you lift the brush, centred and sized as the prior "
                        "knows digits.</p>"
                    )
                with gr.Tab("Upload"):
                    upload = gr.File(label="A picture of one digit", elem_id="digits-upload")
                    gr.HTML(
                        f'<p class="hint">PNG, JPEG, WebP, BMP or TIFF, up to '
                        f"{work.limits.megabytes:g} MB. Dark ink on light paper is turned "
                        "round.</p>"
                    )
            gr.HTML("<h2>2 · Mix them</h2>")
            equation = gr.HTML(
                equation_view(start, (1.0, 1.0)), js_on_load=CLICKS, elem_id="digits-equation"
            )
            with gr.Row():
                sliders = [
                    gr.Slider(
                        0, 1, 1.0, step=0.05, label=f"Weight {i + 1}", visible=i < 2,
                        min_width=150, elem_id=f"digits-weight{i + 1}",
                    )
                    for i in range(MOST)
                ]  # fmt: skip
            unknown = gr.Checkbox(
                label="Weights unknown: they are estimated with the sources",
                elem_id="digits-unknown",
            )
        with gr.Column(scale=7, min_width=320):
            gr.HTML("<h2>3 · Pull them apart</h2>")
            pane.build_controls()
            pane.build_results()
            pane.build_comparison()

    own = [count, *sliders]
    shown = [desk, equation]

    def drawn(desk: Desk, count: int, *weights: float) -> tuple[Desk, str]:
        return desk, equation_view(desk, weights[:count])

    def pick(desk: Desk, count: int, *weights: float, event: Any) -> tuple[Desk, str]:
        place = int(event.index)
        if 0 <= place < len(desk.offered()):
            from basis.page.uploads import sample_picture

            desk.put(sample_picture("sample", desk.offered()[place]), count)
        return drawn(desk, count, *weights)

    def choose(desk: Desk, count: int, *weights: float, event: Any) -> tuple[Desk, str]:
        desk.active = min(max(int(event.index), 0), count - 1)
        return drawn(desk, count, *weights)

    def draw(desk: Desk, count: int, *weights: float, event: Any) -> tuple[Desk, str]:
        return _put(
            desk, count, weights, lambda: as_digit(decode_canvas(event.png, work.limits)), "drawn"
        )

    def uploaded(desk: Desk, file: str | None, count: int, *weights: float) -> tuple[Desk, str]:
        if file is None:
            return drawn(desk, count, *weights)
        digit = _put(
            desk, count, weights, lambda: as_digit(read_upload(file, work.limits)), "uploaded"
        )
        if not desk.told:
            desk.active = (desk.active + 1) % count
            return drawn(desk, count, *weights)
        return digit

    def counted(desk: Desk, count: int, *weights: float) -> list[Any]:
        desk.active = min(desk.active, count - 1)
        visible = [gr.update(visible=i < count) for i in range(MOST)]
        return [*drawn(desk, count, *weights), *visible]

    def turn(desk: Desk) -> tuple[Desk, str]:
        desk.shelf += 1
        return desk, shelf_view(desk)

    shelf.click(with_event(pick, "index"), [desk, *own], shown, **quiet)
    equation.click(with_event(choose, "index"), [desk, *own], shown, **quiet)
    pad.submit(with_event(draw, "png"), [desk, *own], shown, **quiet)
    upload.upload(uploaded, [desk, upload, *own], shown, **quiet)
    more.click(turn, [desk], [desk, shelf], **quiet)
    count.change(counted, [desk, *own], [*shown, *sliders], **quiet)
    for slider in sliders:
        slider.input(drawn, [desk, *own], shown, trigger_mode="always_last", **quiet)

    def ask(desk: Desk, way: Way, seed: int, unknown: bool, count: int, *weights: float) -> Task:
        alphas = tuple(float(w) for w in weights[:count])
        sources, observed = mixed(desk, alphas)
        references = tuple(p.reference for p in desk.slots[:count])
        told = not unknown
        return Task("separate", observed, alphas, way, seed, sources, references, told=told)

    pane.wire(desk, [unknown, *own], ask)


def _put(
    desk: Desk, count: int, weights: tuple[float, ...], make: Callable[[], Any], label: str
) -> tuple[Desk, str]:
    """Puts a digit that was brought into the active slot, or says why it cannot be."""
    try:
        desk.slots[desk.active] = Picture(make(), label)
        desk.told = ""
    except BasisError as error:
        text = str(error)
        desk.told = text[:1].upper() + text[1:]
    return desk, equation_view(desk, weights[:count])
