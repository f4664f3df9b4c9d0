"""What a visitor asks for, and its separation in a thread that can be watched and stopped."""

from __future__ import annotations

import functools
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from basis._colorize import colorize
from basis._inputs import make_plan
from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.page.access import Limits
from basis.plots.drawing import to_picture, write_picture
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled, large_enough
from basis.progress import Progress
from basis.result import Result
from basis.settings import METHODS, Estimate
from basis.signals.observation import Observation
from basis.store.loading import load_prior

Kind = Literal["separate", "colorize", "inpaint"]

_CHAINS = 4  # shown during a run
_FRAMES = 40  # of a run, at most
_SHARE = 0.25  # of the time that may be used for frames


@dataclass(frozen=True)
class Task:
    """An observation and how it is to be separated.

    Attributes:
        kind: Find the sources of a sum, the colors of a grey photo, or what is under a mask.
        observation: A mixture with its alphas, and its sources if they are known; or a photo.
        prior: A name that `basis.list_priors` knows.
        method: The `method` of `basis.separate`.
        estimate: The `estimate` of `basis.separate`; only for sums.
        samples: Posterior samples to draw; 0 for none.
        seed: The seed of all random numbers.
        mask: Of an inpainting: 1 where the photo is kept, 0 where it is filled in, (1, height,
            width).
        alphas_known: Whether the separation may use the alphas; otherwise it estimates them.
    """

    kind: Kind
    observation: Observation
    prior: str = "mnist"
    method: str = "fast"
    estimate: Estimate = "mode"
    samples: int = 0
    seed: int = 0
    mask: Tensor | None = field(default=None, repr=False)
    alphas_known: bool = True

    def __str__(self) -> str:
        return f"{self.prior}, {self.arguments.get('method', 'ancestral')}"

    @property
    def alphas(self) -> list[float]:
        """The coefficients that the sources were mixed with."""
        known = self.observation.alphas
        return [1.0] if known is None else known.tolist()

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments that are the same in Python and on the command line."""
        method: str | None = self.method
        if self.kind != "separate" and method in METHODS:  # searches are for several sources
            method = None if self.kind == "colorize" else "ancestral"
        values = {"method": method, "samples": self.samples or None, "seed": self.seed}
        if self.kind == "separate" and self.estimate != "mode":
            values["estimate"] = self.estimate
        return {name: value for name, value in values.items() if value is not None}

    def differs(self, other: Task) -> bool:
        """Whether another task has another observation, prior or mixing."""
        facts = [(t.kind, t.prior, t.alphas, t.alphas_known) for t in (self, other)]
        data = [
            (t.observation.values, torch.ones(()) if t.mask is None else t.mask)
            for t in (self, other)
        ]
        return facts[0] != facts[1] or not all(map(torch.equal, *data))

    @property
    def tiles(self) -> int:
        """The number of the prior's tiles that cover the observation."""
        prior = cached_prior(self.prior)
        tiled = large_enough([prior], tuple(self.observation.values.shape[2:]))[0]
        return len(tiled.corners) if isinstance(tiled, Tiled) else 1

    def expected_seconds(self) -> float:
        """About how long a separation of a sum takes if nothing else is running."""
        prior, k = cached_prior(self.prior), len(self.alphas)
        mixing = mixture(self.alphas).fit(prior.shape)
        plan = make_plan(self.method, self.estimate, self.samples or None, [prior] * k, mixing)
        seconds = plan.evaluations(k) * k * self.tiles * _seconds(self.prior)
        return seconds / (1 - _SHARE)

    def check(self) -> None:
        """Raises an error, with a sentence for the page, if the task cannot be done."""
        if 0 in self.alphas:
            raise BasisError("an alpha of zero leaves a source out: raise it or mix fewer sources")
        if self.kind == "inpaint" and (self.mask is None or bool((self.mask == 1).all())):
            raise BasisError("nothing is marked yet: brush over the part to fill in")
        if self.mask is not None and bool((self.mask == 0).all()):
            raise BasisError("all of the photo is marked: leave some of it visible")

    def solve(self, progress: Callable[[Progress], None]) -> Result:
        """Does the task."""
        arguments: dict[str, Any] = {**self.arguments, "progress": progress}
        prior = cached_prior(self.prior)
        if self.kind == "colorize":
            return colorize(self.observation, prior, **arguments)
        if self.kind == "inpaint":
            return separate(self.observation, prior, (1,), mask=self.mask, **arguments)
        if self.alphas_known:
            return separate(self.observation, prior, self.alphas, **arguments)
        return separate(self.observation, prior, "unknown", sources=len(self.alphas), **arguments)

    def denoise(self, states: Tensor, sigma: float) -> Tensor:
        """The prior's estimate of the clean sources, for states (n, channels, height, width)."""
        with torch.inference_mode():
            prior = large_enough([cached_prior(self.prior)], tuple(states.shape[2:]))[0]
            return prior.denoise(states, sigma)

    @property
    def file(self) -> str:
        """The name of the file of the observation."""
        return "mixture.npz" if self.kind == "separate" else "photo.png"

    def save_inputs(self, folder: Path) -> None:
        """Writes the files that `python_code` and `command` read."""
        self.observation.save(folder / self.file)
        if self.mask is not None:
            write_picture(folder / "mask.png", to_picture(self.mask))

    def python_code(self) -> str:
        """Python code for the same result, from the files of `save_inputs`."""
        function = "colorize" if self.kind == "colorize" else "separate"
        arguments = [f'"{self.file}"', f'"{self.prior}"']
        if self.kind == "inpaint":
            arguments += ["(1,)", 'mask="mask.png"']
        elif self.kind == "separate" and self.alphas_known:
            arguments.append(f"({', '.join(f'{a:g}' for a in self.alphas)})")
        elif self.kind == "separate":
            arguments += ['"unknown"', f"sources={len(self.alphas)}"]
        for name, value in self.arguments.items():
            arguments.append(f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}")
        return (
            f"import basis\n\nresult = basis.{function}(\n    {', '.join(arguments)}\n)\n"
            'result.save("separated")'
        )

    def command(self) -> str:
        """A command for the same result, from the files of `save_inputs`."""
        words = ["basis", "colorize" if self.kind == "colorize" else "separate"]
        words += [self.file, "--prior", self.prior]
        if self.kind != "colorize":
            known = [f"{a:g}" for a in self.alphas]
            words += ["--alphas", *(known if self.alphas_known else ["unknown"] * len(known))]
        if self.kind == "inpaint":
            words += ["--mask", "mask.png"]
        for name, value in self.arguments.items():
            words += [f"--{name}", str(value)]
        return shlex.join([*words, "--out", "separated"])


