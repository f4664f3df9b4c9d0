"""One separation in a thread of its own, that can be watched and stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from basis import metrics
from basis.errors import BasisError
from basis.page.limits import Limits
from basis.page.line import Ticket
from basis.page.task import Task, check_task
from basis.progress import Progress
from basis.result import Result
from basis.samplers.noise import Noise, item_seeds
from basis.samplers.problem import Problem
from basis.search.plausibility import energy
from basis.search.ranking import Ranking

CHAINS = 4
"""Chains that are shown while they run."""
_FRAMES = 40  # of a run, at most
_SHARE = 0.25  # of the time may go to watching
_RANKING = Ranking(levels=(2 / 3,), draws=1)


class Stopped(Exception):
    """Raised inside a separation that is to end; says why."""


@dataclass(frozen=True)
class Frame:
    """A moment of a run.

    Attributes:
        step, steps: Steps done, and in all.
        sigma: The noise level.
        energy: The mean denoising energy of the chains, in nats up to a constant.
        residual: The mean root-mean-square distance of their sum from the mixture.
        states: The chains as they are, (chains, k, channels, height, width), uint8.
        guesses: What the prior takes them to become, the same shape.
    """

    step: int
    steps: int
    sigma: float
    energy: float
    residual: float
    states: Tensor = field(repr=False)
    guesses: Tensor = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """What a run ended with: a result, or the sentence that says why there is none.

    Attributes:
        answer: What is shown, as `Task.solve` gives it.
        result: The separation's own.
        energies: Those of the draws, (draws,), in nats up to a constant.
        message: Why there is no result.
    """

    answer: Tensor | None = None
    result: Result | None = None
    energies: Tensor | None = None
    message: str = ""

    @property
    def order(self) -> list[int]:
        """The draws' numbers, the most plausible first."""
        return [] if self.energies is None else self.energies.argsort().tolist()


class Run:
    """A task at work.

    Args:
        task: What to do.
        limits: How long it may take, and how long nobody may be looking.
        ticket: The turn that is given up when the work ends, however it ends.
        threads: Cores that torch may use; what it is set to by default.
    """

    def __init__(
        self,
        task: Task,
        limits: Limits,
        ticket: Ticket | None = None,
        threads: int | None = None,
    ) -> None:
        self.task, self.limits, self.ticket, self.threads = task, limits, ticket, threads
        self.frames: list[Frame] = []
        self.outcome: Outcome | None = None
        self.done, self.total, self._before = 0, 0, 0
        self._stop, self._news = threading.Event(), threading.Condition()
        self._seen = time.monotonic()
        self._watching = 0.0
        self.started = time.monotonic()
        self._thread = threading.Thread(target=self._work, daemon=True, name="separation")

    def start(self) -> Run:
        """Begins the work."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the work after the step that it is in."""
        self._stop.set()

    @property
    def alive(self) -> bool:
        """Whether the work still uses the cores."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Waits for the work to end."""
        self._thread.join(seconds)

    def watch(self, every: float = 0.1) -> Iterator[Frame | None]:
        """Frames as they come, at most one in `every` seconds, the newest first; ends with the run.

        None is yielded where nothing is new for a second, so that whoever watches may look after
        other things.
        """
        shown = 0
        while True:
            with self._news:
                self._seen = time.monotonic()
                if len(self.frames) == shown and self.outcome is None:
                    self._news.wait(timeout=1.0)
                ready = len(self.frames) > shown or self.outcome is not None
                newest = self.frames[-1] if len(self.frames) > shown else None
                shown, over = len(self.frames), self.outcome is not None
            if newest is not None or not ready:
                yield newest
            if over:
                return
            time.sleep(every)

    def _work(self) -> None:
        # torch keeps the number of threads for each thread that asks.
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            check_task(self.task)
            self._problem = self._make_problem()
            answer, result = self.task.solve(self._on_step)
            outcome = Outcome(answer, result, self._energies(result))
        except Stopped as why:
            outcome = Outcome(message=str(why))
        except BasisError as error:
            outcome = Outcome(message=str(error))
        except Exception as error:  # the page goes on, and says what it can
            outcome = Outcome(message=f"the separation failed ({type(error).__name__}: {error})")
        finally:
            if self.ticket is not None:
                self.ticket.leave()
        with self._news:
            self.outcome = outcome
            self._news.notify_all()

    def _energies(self, result: Result) -> Tensor:
        """How improbable each draw is: the sum over its sources, (draws,)."""
        drawn = result.samples[0]
        with torch.no_grad():
            each = energy(self._problem.priors[0], drawn.flatten(0, 1))
        return each.view(drawn.shape[:2]).sum(dim=1).float()

    def _make_problem(self) -> Problem:
        """The task as samplers see it, to ask for energies without counting as the run's own."""
        prior, mixing = self.task.prior(), self.task.mixing().fit(self.task.prior().shape)
        observed = self.task.observed
        if tuple(observed.shape[2:]) != prior.shape[1:]:
            observed = torch.nn.functional.interpolate(
                observed, size=prior.shape[1:], mode="bicubic", antialias=True
            ).clamp(0, 1)
        self._seeds = [row[0] for row in item_seeds(observed, 1, self.task.seed, "page")]
        return Problem([prior] * self.task.sources, mixing, observed, Noise(self._seeds))

    def _on_step(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.done < self.done - self._before:  # another stage begins
            self._before = self.total
        self.done, self.total = self._before + progress.done, self._before + progress.total
        if self._stop.is_set():
            raise Stopped(f"Stopped after {self.done} of {self.total} steps.")
        if now - self._seen > self.limits.idle:
            raise Stopped("Stopped, as nobody was looking.")
        if now - self.started > self.limits.seconds:
            raise Stopped(
                f"Stopped after {self.limits.seconds:g} seconds, the longest that a run may take "
                "here: choose a smaller effort, fewer draws or a smaller picture."
            )
        every = max(1, progress.total // _FRAMES)
        # The first and the last moment are always shown; those between, where there is time.
        end = not self.frames or progress.done == progress.total
        spare = self._watching < _SHARE * (now - self.started)
        if progress.state is not None and (end or (progress.done % every == 0 and spare)):
            frame = self._frame(progress, progress.state[0, :CHAINS])
            self._watching += time.monotonic() - now
            with self._news:
                self.frames.append(frame)
                self._news.notify_all()

    def _frame(self, progress: Progress, chains: Tensor) -> Frame:
        """chains: (chains, k, channels, height, width)."""
        guesses = self._problem.denoise(chains, progress.sigma)
        nats = _RANKING.energies(self._problem, chains[None], self._seeds).sum(dim=2)
        return Frame(
            self.done,
            self.total,
            progress.sigma,
            nats.mean().item(),
            self._residual(chains).mean().item(),
            pixels(chains),
            pixels(guesses),
        )

    def _residual(self, chains: Tensor) -> Tensor:
        """How far the sum of each chain is from what is observed, (chains,)."""
        observed = self._problem.observation
        if self.task.told:
            observed = observed.expand(len(chains), *[-1] * (chains.ndim - 2))
            return metrics.rms(self._problem.mixing.residual(chains, observed))
        # With the weights that fit it best, as the run's own are not known yet.
        columns = chains.flatten(2).movedim(1, 2)
        wanted = observed.flatten(1)[..., None].expand(len(chains), -1, -1)
        weights = torch.linalg.lstsq(columns, wanted).solution
        return metrics.rms((wanted - columns @ weights)[..., 0])


def pixels(x: Tensor) -> Tensor:
    """Values in [0, 1] as uint8."""
    return x.detach().clamp(0, 1).mul(255).round().to("cpu", torch.uint8)
