"""What the tabs of the page have in common. Importing this module needs Gradio."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr
import torch
from torch import Tensor

from basis._mix import mix
from basis.errors import BasisError
from basis.page import images
from basis.page.forms import ESTIMATES, METHODS, QUIET, Chosen, Form, Shared, fitting_priors
from basis.page.images import Picture
from basis.page.task import Run, Task, cached_prior
from basis.page.views import (
    CANVAS_HTML,
    CANVAS_JS,
    CLICK_JS,
    comparison_view,
    duration,
    equation_view,
    frame_view,
    notice,
    picture,
    result_view,
    samples_view,
    sentence,
)
from basis.settings import Estimate
from basis.signals.observation import Observation

_LAST_FRAME = 1000  # the range of the slider before it is known


class Tab:
    """A tab: inputs on the left, controls and results on the right.

    Subclasses set the attributes below.
    """

    name: str
    title: str
    samples: str
    """The built-in images to choose from."""
    first: tuple[int, ...]
    """Those that are chosen at first, as many as there may be sources."""
    prior: str
    """The first prior."""
    channels: int
    estimate: Estimate
    """The first estimate."""
    alpha: float
    """The first value of all alphas."""
    hint: str
    """What is done to an uploaded picture."""
    kinds: tuple[tuple[str, str], ...]
    sized: tuple[str, ...]
    """The kinds for which a size can be chosen."""
    depending: tuple[Any, ...] = ()
    """Further components that `visible` or `show` update."""

    def __init__(self, shared: Shared) -> None:
        self.shared, self.limits = shared, shared.limits
        self.start = Chosen([images.sample_picture(self.samples, i) for i in self.first])
        cards = fitting_priors(self.channels, self.limits.side)
        self.sides = {name: card.shape[1] for name, card in cards.items()}
        self.priors = [(f"{name}: {c.title or 'your own'}", name) for name, c in cards.items()]
        alphas = (self.alpha,) * len(self.first)
        samples = min(3, self.limits.samples)
        size, answer = self.sides[self.prior], self.estimate
        self.form = Form("mix", 2, size, "fast", self.prior, answer, samples, 0, False, alphas)
        self.start.ready = self._ready(self._task_of(self.start, self.form))

    def accept(self, image: Tensor) -> Tensor:
        """An uploaded source in the form in which it is kept."""
        return self.reduced(image)

    def squares(self, chosen: Chosen, form: Form) -> list[Picture]:
        """The chosen pictures at the size at which they are used."""
        side = self.side(form)
        return [
            Picture(images.as_square(p.image, side, self.channels), p.label)
            for p in chosen.pictures[: form.pictures]
        ]

    def view(self, chosen: Chosen, form: Form) -> str:
        """What is observed."""
        if form.kind == "mix":
            alphas = form.alphas[: form.count]
            return equation_view(self.squares(chosen, form), alphas, chosen.active)
        if chosen.mixture is None:
            return notice("Upload the picture of a mixture.")
        image = self._mixture(chosen, form)
        height, width = image.shape[1:]
        caption = f"your mixture, used with {width} × {height} pixels"
        return f'<div class="pics large">{picture(image, "your mixture", caption)}</div>'

    def task(self, chosen: Chosen, form: Form) -> Task:
        """What is asked for."""
        alphas = list(form.alphas[: form.count])
        if form.kind == "mine":
            values, known = self._mixture(chosen, form)[None], torch.tensor(alphas)
            observation = Observation(values, batched=True, alphas=known)
        else:
            observation = mix([picture.image for picture in self.squares(chosen, form)], alphas)
        return Task("separate", observation, alphas_known=not form.unknown, **self.settings(form))

    def settings(self, form: Form) -> dict[str, Any]:
        """What all tasks have."""
        settings = {name: getattr(form, name) for name in ("method", "prior", "estimate")}
        return {**settings, "samples": int(form.samples), "seed": int(form.seed or 0)}

    def reduced(self, image: Tensor) -> Tensor:
        """An uploaded picture, without more pixels than are ever used."""
        return images.at_most(image, max(self.limits.side, self.limits.color_side), least=8)

    def side(self, form: Form) -> int:
        """The longest side of pictures; at least that of the prior."""
        return max(form.size if form.kind in self.sized else 0, self.sides[form.prior])

    def _mixture(self, chosen: Chosen, form: Form) -> Tensor:
        """The uploaded mixture at the size at which it is used."""
        if chosen.mixture is None:
            raise BasisError("there is no mixture yet: upload a picture")
        image = images.as_mixture(chosen.mixture, self.channels)
        return images.at_most(image, self.side(form), self.sides[form.prior])

    def build(self) -> None:
        """Lays out the tab and connects its events."""
        self.state = gr.State(self.start)
        with gr.Row():
            with gr.Column(scale=5, min_width=320):
                self._build_inputs()
            with gr.Column(scale=7, min_width=320):
                self._build_controls()
                self._build_results()
                self._build_comparison()
        settings = [self.method, self.prior_of, self.estimate_of, self.number, self.seed]
        self.controls = [self.kind, self.count, self.size, *settings, self.unknown, *self.alphas]
        self.results = [self.live, self.result, self.comparison, self.frame, self.downloads]
        self.shown = [self.state, self.equation, self.status, *self.results, *self.depending]
        self.asked = [self.state, *self.controls]
        self.connect()
        self._connect_runs()

    def html(self, part: str, value: str = "", **options: Any) -> gr.HTML:
        """A block of HTML with an id of this tab."""
        return gr.HTML(value, elem_id=f"{self.name}-{part}", **options)

    def build_canvas(self, label: str, ink: str, brush: float) -> None:
        """A canvas, whose strokes arrive as `submit` events with a PNG.

        Gradio's image editor needs WebGL and cannot be used by keyboard.
        """
        options: dict[str, Any] = {"ink": ink, "brush": brush, "label": label, "size": 280}
        self.pad = self.html("pad", html_template=CANVAS_HTML, js_on_load=CANVAS_JS, **options)
        gr.Markdown(label)

    def build_drawing(self) -> None:
        """A further way to choose a source."""

    def build_brush(self) -> None:
        """A further part of what is observed."""

    def _build_inputs(self) -> None:
        formats = ", ".join(images.FORMATS)
        accepted = f"{formats}; at most {self.limits.megabytes:g} MB."
        name = f"{self.name}-kind"
        self.kind = gr.Radio(list(self.kinds), value="mix", label="What to do", elem_id=name)
        counts = list(range(2, len(self.first) + 1))
        self.count = gr.Radio(counts, value=2, label="Sources", elem_id=f"{self.name}-count")
        with gr.Column() as self.choice:
            gr.HTML("<h2>1. Choose the sources</h2>")
            with gr.Tabs():
                with gr.Tab("Pick"):
                    view = self._samples_view(self.start)
                    self.offer = self.html("samples", view, js_on_load=CLICK_JS)
                    self.more = gr.Button(f"Other {self.title.lower()}", size="sm")
                self.build_drawing()
                with gr.Tab("Upload"):
                    self.upload = gr.File(label="A picture", elem_id=f"{self.name}-upload")
                    gr.Markdown(f"{accepted} {self.hint}")
        with gr.Column(visible=False) as self.own_choice:
            gr.HTML("<h2>1. Upload the mixture</h2>")
            self.own = gr.File(label="A picture of a mixture", elem_id=f"{self.name}-own")
            gr.Markdown(
                f"{accepted} The alphas say how much of each source it contains: 0.5 if it is the "
                "average of two pictures. It is reduced to the size below and, if that is larger "
                "than the prior's, separated in overlapping tiles."
            )
        sizes = sorted({self.form.size, 48, self.limits.side})
        self.size = gr.Radio(
            list(sizes),
            value=sizes[0],
            label="Longest side in pixels",
            info=f"Sizes above {sizes[0]} are slower: the prior works on overlapping tiles.",
            visible="mix" in self.sized,
            elem_id=f"{self.name}-size",
        )
        gr.HTML("<h2>2. What is observed</h2>")
        view = self.view(self.start, self.form)
        self.equation = self.html("equation", view, js_on_load=CLICK_JS)
        self.alphas = []
        with gr.Row():
            for i in range(1, len(self.first) + 1):
                options = {"visible": i <= 2, "min_width": 150, "elem_id": f"{self.name}-alpha{i}"}
                slider = gr.Slider(0, 1, self.alpha, step=0.05, label=f"Alpha {i}", **options)
                self.alphas.append(slider)
        label = "Unknown: estimate the alphas from the mixture"
        self.unknown = gr.Checkbox(label=label, elem_id=f"{self.name}-unknown")
        self.build_brush()

    def _samples_view(self, chosen: Chosen) -> str:
        numbers = images.sample_numbers(self.samples, chosen.page)
        return samples_view([images.sample_picture(self.samples, i) for i in numbers])

    def _build_controls(self) -> None:
        gr.HTML("<h2>3. Separate</h2>")
        with gr.Row():
            self.go = gr.Button("Separate", variant="primary", elem_id=f"{self.name}-go")
            self.stop = gr.Button("Stop", elem_id=f"{self.name}-stop")
        with gr.Accordion("Method, prior, answer, samples, seed", open=False):
            self.method = gr.Dropdown(METHODS, label="Method", elem_id=f"{self.name}-method")
            self.prior_of = gr.Dropdown(self.priors, value=self.prior, label="Prior")
            self.estimate_of = gr.Dropdown(ESTIMATES, value=self.estimate, label="Answer")
            self.number = gr.Slider(
                *(0, self.limits.samples, self.form.samples),
                step=1,
                label="Posterior samples",
                info="With two or more, the uncertainty of the sources is shown.",
                elem_id=f"{self.name}-number",
            )
            self.seed = gr.Number(0, precision=0, minimum=0, maximum=2**31, label="Seed")

    def _build_results(self) -> None:
        self.status = self.html("status", self.start.ready, min_height=60)
        self.result = self.html("result")
        self.live = self.html("live")
        slider: dict[str, Any] = {"step": 1, "visible": False, "interactive": True}
        label, name = "Earlier states", f"{self.name}-frame"
        self.frame = gr.Slider(0, _LAST_FRAME, 0, label=label, elem_id=name, **slider)
        with gr.Accordion("Download", visible=False) as self.downloads:
            self.files = gr.Files(label="Files", interactive=False, elem_id=f"{self.name}-files")
            # Without line numbers, which wrapped lines move away from their lines.
            code: dict[str, Any] = {"wrap_lines": True, "show_line_numbers": False, "lines": 1}
            code["interactive"] = False
            self.python = gr.Code(None, "python", label="In Python", **code)
            self.command = gr.Code(None, "shell", label="As a command", **code)

    def _build_comparison(self) -> None:
        with gr.Accordion("Compare two methods on this mixture", open=False):
            self.compared: list[Any] = []
            for i, method in enumerate(("fast", "gibbs"), start=1):
                with gr.Row():
                    self.compared.append(gr.Dropdown(METHODS, value=method, label=f"Method {i}"))
                    options = {"value": self.prior, "label": f"Prior {i}"}
                    self.compared.append(gr.Dropdown(self.priors, **options))
            self.compare = gr.Button("Compare", elem_id=f"{self.name}-compare")
            self.comparison = self.html("comparison", min_height=60)

    def connect(self) -> None:
        """Connects everything that changes what is asked for."""
        asked, shown = self.asked, self.shown
        self.offer.click(self._pick, asked, shown, **QUIET)
        self.equation.click(self._activate, asked, shown, **QUIET)
        self.more.click(self._turn, [self.state], [self.state, self.offer], **QUIET)
        file: Any
        for file, listener in ((self.upload, self._upload), (self.own, self._upload_own)):
            file.upload(listener, [self.state, file, *self.controls], shown, **QUIET)
        for slider in self.alphas:
            slider.input(self._show, asked, shown, trigger_mode="always_last", **QUIET)
        depending = [self.choice, self.own_choice, self.count, self.size, self.unknown]
        for radio in (self.kind, self.count):
            radio.change(self._change, asked, [*shown, *depending, *self.alphas], **QUIET)
        for control in (self.size, self.prior_of, self.unknown):
            control.change(self._show, asked, shown, **QUIET)
        for control in (self.method, self.estimate_of, self.number):
            control.change(self._tell, asked, [self.status], **QUIET)

    def _connect_runs(self) -> None:
        """Connects the buttons that separate, stop and compare."""
        runs = {"concurrency_limit": self.limits.runs, "concurrency_id": "separation"}
        private: dict[str, Any] = dict(api_visibility="private", **runs)
        separation = self.go.click(
            self._separate,
            self.asked,
            [self.state, self.status, *self.results, self.files, self.python, self.command],
            show_progress_on=self.status,
            **private,
        )
        compared = [self.state, *self.compared, *self.controls]
        comparison = self.compare.click(self._compare, compared, [self.comparison], **private)
        # Cancelled first, so that no earlier frame arrives after the answer of `_stop`.
        self.stop.click(None, cancels=[separation, comparison])
        stopped = [self.status, self.live, self.frame]
        self.stop.click(self._stop, [self.state], stopped, **QUIET)
        frame, latest = [self.state, self.frame], "always_last"
        self.frame.input(self._show_frame, frame, [self.live], trigger_mode=latest, **QUIET)

    def show(self, chosen: Chosen, form: Form) -> dict[Any, Any]:
        """The page after a change of the inputs, without the results of other inputs."""
        message = notice(chosen.message, "bad") if chosen.message else ""
        shown = {self.state: chosen, self.equation: message + self.view(chosen, form)}
        task = self._task_of(chosen, form)
        if chosen.run is not None:
            if task is not None and not task.differs(chosen.run.task):
                return shown  # the button was pressed before this event arrived
            chosen.run.stop()
            chosen.run = None
        chosen.ready = self._ready(task)
        return {**shown, self.status: chosen.ready, **self._cleared()}

    def visible(self, form: Form) -> dict[Any, bool]:
        """Which components are needed."""
        return {
            self.choice: form.kind != "mine",
            self.own_choice: form.kind == "mine",
            self.count: form.is_sum,
            self.size: form.kind in self.sized,
            self.unknown: form.is_sum,
            **{alpha: form.is_sum and i < form.count for i, alpha in enumerate(self.alphas)},
        }

    def _cleared(self) -> dict[Any, Any]:
        """The components of results, empty."""
        hidden = gr.update(visible=False)
        empty: dict[Any, Any] = dict.fromkeys((self.live, self.result, self.comparison), "")
        return {**empty, self.frame: hidden, self.downloads: hidden}

    def _task_of(self, chosen: Chosen, form: Form) -> Task | None:
        """What is asked for; None as long as it cannot be done, which the button then says."""
        try:
            task = self.task(chosen, form)
            task.check()
            cached_prior(task.prior)
        except BasisError:
            return None
        return task

    def _ready(self, task: Task | None) -> str:
        """The status before a separation, with the time that it will take."""
        words, kind = "Press the button to start.", "info"
        if task is not None and task.kind == "separate":
            seconds, tiles = task.expected_seconds(), task.tiles
            about = "about" if task.alphas_known else "at least"
            words += f" It takes {about} {duration(seconds)} on this computer"
            words += f", in {tiles} overlapping tiles." if tiles > 1 else "."
            if seconds > self.limits.seconds:
                words += f" The limit is {duration(self.limits.seconds)}: choose a smaller size, "
                words, kind = words + "a faster method or fewer samples.", "busy"
        return notice(words, kind)

    def _show(self, chosen: Chosen, *values: Any) -> dict[Any, Any]:
        return self.show(chosen, Form.of(values))

    def _tell(self, chosen: Chosen, *values: Any) -> Any:
        """The time that it will take, unless a separation is in progress."""
        chosen.ready = self._ready(self._task_of(chosen, Form.of(values)))
        return gr.skip() if chosen.run is not None and chosen.run.running else chosen.ready

    def _change(self, chosen: Chosen, *values: Any) -> dict[Any, Any]:
        form = Form.of(values)
        if form.kind == "mine":  # with values up to 1, as in a picture
            form = replace(form, alphas=(round(1 / form.count, 2),) * len(self.alphas))
        chosen.active, chosen.message = min(chosen.active, form.pictures - 1), ""
        updates = {part: gr.update(visible=one) for part, one in self.visible(form).items()}
        for slider, alpha in zip(self.alphas, form.alphas, strict=True):
            updates[slider]["value"] = alpha
        return {**self.show(chosen, form), **updates}

    def put(self, chosen: Chosen, picture: Picture, form: Form) -> None:
        """Replaces the active source and goes on to the next."""
        chosen.pictures[chosen.active] = picture
        chosen.active = (chosen.active + 1) % form.pictures
        chosen.message = ""

    def _pick(self, chosen: Chosen, event: gr.EventData, *values: Any) -> dict[Any, Any]:
        form, numbers = Form.of(values), images.sample_numbers(self.samples, chosen.page)
        if event.index < len(numbers):
            self.put(chosen, images.sample_picture(self.samples, numbers[event.index]), form)
        return self.show(chosen, form)

    def _activate(self, chosen: Chosen, event: gr.EventData, *values: Any) -> dict[Any, Any]:
        form = Form.of(values)
        chosen.active = min(event.index, form.pictures - 1)
        return self.show(chosen, form)

    def _turn(self, chosen: Chosen) -> tuple[Chosen, str]:
        chosen.page += 1
        return chosen, self._samples_view(chosen)

    def _upload(self, chosen: Chosen, file: str | None, *values: Any) -> dict[Any, Any]:
        form = Form.of(values)
        try:
            if file is not None:
                image = self.accept(images.read_upload(file, self.limits))
                self.put(chosen, Picture(image, "uploaded"), form)
        except BasisError as error:
            chosen.message = sentence(error)
        return self.show(chosen, form)

    def _upload_own(self, chosen: Chosen, file: str | None, *values: Any) -> dict[Any, Any]:
        try:
            if file is not None:
                image = images.read_upload(file, self.limits)
                chosen.mixture, chosen.message = self.reduced(image), ""
        except BasisError as error:
            chosen.message = sentence(error)
        return self.show(chosen, Form.of(values))

    def _run(self, chosen: Chosen, form: Form) -> Iterator[Run]:
        """Starts a separation, yields its run at every change and at the end, and stops it if the
        visitor leaves.
        """
        task = self.task(chosen, form)
        if chosen.run is not None:
            chosen.run.stop()
        chosen.run = run = Run(task, self.limits, self.shared.slots, self.shared.threads)
        run.start()
        try:
            for _ in run.watch():
                if not run.stopping:  # otherwise `_stop` or `show` shows the end
                    yield run
        finally:
            run.stop()
        yield run

    def _separate(
        self, chosen: Chosen, request: gr.Request, *values: Any
    ) -> Iterator[dict[Any, Any]]:
        """Separates, as updates of the page."""
        yield {self.status: notice("Starting…", "busy"), **self._cleared()}
        run = None
        try:
            for run in self._run(chosen, Form.of(values)):
                words = f"Step {run.step} of {run.steps}, {run.seconds:.0f} s"
                yield {self.status: notice(words, "busy"), self.live: frame_view(run.frames)}
        except BasisError as error:
            yield {self.status: notice(sentence(error), "bad")}
            return
        assert run is not None
        if chosen.run is None:  # the inputs have changed
            yield {self.status: chosen.ready, **self._cleared()}
            return
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
                for run in self._run(chosen, replace(Form.of(values), method=method, prior=prior)):
                    words = f"{run.task}: step {run.step} of {run.steps}"
                    yield notice(words, "busy") + comparison_view(runs)
            except BasisError as error:
                yield notice(sentence(error), "bad")
                return
            if chosen.run is None or run.result is None:
                yield notice(sentence(run.message), "bad") if chosen.run is not None else ""
                return
            runs.append(run)
        yield comparison_view(runs)