_loading = threading.Lock()


@functools.lru_cache(maxsize=8)
def _load(name: str) -> Prior:
    return load_prior(name)


def cached_prior(name: str) -> Prior:
    """A prior by name, loaded once for all visitors."""
    with _loading:
        return _load(name)


@functools.lru_cache(maxsize=64)
def _seconds(name: str) -> float:
    """The time of one evaluation of a prior for one signal, measured once."""
    prior, count, times = cached_prior(name), 4, []
    for _ in range(5):
        begun = time.perf_counter()
        with torch.inference_mode():
            prior.denoise(torch.zeros(count, *prior.shape), 0.5)
        times.append((time.perf_counter() - begun) / count)
    return min(times)


class StoppedError(Exception):
    """Raised inside a separation to end it; its text says why."""


@dataclass(frozen=True)
class Frame:
    """A moment of a run.

    Attributes:
        step, steps: Steps done, and in total.
        sigma: The noise level.
        states: The noisy chains, (chains, sources, channels, height, width), uint8.
        clean: The prior's estimates of the clean sources, the same shape.
    """

    step: int
    steps: int
    sigma: float
    states: Tensor = field(repr=False)
    clean: Tensor = field(repr=False)


class Run:
    """A task in its own thread.

    Args:
        task: What to do.
        limits: How long it may take, and how long it goes on without being watched.
        slots: Acquired during the work, so that no more separations run at the same time than
            are allowed, even while a stopped one ends.
        threads: Threads of torch; its default if None.

    Attributes:
        frames: The frames so far.
        result: The result, or None if there is none (yet).
        message: Why there is no result.
        step, steps: Steps done, and in total.
        seconds: The time it has taken.
    """

    def __init__(
        self,
        task: Task,
        limits: Limits,
        slots: threading.Semaphore | None = None,
        threads: int | None = None,
    ) -> None:
        self.task, self.limits, self.slots, self.threads = task, limits, slots, threads
        self.frames: list[Frame] = []
        self.result: Result | None = None
        self.message = ""
        self.step, self.steps, self.seconds = 0, 0, 0.0
        self.started = self._watched = time.monotonic()
        self._earlier = 0  # steps of stages that have ended
        self._drawing = 0.0  # seconds used for frames
        self._stop, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="separation")

    def start(self) -> Run:
        """Starts the work."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the work after the current step."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether it was stopped."""
        return self._stop.is_set()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self._ended.is_set()

    def join(self, seconds: float) -> bool:
        """Waits for the work to end; whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def watch(self, every: float = 0.2) -> Iterator[None]:
        """Yields at intervals of `every` seconds until the run ends."""
        while not self._ended.is_set():
            self._watched = time.monotonic()
            yield
            self._ended.wait(every)

    def _work(self) -> None:
        if self.threads is not None:  # torch keeps this setting for each thread
            torch.set_num_threads(self.threads)
        try:
            with self.slots or nullcontext():
                self._check()
                self.task.check()
                self.result = self.task.solve(self._on_step)
        except (StoppedError, BasisError) as error:
            self.message = str(error)
        except Exception as error:  # shown on the page, which stays usable
            self.message = f"the separation failed ({type(error).__name__}: {error})"
        finally:
            self.seconds = time.monotonic() - self.started
            self._ended.set()

    def _check(self) -> None:
        """Ends the separation if it was stopped or has reached a limit."""
        now = time.monotonic()
        if self.stopping:
            raise StoppedError(f"Stopped after {self.step} of {self.steps} steps.")
        if now - self._watched > self.limits.idle:
            raise StoppedError("Stopped because the page was closed.")
        if now - self.started > self.limits.seconds:
            raise StoppedError(
                f"Stopped at the time limit of {self.limits.seconds:g} seconds: choose a faster "
                "method, fewer samples or a smaller picture."
            )

    def _on_step(self, progress: Progress) -> None:
        if progress.done < self.step - self._earlier:  # another stage has begun
            self._earlier = self.steps
        self.seconds = time.monotonic() - self.started
        self.step = self._earlier + progress.done
        self.steps = self._earlier + progress.total
        self._check()
        if progress.state is None:
            return
        # The first and the last frame are always shown, others while there is time for them.
        begun = time.monotonic()
        ends = not self.frames or progress.done == progress.total
        spare = self._drawing < _SHARE * (begun - self.started)
        if ends or (spare and progress.done % max(1, progress.total // _FRAMES) == 0):
            states = progress.state[0, :_CHAINS]
            clean = self.task.denoise(states.flatten(0, 1), progress.sigma).view_as(states)
            frame = Frame(self.step, self.steps, progress.sigma, pixels(states), pixels(clean))
            self._drawing += time.monotonic() - begun
            self.frames.append(frame)


def pixels(x: Tensor) -> Tensor:
    """Values in [0, 1] as uint8."""
    return x.detach().clamp(0, 1).mul(255).round().to("cpu", torch.uint8)
