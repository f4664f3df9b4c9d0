"""The half of a tab that separates: how, the buttons, and what comes out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from basis.errors import BasisError
from basis.page.answer import answer_view
from basis.page.comparison_view import comparison_view
from basis.page.desk import Desk
from basis.page.downloads import write_files
from basis.page.markup import chains_view, curves, notice
from basis.page.recipes import command_lines, python_lines
from basis.page.run import Run
from basis.page.task import Task, Way
from basis.page.work import Work, sentence, stop_desk

Ask = Callable[..., Task]
"""Makes the task of a desk from the values of the tab's own inputs."""

_EMPTY = notice("Press <b>Separate</b> and watch the sources come out of noise, live.")


_STATES = 10_000  # more than any run shows; the slider gets its real range after a run


class Pane:
    """The controls of a way, the buttons, and the results of one tab.

    Args:
        work: What visitors share.
        name: Begins the ids of its elements.
        priors: Names to choose from, the first by default.
        methods: Efforts and samplers to choose from, with what the page calls them.
        verb: What the button says.
    """

    def __init__(
        self,
        work: Work,
        name: str,
        priors: list[str],
        methods: list[tuple[str, str]],
        verb: str = "Separate",
    ) -> None:
        self.work, self.name, self.verb = work, name, verb
        self.priors, self.methods = priors, methods

    def build_controls(self) -> None:
        """How it is done, and the buttons."""
        import gradio as gr

        most = self.work.limits.draws
        with gr.Row(elem_classes="actions"):
            self.go = gr.Button(self.verb, variant="primary", elem_id=f"{self.name}-go")
            self.stop = gr.Button("Stop", interactive=False, elem_id=f"{self.name}-stop")
            self.again = gr.Button("Draw again", interactive=False, elem_id=f"{self.name}-again")
        with gr.Accordion("How: prior, sampler or effort, draws", open=False):
            self.method = gr.Dropdown(
                self.methods,
                value=self.methods[0][1],
                label="Effort or sampler",
                info="An effort searches and polishes; a sampler draws from the posterior.",
                elem_id=f"{self.name}-method",
            )
            self.prior = gr.Dropdown(self.priors, value=self.priors[0], label="Prior")
            self.samples = gr.Slider(
                1,
                most,
                self.work.limits.first_draws,
                step=1,
                label="Draws, side by side",
                elem_id=f"{self.name}-draws",
            )
            self.seed = gr.Number(0, precision=0, minimum=0, maximum=2**31, label="Seed")

    def build_results(self) -> None:
        """What comes out."""
        import gradio as gr

        self.status = gr.HTML(_EMPTY, elem_id=f"{self.name}-status")
        self.live = gr.HTML("", elem_id=f"{self.name}-live")
        self.scrub = gr.Slider(
            0, _STATES, 0, step=1, visible=False, interactive=True, elem_id=f"{self.name}-scrub",
            label="Back through the annealing",
        )  # fmt: skip
        self.answer = gr.HTML("", elem_id=f"{self.name}-answer")
        with gr.Accordion("Take it home", open=True, visible=False) as self.home:
            self.files = gr.Files(label="Download", interactive=False, elem_id=f"{self.name}-files")
            self.python = gr.Code(
                language="python", wrap_lines=True, label="The same in Python", interactive=False,
                elem_id=f"{self.name}-python",
            )  # fmt: skip
            self.command = gr.Code(
                language="shell", wrap_lines=True, label="The same as a command", interactive=False,
                elem_id=f"{self.name}-command",
            )  # fmt: skip

    def build_comparison(self) -> None:
        """Two ways on the same mixture."""
        import gradio as gr

        with gr.Accordion("Compare two ways on this mixture", open=False):
            with gr.Row():
                self.first = gr.Dropdown(self.methods, value="fast", label="One way")
                self.first_prior = gr.Dropdown(self.priors, value=self.priors[0], label="its prior")
            with gr.Row():
                self.second = gr.Dropdown(self.methods, value="gibbs", label="Another way")
                self.second_prior = gr.Dropdown(
                    self.priors, value=self.priors[0], label="its prior"
                )
            self.compare = gr.Button("Compare", elem_id=f"{self.name}-compare")
            self.compared = gr.HTML("", elem_id=f"{self.name}-compared")

    @property
    def way_inputs(self) -> list[Any]:
        """The inputs that say how."""
        return [self.prior, self.method, self.samples, self.seed]

    def wire(self, desk: Any, inputs: list[Any], ask: Ask, comparison: bool = True) -> None:
        """Connects the buttons.

        Args:
            desk: The state of the visitor.
            inputs: The tab's own inputs.
            ask: ask(desk, way, seed, *their values) makes the task.
        """
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        streamed: dict[str, Any] = quiet | {"concurrency_limit": None}
        outputs = [
            desk, self.status, self.live, self.scrub, self.answer, self.home, self.files,
            self.python, self.command, self.go, self.stop, self.again, self.seed,
        ]  # fmt: skip

        def run(desk: Desk, *values: Any) -> Iterator[dict[Any, Any]]:
            yield from self._separate(desk_state, desk, ask, values, redraw=False)

        def rerun(desk: Desk, *values: Any) -> Iterator[dict[Any, Any]]:
            yield from self._separate(desk_state, desk, ask, values, redraw=True)

        desk_state = desk
        asked = [desk, *self.way_inputs, *inputs]
        self.go.click(run, asked, outputs, **streamed)
        self.again.click(rerun, asked, outputs, **streamed)
        self.stop.click(stop_desk, [desk], None, queue=False, **quiet)
        self.scrub.input(
            self._scrub, [desk, self.scrub], [self.live], queue=False,
            trigger_mode="always_last", **quiet,
        )  # fmt: skip
        if comparison:
            ways = [self.first, self.first_prior, self.second, self.second_prior]

            def compare(desk: Desk, *values: Any) -> Iterator[dict[Any, Any]]:
                yield from self._compare(desk, ask, values)

            self.compare.click(
                compare,
                [desk, *ways, *self.way_inputs, *inputs],
                [self.compared, self.go, self.stop, self.again, self.compare],
                **streamed,
            )

    def _buttons(self, busy: bool, again: bool = False) -> dict[Any, Any]:
        import gradio as gr

        return {
            self.go: gr.update(interactive=not busy),
            self.stop: gr.update(interactive=busy),
            self.again: gr.update(interactive=again and not busy),
        }

    def _separate(
        self, state: Any, desk: Desk, ask: Ask, values: tuple[Any, ...], redraw: bool
    ) -> Iterator[dict[Any, Any]]:
        """One press of the button, as updates of the page."""
        import gradio as gr

        prior, method, draws, seed, *own = values
        seed = int(seed or 0) + redraw
        hidden = {
            self.scrub: gr.update(visible=False),
            self.answer: "",
            self.home: gr.update(visible=False),
            self.live: "",
            self.seed: seed,
        }
        yield {self.status: notice("Starting…", "busy"), **hidden, **self._buttons(busy=True)}
        try:
            task = ask(desk, Way(prior, method, int(draws)), seed, *own)
            yield from self._wait(desk)
        except BasisError as error:
            yield {self.status: notice(sentence(error), "bad"), **self._buttons(busy=False)}
            return
        if desk.ticket is None:
            yield {self.status: notice("You left the line."), **self._buttons(busy=False)}
            return
        run = Run(task, self.work.limits, desk.ticket, self.work.threads)
        desk.run = run
        run.start()
        for frame in run.watch():
            if frame is None:
                words = f"Working… {time.monotonic() - run.started:.0f} s"
                yield {self.status: notice(words, "busy")}
                continue
            words = f"Step {frame.step} of {frame.steps} · noise level {frame.sigma:.2g}"
            view = chains_view(frame) + curves(list(run.frames))
            yield {self.status: notice(words, "busy"), self.live: view}
        desk.ticket = None
        yield {state: desk, **self._ended(desk, run)}

    def _wait(self, desk: Desk) -> Iterator[dict[Any, Any]]:
        """Waits in line, and says where; the desk loses its ticket where the visitor gives up."""
        if desk.run is not None and desk.run.alive:
            desk.run.stop()
            desk.run.join(10)
        ticket = desk.ticket = self.work.line.enter()
        while desk.ticket is ticket and (place := ticket.place()):
            words = (
                f"You are <b>number {place}</b> in line; {self.work.line.runs} at a time are "
                "served here."
            )
            yield {self.status: notice(words, "busy")}
            time.sleep(0.3)

    def _ended(self, desk: Desk, run: Run) -> dict[Any, Any]:
        """The page after a run."""
        import gradio as gr

        assert run.outcome is not None
        frames = run.frames
        shown: dict[Any, Any] = {}
        if frames:
            last = len(frames) - 1
            shown[self.live] = chains_view(frames[-1]) + curves(frames)
            if last:
                shown[self.scrub] = gr.update(visible=True, maximum=last, value=last)
        if run.outcome.result is None:
            words = notice(sentence(run.outcome.message), "bad")
            return {self.status: words, **shown, **self._buttons(busy=False, again=True)}
        done = notice(
            f"Done in {time.monotonic() - run.started:.1f} seconds. Slide back through the "
            "annealing below, or draw again.",
            "good",
        )
        return {
            self.status: done,
            **shown,
            self.answer: answer_view(run),
            self.home: gr.update(visible=True),
            self.files: self.work.offer(write_files(run, self.work.folder / desk.key)),
            self.python: python_lines(run.task),
            self.command: command_lines(run.task),
            **self._buttons(busy=False, again=True),
        }

    def _scrub(self, desk: Desk, at: float) -> Any:
        """The chains at a place in the run's past."""
        import gradio as gr

        if desk.run is None or not desk.run.frames:
            return gr.skip()
        frames = desk.run.frames
        place = min(max(int(at), 0), len(frames) - 1)
        return chains_view(frames[place]) + curves(frames, place)

    def _compare(self, desk: Desk, ask: Ask, values: tuple[Any, ...]) -> Iterator[dict[Any, Any]]:
        """Two ways after each other on the same mixture, in one turn each."""
        import gradio as gr

        method_a, prior_a, method_b, prior_b, _, _, draws, seed, *own = values
        ways = [Way(prior_a, method_a, int(draws)), Way(prior_b, method_b, int(draws))]
        busy = self._buttons(busy=True) | {self.compare: gr.update(interactive=False)}
        free = self._buttons(busy=False) | {self.compare: gr.update(interactive=True)}
        yield {self.compared: notice("Starting…", "busy"), **busy}
        done: list[Run] = []
        for number, way in enumerate(ways, start=1):
            try:
                task = replace(ask(desk, way, int(seed or 0), *own), way=way)
                for update in self._wait(desk):
                    yield {self.compared: next(iter(update.values()))}
            except BasisError as error:
                yield {self.compared: notice(sentence(error), "bad"), **free}
                return
            if desk.ticket is None:
                yield {self.compared: notice("You left the line."), **free}
                return
            run = Run(task, self.work.limits, desk.ticket, self.work.threads)
            desk.run = run
            run.start()
            for _ in run.watch():
                share = f"{run.done} of {run.total} steps" if run.total else "starting"
                words = notice(f"Way {number} of 2: {task} · {share}", "busy")
                yield {self.compared: words + comparison_view(done)}
            desk.ticket = None
            assert run.outcome is not None
            if run.outcome.result is None:
                yield {self.compared: notice(sentence(run.outcome.message), "bad"), **free}
                return
            done.append(run)
        yield {self.compared: comparison_view(done), **free}
