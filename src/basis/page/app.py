"""What the tabs of the page have in common. Importing this module needs Gradio."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import gradio as gr
from gradio.processing_utils import save_file_to_cache
from gradio.utils import get_upload_folder
from torch import Tensor

from basis.errors import BasisError
from basis.page import images
from basis.page.access import Limits, Visitors
from basis.page.images import Picture
from basis.page.task import Run, Task
from basis.page.views import (
    CANVAS_HTML,
    CANVAS_JS,
    CLICK_JS,
    comparison_view,
    frame_view,
    notice,
    result_view,
    samples_view,
    sentence,
)

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
_LAST_FRAME = 1000  # the range of the slider before it is known
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
        mask: Where the photo is kept (1) or filled in (0), (1, height, width).
        photo: The photo that the mask belongs to, as a data URL.
        run: The last separation.
    """

    pictures: list[Picture] = field(repr=False)
    active: int = 0
    page: int = 0
    message: str = ""
    mask: Tensor | None = None
    photo: str = ""
    run: Run | None = None


class Tab:
    """A tab: inputs on the left, controls and results on the right.

    Subclasses define the attributes and the methods up to `build`.
    """

    name: str
    title: str
    samples: str
    """The built-in images to choose from."""
    first: tuple[int, ...]
    """Those that are chosen at first."""
    priors: tuple[str, ...]
    inputs: list[Any]
    """The components whose values the methods below get."""
    initial: tuple[Any, ...]
    """Their values at first."""
    shown: list[Any]
    """The components that `show` updates."""

    def build_inputs(self) -> None:
        """Lays out the left side."""
        raise NotImplementedError

    def count(self, *values: Any) -> int:
        """The number of sources."""
        raise NotImplementedError

    def accept(self, image: Tensor) -> Tensor:
        """An uploaded picture in the form in which it is kept."""
        raise NotImplementedError

    def view(self, chosen: Chosen, *values: Any) -> str:
        """What is observed."""
        raise NotImplementedError

    def task(self, chosen: Chosen, *values: Any) -> Task:
        """What is asked for, with the default method."""
        raise NotImplementedError

    def __init__(self, shared: Shared) -> None:
        self.shared, self.limits = shared, shared.limits
        self.start = Chosen([images.sample_picture(self.samples, i) for i in self.first])

    def build(self) -> None:
        """Lays out the tab and connects its events."""
        self.state = gr.State(self.start)
        with gr.Row():
            with gr.Column(scale=5, min_width=320):
                self.build_inputs()
            with gr.Column(scale=7, min_width=320):
                self._build_controls()
                self._build_results()
                self._build_comparison()
        asked = [self.state, *self.inputs]
        self.offer.click(self._pick, asked, self.shown, **QUIET)
        self.equation.click(self._activate, asked, self.shown, **QUIET)
        self.more.click(self._turn, [self.state], [self.state, self.offer], **QUIET)
        uploaded = [self.state, self.upload, *self.inputs]
        self.upload.upload(self._upload, uploaded, self.shown, **QUIET)
        for slider in self.alphas:
            slider.input(self.show, asked, self.shown, trigger_mode="always_last", **QUIET)
        self._connect_runs()

    def html(self, part: str, value: str = "", **options: Any) -> gr.HTML:
        """A block of HTML with an id of this tab."""
        return gr.HTML(value, elem_id=f"{self.name}-{part}", **options)

    def build_sources(self, hint: str, canvas: str = "") -> None:
        """The ways to choose sources: built-in images, a canvas, an upload."""
        with gr.Tabs():
            with gr.Tab("Pick"):
                view = self._samples_view(self.start)
                self.offer = self.html("samples", view, js_on_load=CLICK_JS)
                self.more = gr.Button(f"Other {self.title.lower()}", size="sm")
            if canvas:
                with gr.Tab("Draw"):
                    self.pad = self.build_canvas("Draw a digit.", "white", 0.085)
                    gr.Markdown(canvas)
            with gr.Tab("Upload"):
                self.upload = gr.File(label="A picture", elem_id=f"{self.name}-upload")
                formats = ", ".join(images.FORMATS)
                gr.Markdown(f"{formats}; at most {self.limits.megabytes:g} MB. {hint}")

    def build_canvas(self, label: str, ink: str, brush: float) -> gr.HTML:
        """A canvas, whose strokes arrive as `submit` events with a PNG.

        Gradio's image editor needs WebGL and cannot be used by keyboard.
        """
        options: dict[str, Any] = {"ink": ink, "brush": brush, "label": label, "size": 280}
        return self.html("pad", html_template=CANVAS_HTML, js_on_load=CANVAS_JS, **options)

    def build_equation(self, count: int, alpha: float) -> None:
        """The equation and its coefficients."""
        view = self.view(self.start, *self.initial)
        self.equation = self.html("equation", view, js_on_load=CLICK_JS)
        self.alphas = []
        with gr.Row():
            for i in range(1, count + 1):
                options = {"visible": i <= 2, "min_width": 150, "elem_id": f"{self.name}-alpha{i}"}
                slider = gr.Slider(0, 1, alpha, step=0.05, label=f"Alpha {i}", **options)
                self.alphas.append(slider)
        label = "Unknown: estimate the alphas from the mixture"
        self.unknown = gr.Checkbox(label=label, elem_id=f"{self.name}-unknown")

    def _samples_view(self, chosen: Chosen) -> str:
        numbers = images.sample_numbers(self.samples, chosen.page)
        return samples_view([images.sample_picture(self.samples, i) for i in numbers])

    def _build_controls(self) -> None:
        gr.HTML("<h2>3. Separate</h2>")
        with gr.Row():
            self.go = gr.Button("Separate", variant="primary", elem_id=f"{self.name}-go")
            self.stop = gr.Button("Stop", elem_id=f"{self.name}-stop")
        with gr.Accordion("Method, prior, samples, seed", open=False):
            self.method = gr.Dropdown(METHODS, label="Method", elem_id=f"{self.name}-method")
            self.prior = gr.Dropdown(list(self.priors), label="Prior")
            self.number = gr.Slider(
                *(0, self.limits.samples, min(3, self.limits.samples)),
                step=1,
                label="Posterior samples",
                info="With two or more, the uncertainty of the sources is shown.",
                elem_id=f"{self.name}-number",
            )
            self.seed = gr.Number(0, precision=0, minimum=0, maximum=2**31, label="Seed")

    def _build_results(self) -> None:
        self.status = self.html("status", notice("Press the button to start."), min_height=60)
        self.live = self.html("live")
        slider: dict[str, Any] = {"step": 1, "visible": False, "interactive": True}
        label, name = "Earlier states", f"{self.name}-frame"
        self.frame = gr.Slider(0, _LAST_FRAME, 0, label=label, elem_id=name, **slider)
        self.result = self.html("result")
        with gr.Accordion("Download", visible=False) as self.downloads:
            self.files = gr.Files(label="Files", interactive=False, elem_id=f"{self.name}-files")
            code: dict[str, Any] = {"wrap_lines": True, "interactive": False, "lines": 1}
            code["show_line_numbers"] = False
            self.python = gr.Code(None, "python", label="In Python", **code)
            self.command = gr.Code(None, "shell", label="As a command", **code)

    def _build_comparison(self) -> None:
        with gr.Accordion("Compare two methods on this mixture", open=False):
            self.compared: list[Any] = []
            for i, method in enumerate(("fast", "gibbs"), start=1):
                with gr.Row():
                    self.compared.append(gr.Dropdown(METHODS, value=method, label=f"Method {i}"))
                    self.compared.append(gr.Dropdown(list(self.priors), label=f"Prior {i}"))
            self.compare = gr.Button("Compare", elem_id=f"{self.name}-compare")
            self.comparison = self.html("comparison", min_height=60)

    def _connect_runs(self) -> None:
        """Connects the buttons that separate, stop and compare."""
        runs = {"concurrency_limit": self.limits.runs, "concurrency_id": "separation"}
        private: dict[str, Any] = dict(api_visibility="private", **runs)
        settings = [self.number, self.seed, self.unknown, *self.inputs]
        found = [self.live, self.frame, self.result, self.downloads, self.files]
        separation = self.go.click(
            self._separate,
            [self.state, self.method, self.prior, *settings],
            [self.state, self.status, *found, self.python, self.command],
            show_progress_on=self.status,
            **private,
        )
        comparison = self.compare.click(
            self._compare, [self.state, *self.compared, *settings], [self.comparison], **private
        )
        # Cancelled first, so that no earlier frame arrives after the answer of `_stop`.
        self.stop.click(None, cancels=[separation, comparison])
        stopped = [self.status, self.live, self.frame]
        self.stop.click(self._stop, [self.state], stopped, **QUIET)
        asked, latest = [self.state, self.frame], "always_last"
        self.frame.input(self._show_frame, asked, [self.live], trigger_mode=latest, **QUIET)

    def show(self, chosen: Chosen, *values: Any) -> list[Any]:
        """The values of the components in `shown`."""
        message = notice(chosen.message, "bad") if chosen.message else ""
        return [chosen, message + self.view(chosen, *values)]

    def put(self, chosen: Chosen, picture: Picture, *values: Any) -> None:
        """Replaces the active source and goes on to the next."""
        chosen.pictures[chosen.active] = picture
        chosen.active = (chosen.active + 1) % self.count(*values)
        chosen.message = ""

    def _pick(self, chosen: Chosen, event: gr.EventData, *values: Any) -> list[Any]:
        numbers = images.sample_numbers(self.samples, chosen.page)
        if event.index < len(numbers):
            self.put(chosen, images.sample_picture(self.samples, numbers[event.index]), *values)
        return self.show(chosen, *values)

    def _activate(self, chosen: Chosen, event: gr.EventData, *values: Any) -> list[Any]:
        chosen.active = min(event.index, self.count(*values) - 1)
        return self.show(chosen, *values)

    def _turn(self, chosen: Chosen) -> tuple[Chosen, str]:
        chosen.page += 1
        return chosen, self._samples_view(chosen)

    def _upload(self, chosen: Chosen, file: str | None, *values: Any) -> list[Any]:
        if file is not None:
            try:
                image = self.accept(images.read_upload(file, self.limits))
                self.put(chosen, Picture(image, "uploaded"), *values)
            except BasisError as error:
                chosen.message = sentence(error)
        return self.show(chosen, *values)

    def _run(
        self, chosen: Chosen, method: str, prior: str, values: tuple[Any, ...]
    ) -> Iterator[Run]:
        """Starts a separation, yields its run at every change and at the end, and stops it if the
        visitor leaves.
        """
        samples, seed, unknown, *own = values
        task = self.task(chosen, *own)
        known = not (unknown and task.kind == "separate")
        settings: dict[str, Any] = {"method": method, "prior": prior, "alphas_known": known}
        task = replace(task, samples=int(samples), seed=int(seed or 0), **settings)
        if chosen.run is not None:
            chosen.run.stop()
        chosen.run = run = Run(task, self.limits, self.shared.slots, self.shared.threads)
        run.start()
        try:
            for _ in run.watch():
                if not run.stopping:  # otherwise `_stop` shows the end
                    yield run
        finally:
            run.stop()
        yield run

    def _separate(
        self, chosen: Chosen, request: gr.Request, method: str, prior: str, *values: Any
    ) -> Iterator[dict[Any, Any]]:
        """Separates, as updates of the page."""
        hidden = gr.update(visible=False)
        clear = {self.live: "", self.result: "", self.frame: hidden, self.downloads: hidden}
        yield {self.status: notice("Starting…", "busy"), **clear}
        run = None
        try:
            for run in self._run(chosen, method, prior, values):
                words = f"Step {run.step} of {run.steps}, {run.seconds:.0f} s"
                yield {self.status: notice(words, "busy"), self.live: frame_view(run.frames)}
        except BasisError as error:
            yield {self.status: notice(sentence(error), "bad")}
            return
        assert run is not None
        if run.result is None:
            yield {self.status: notice(sentence(run.message), "bad"), **self._frames(run)}
            return
        yield {
            self.state: chosen,
            self.status: notice(f"Done in {run.seconds:.1f} seconds.", "good"),
            self.result: result_view(run),
            self.downloads: gr.update(visible=True),
            self.files: self.shared.save(run, request.session_hash),
            self.python: run.task.python_code(),
            self.command: run.task.command(),
            **self._frames(run),
        }

    def _frames(self, run: Run) -> dict[Any, Any]:
        """The last frame of a run, and the slider that shows earlier ones."""
        last = len(run.frames) - 1
        slider = gr.update(visible=last > 0, maximum=max(1, last), value=max(0, last))
        return {self.live: frame_view(run.frames), self.frame: slider}

    def _show_frame(self, chosen: Chosen, number: float) -> str:
        return frame_view(chosen.run.frames[: int(number) + 1]) if chosen.run else ""

    def _stop(self, chosen: Chosen) -> dict[Any, Any]:
        run = chosen.run
        if run is None or run.result is not None:
            return {self.status: notice("Stopped.")}
        run.stop()
        run.join(10)
        return {self.status: notice(sentence(run.message or "Stopped.")), **self._frames(run)}

    def _compare(
        self, chosen: Chosen, method1: str, prior1: str, method2: str, prior2: str, *values: Any
    ) -> Iterator[str]:
        """Separates with two methods, one after the other."""
        runs: list[Run] = []
        for method, prior in ((method1, prior1), (method2, prior2)):
            try:
                for run in self._run(chosen, method, prior, values):
                    words = f"{run.task}: step {run.step} of {run.steps}"
                    yield notice(words, "busy") + comparison_view(runs)
            except BasisError as error:
                yield notice(sentence(error), "bad")
                return
            if run.result is None:
                yield notice(sentence(run.message), "bad")
                return
            runs.append(run)
        yield comparison_view(runs)
