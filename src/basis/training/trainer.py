"""When a run saves its state, and how it is stopped."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from basis.adapters.weights import channels_last
from basis.errors import BasisError
from basis.files import reading
from basis.nn.unet import ClassConditional
from basis.tensors import per_item
from basis.training.config import TrainConfig
from basis.training.muon import Muon
from basis.training.objectives import (
    Denoising,
    Objective,
    SigmaDraw,
    draw_told,
    focused_sigmas,
    own_class,
)
from basis.training.processes import Processes, shared_loss
from basis.training.signals import as_floats, check_values, fingerprint, noise_unit
from basis.training.state import (
    STATE,
    append_log,
    check_data,
    check_settings,
    read_state,
    restore_optimizer,
    shaped,
    trim_log,
    write_state,
)

_LEAST = 1.0  # seconds between saves, however quick they are


class SavePace:
    """Saves as often as a share of the time allows: what a kill costs is what that share is worth.

    Args:
        share: The share of the time that saving may take, in (0, 1).

    A save is the block of a `with` statement, and is timed.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.wait = _LEAST
        self.began = self.ended = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self.ended >= self.wait

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self.ended = time.monotonic()
        self.wait = max(_LEAST, (self.ended - self.began) * (1 / self.share - 1))


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turns SIGINT and SIGTERM into an event, so that a step is never cut in half."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handler(number: int, frame: FrameType | None) -> None:
        stop.set()

    old = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for s, previous in old.items():
            signal.signal(s, previous)


class Trainer:
    """Trains a network in a folder, from wherever the folder left off.

    Args:
        model: What the objective asks for: a denoiser in the manner of `basis.nn.Denoiser` (called
            with (x, sigma), and with an `output_scale` that is the natural unit of its error at
            sigma), or a model with a `log_prob`. Its weights are replaced by the saved ones when
            the folder holds a state.
        images: All training data, (n, channels, *size): uint8 (v stands for v / 255) or floats.
        folder: Holds the state, the log and later the exported prior.
        config: How to train. A resumed run may change nothing but its length, `images` and
            `cooldown`.
        held_out: Data for the validation curve.
        labels: The class of every item of the data and of the held-out data after it, for a
            network that may be told classes; None tells it nothing.
        about: What else a reader of the state must know to build the model again.
        sigmas: How noise levels are drawn.
        objective: What a step lowers; the denoising error by default.
        device: Where to compute.
        compiled: Whether steps run through torch.compile, which needs a C++ compiler and starts
            slowly; large networks then train faster.

    Attributes:
        average: The model with the power-law average of its weights, in evaluation mode
            (`average.module`).
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        folder: str | Path,
        config: TrainConfig,
        *,
        held_out: Tensor | None = None,
        labels: Tensor | None = None,
        about: dict[str, Any] | None = None,
        sigmas: SigmaDraw | None = None,
        objective: Objective | None = None,
        device: torch.device | str = "cpu",
        compiled: bool = False,
    ) -> None:
        check_values(images)
        unit = noise_unit(images)
        self.folder, self.config = Path(folder), config.in_units(unit)
        self.processes = Processes()
        self.device = self.processes.device(torch.device(device))
        self.model = channels_last(model.to(self.device))
        self.called: Any = torch.compile(self.model) if compiled else self.model
        self.images, self.held_out, self.labels = images, held_out, labels
        self.classes = 0 if labels is None else int(model.network.config.classes)  # type: ignore[union-attr, arg-type]
        self.about = about or {}
        self.data = fingerprint(images, held_out)
        self.sigmas = sigmas or focused_sigmas(self.config)
        self.objective = objective or Denoising(unit)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = Muon(
            self.parameters, lr=config.lr, adam_lr=config.adam_lr, smallest=config.smallest
        )
        self.average = AveragedModel(model, multi_avg_fn=self._power_law)
        self.average.eval()
        self.generator = torch.Generator().manual_seed(config.seed)
        self.step = 0
        self.seconds = 0.0
        if (self.folder / STATE).exists():
            self._load()
        self._shared_loss: Any = None  # made at the first step, when the weights are there
        if self.processes.first:
            trim_log(self.folder, self.step)

    @property
    def seen(self) -> int:
        """Images seen so far."""
        return self.step * self.config.batch

    def factor(self) -> float:
        """Learning-rate factor now: warm-up, plateau, linear cool-down."""
        c = self.config
        left = (c.images - self.seen) / max(1.0, c.cooldown * c.images)
        return max(0.0, min(1.0, (self.seen + c.batch) / max(1, c.warmup), left))

    def train_step(self) -> float:
        """One step; returns the loss."""
        c, g = self.config, self.generator
        pick = torch.randint(len(self.images), (c.batch,), generator=g)
        clean = as_floats(self.images[pick])
        if c.flip:
            mirrored = torch.rand(c.batch, generator=g) < 0.5
            clean = torch.where(per_item(mirrored, clean).bool(), clean.flip(-1), clean)
        sigma = self.sigmas(c.batch, g)
        noisy = self.objective.noisy(clean, sigma, g)
        if self.step == 0 and not getattr(self.model, "started", True):
            self.model.start(noisy.to(self.device), sigma.to(self.device))  # type: ignore[operator]
        mine = self.processes.share(c.batch)
        told = None
        if self.labels is not None:
            told = draw_told(self.labels[pick], self.classes, g)[mine].to(self.device)
        clean, noisy, sigma = (t[mine].to(self.device) for t in (clean, noisy, sigma))
        if self._shared_loss is None:
            self._shared_loss = shared_loss(self.processes, self.objective, self.called)
        # fork_rng keeps dropout reproducible without touching the caller's global state.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(
                (c.seed * 1_000_003 + self.step + (self.processes.rank << 40)) % 2**63
            )
            weight = len(clean) * self.processes.count / c.batch
            loss = self._shared_loss(clean, noisy, sigma, weight, told)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, c.clip)
        if not torch.isfinite(norm):
            raise BasisError(
                f"training diverged at step {self.step}: lower lr ({c.lr}) or adam_lr ({c.adam_lr})"
            )
        self.optimizer.set_factor(self.factor())
        self.optimizer.step()
        self.step += 1
        self.average.update_parameters(self.model)
        return self.processes.mean(loss.item())

    def run(
        self,
        *,
        save_share: float = 0.02,
        log_every: int = 50,
        tell_every: float = 30.0,
        validate_every: int = 50_000,
        progress: bool = True,
    ) -> bool:
        """Trains until `config.images` are seen; False when stopped by a signal (state saved).

        Args:
            save_share: The share of the time that may go into saving the state.
            log_every: Steps between rows of the log.
            tell_every: Seconds between lines where there is no terminal.
            validate_every: Images between measurements on the held-out data.
            progress: Whether to show a progress bar.
        """
        c, first = self.config, self.processes.first
        progress = progress and first
        self.folder.mkdir(parents=True, exist_ok=True)
        bar = tqdm(
            total=c.images,
            initial=self.seen,
            unit="img",
            unit_scale=True,
            dynamic_ncols=True,
            disable=None if progress else True,
        )
        pace = SavePace(save_share)
        silent = bool(progress and bar.disable)  # no terminal for a bar: a line now and then
        told = last = time.monotonic()
        if silent and self.seen < c.images:
            print(f"training: {self.seen:,} of {c.images:,} images seen", file=sys.stderr)
        began = (self.seen, last)
        losses: list[float] = []
        with self.processes.alone(self.folder), stop_signals() as stop, bar:
            while self.seen < c.images and not self.processes.any(stop.is_set()):
                losses.append(self.train_step())
                bar.update(c.batch)
                now = time.monotonic()
                self.seconds += now - last
                last = now
                if not first:
                    continue
                if self.step % log_every == 0:
                    bar.set_postfix(loss=f"{self._log_loss(losses):.4f}")
                if self.held_out is not None and self._crossed(validate_every):
                    self._log_held_out(stop)
                if pace.due:
                    with pace:
                        self.save()
                if silent and now - told > tell_every:
                    self._print_progress(began, now)
                    told = now
            if first:
                if losses:
                    self._log_loss(losses)
                    if silent:
                        self._print_progress(began, time.monotonic())
                self.save()
        self.processes.wait()
        return self.seen >= c.images

    def _log_held_out(self, stop: threading.Event) -> None:
        """Logs the figures on the held-out data, or nothing if the run is stopped meanwhile."""
        for told in (False, True) if self.labels is not None else (False,):
            figures = self.validate(told=told, stop=stop)
            if stop.is_set():
                return
            if told:
                self._log(held_out_told_class=figures)
            else:
                self._log(held_out=figures, of=self.objective.label)

    def _print_progress(self, began: tuple[int, float], now: float) -> None:
        pace = (now - began[1]) / max(1, self.seen - began[0])
        left = pace * (self.config.images - self.seen) / 60
        told = f"{self.seen:,} of {self.config.images:,} images seen, {left:.0f} min left"
        print(told, file=sys.stderr, flush=True)

    def validate(
        self, *, told: bool = False, stop: threading.Event | None = None
    ) -> dict[str, float]:
        """The objective's figure by noise level, of the averaged weights on the held-out data.

        Args:
            told: Whether the network is told the class of each item.
            stop: Ends the measurement when it is set; the figures so far are returned.
        """
        assert self.held_out is not None
        figures: dict[str, float] = {}
        model = self.average.module
        with torch.inference_mode():
            for s in self.objective.levels(self.config):
                generator = torch.Generator().manual_seed(1)  # the same noise at every level
                values = []
                for first in range(0, len(self.held_out), 256):
                    if stop is not None and stop.is_set():
                        return figures
                    piece = self.held_out[first : first + 256]
                    x = as_floats(piece)
                    sigma = torch.full((len(x),), s)
                    noisy = self.objective.noisy(x, sigma, generator)
                    batch = (t.to(self.device) for t in (x, noisy, sigma))
                    if told and self.labels is not None:
                        start = len(self.images) + first
                        own = own_class(self.labels[start : start + len(x)], self.classes)
                        model = ClassConditional(self.average.module, own.to(self.device))  # type: ignore[arg-type]
                    values.append(self.objective.validate(model, *batch))
                figures[f"{s:g}"] = torch.cat(values).double().mean().item()
        return figures

    def save(self) -> None:
        """Writes everything the next step depends on, whole or not at all."""
        tensors: dict[str, Tensor] = {
            f"average.{n}": p for n, p in self.average.module.named_parameters()
        }
        tensors |= {f"model.{n}": p for n, p in self.model.named_parameters()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
        tensors["generator"] = self.generator.get_state()
        tensors |= {f"objective.{n}": t for n, t in self.objective.tensors().items()}
        meta = {
            "config": asdict(self.config),
            "about": self.about,
            "data": self.data,
            "step": self.step,
            "seconds": self.seconds,
        }
        write_state(self.folder, meta, tensors)

    def _load(self) -> None:
        meta, tensors = read_state(self.folder)
        check_settings(self.folder, TrainConfig(**meta["config"]), self.config)
        check_data(self.folder, meta, self.about, self.data)
        with reading(self.folder / STATE, "the state of this network"):
            for prefix, module in (("average", self.average.module), ("model", self.model)):
                with torch.no_grad():
                    for name, p in module.named_parameters():
                        p.copy_(shaped(tensors[f"{prefix}.{name}"], p))
            restore_optimizer(self.optimizer, tensors)
            self.generator.set_state(tensors["generator"])
            mark = "objective."
            saved = {n.removeprefix(mark): t for n, t in tensors.items() if n.startswith(mark)}
            self.objective.load(saved)
        self.step, self.seconds = meta["step"], meta["seconds"]
        self.average.n_averaged.fill_(self.step)

    def _power_law(self, averages: Sequence[Any], current: Sequence[Any], count: Any) -> None:
        """Moves the averages of `count` earlier weights towards the current ones."""
        keep = (1 - 1 / (int(count) + 1)) ** (self.config.average + 1)
        for average, p in zip(averages, current, strict=True):
            average.lerp_(p, 1 - keep)

    def _crossed(self, every: int) -> bool:
        return self.seen // every > (self.seen - self.config.batch) // every

    def _log_loss(self, losses: list[float]) -> float:
        """Logs the mean loss since the last row and starts anew."""
        mean = sum(losses) / len(losses)
        losses.clear()
        self._log(loss=mean, factor=self.factor())
        return mean

    def _log(self, **values: object) -> None:
        times = {"step": self.step, "images": self.seen, "seconds": round(self.seconds, 1)}
        append_log(self.folder, {**times, **values})
