"""The training loop: steps, saves, and measurements on held-out data."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from basis.adapters.weights import channels_last
from basis.errors import BasisError
from basis.files import reading
from basis.nn.unet import ClassConditional
from basis.tensors import per_item
from basis.training.config import TrainConfig
from basis.training.data import as_floats, check_values, fingerprint, noise_scale
from basis.training.muon import Muon
from basis.training.objectives import (
    Denoising,
    Objective,
    SigmaDraw,
    draw_conditions,
    focused_sigmas,
    own_conditions,
)
from basis.training.processes import Processes, Report, progress_bar, stop_event
from basis.training.state import (
    STATE,
    StateInfo,
    append_log,
    check_same_run,
    read_state,
    restore_optimizer,
    shaped,
    trim_log,
    write_state,
)

_SAVE_FRACTION = 0.02
"""The fraction of the time that saving may take; a kill loses about what a save takes, times 50."""


class _Loss(nn.Module):
    """An objective's loss on part of a batch, weighted so that the parts average to the whole."""

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.objective, self.model = objective, model

    def forward(
        self,
        clean: Tensor,
        noisy: Tensor,
        sigma: Tensor,
        weight: float,
        condition: Tensor | None = None,
    ) -> Tensor:
        model: Any = self.model
        if condition is not None:
            model = ClassConditional(model, condition)
        return weight * self.objective.loss(model, clean, noisy, sigma)


class Trainer:
    """Trains a network in a folder, from wherever the folder left off.

    Args:
        model: What the objective needs: a denoiser such as `basis.nn.Denoiser`, called with
            (x, sigma) and with an `output_scale`, or a model with a `log_prob`. Its weights are
            replaced by the saved ones if the folder has a state.
        images: All training data, (n, channels, *size): uint8 (v stands for v / 255) or floats.
        folder: Holds the state, the log and later the exported prior.
        config: The settings; those of `RESUMABLE` may differ from the run's earlier ones.
        held_out: Data for validation.
        labels: The class of every item of the data and then of the held-out data, for a conditional
            network.
        about: What else a reader of the state needs to build the model.
        sigmas: How noise levels are drawn.
        objective: The loss; the denoising error by default.
        device: Where to compute.
        compile: Whether steps run through torch.compile, which needs a C++ compiler and starts
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
        compile: bool = False,
    ) -> None:
        check_values(images)
        scale = noise_scale(images)
        self.folder, self.config = Path(folder), config.scaled(scale)
        self.processes = Processes()
        self.device = self.processes.device(torch.device(device))
        self.model = channels_last(model.to(self.device))
        self.called: Any = torch.compile(self.model) if compile else self.model
        self.images, self.held_out, self.labels = images, held_out, labels
        self.classes = 0 if labels is None else int(model.network.config.classes)  # type: ignore[union-attr, arg-type]
        self.about = about or {}
        self.data = fingerprint(images, held_out)
        self.sigmas = sigmas or focused_sigmas(self.config)
        self.objective = objective or Denoising(scale)
        if self.objective.teacher and self.processes.count > 1:
            raise BasisError("a teacher works with a single process only")
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
        self._loss: Any = None  # made at the first step, when the weights are there
        if self.processes.first:
            trim_log(self.folder, self.step)

    @property
    def seen(self) -> int:
        """Images seen so far."""
        return self.step * self.config.batch_size

    @property
    def budget(self) -> tuple[float, float]:
        """The length of the run and how much of it is done, in images or in seconds."""
        if self.config.hours is not None:
            return 3600 * self.config.hours, self.seconds
        return self.config.images, self.seen

    @property
    def finished(self) -> bool:
        """Whether the run has its full length."""
        total, done = self.budget
        return done >= total

    def factor(self) -> float:
        """The current factor of the learning rates: warm-up, plateau, linear cool-down."""
        c = self.config
        total, done = self.budget
        left = (total - done) / max(1.0, c.cooldown * total)
        return max(0.0, min(1.0, (self.seen + c.batch_size) / max(1, c.warmup), left))

    def train_step(self) -> float:
        """One step; returns the loss."""
        c, g = self.config, self.generator
        pick = torch.randint(len(self.images), (c.batch_size,), generator=g)
        clean = as_floats(self.images[pick])
        if c.flip:
            mirrored = torch.rand(c.batch_size, generator=g) < 0.5
            clean = torch.where(per_item(mirrored, clean).bool(), clean.flip(-1), clean)
        sigma = self.sigmas(c.batch_size, g)
        noisy = self.objective.noisy(clean, sigma, g)
        if self.step == 0 and not getattr(self.model, "started", True):
            self.model.start(noisy.to(self.device), sigma.to(self.device))  # type: ignore[operator]
        mine = self.processes.share(c.batch_size)
        condition = None
        if self.labels is not None:
            condition = draw_conditions(self.labels[pick], self.classes, g)
            condition = condition[mine].to(self.device)
        clean, noisy, sigma = (t[mine].to(self.device) for t in (clean, noisy, sigma))
        if self._loss is None:
            self._loss = _Loss(self.objective, self.called)
            if self.processes.count > 1:
                # Models with a likelihood may have parts that a batch does not use.
                unused = not isinstance(self.objective, Denoising)
                self._loss = DistributedDataParallel(self._loss, find_unused_parameters=unused)
        # fork_rng keeps dropout reproducible without touching the caller's global state.
        with torch.random.fork_rng(devices=[]):
            seed = c.seed * 1_000_003 + self.step + (self.processes.rank << 40)
            torch.manual_seed(seed % 2**63)
            weight = len(clean) * self.processes.count / c.batch_size
            loss = self._loss(clean, noisy, sigma, weight, condition)
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
        self, *, log_every: int = 50, validate_every: int = 50_000, progress: Report = True
    ) -> bool:
        """Trains to the end of the run; False if a signal stopped it (the state is saved).

        Args:
            log_every: Steps between rows of the log.
            validate_every: Images between measurements on the held-out data.
            progress: As for `basis.train`.
        """
        first = self.processes.first
        self.folder.mkdir(parents=True, exist_ok=True)
        total, done = self.budget
        unit = "images" if self.config.hours is None else "s"
        bar = progress_bar("training", total, done, unit, first and progress is True)
        report = progress if callable(progress) else None
        losses: list[float] = []
        saved = last = time.monotonic()
        wait = 1.0
        with self.processes.lock(self.folder), stop_event() as stop, bar:
            while not self.finished and not self.processes.mean(stop.is_set()) > 0:
                losses.append(self.train_step())
                now = time.monotonic()
                self.seconds += now - last
                last = now
                if self.config.hours is not None:
                    self.seconds = self.processes.mean(self.seconds)  # all end at the same step
                if not first:
                    continue
                bar.update(round(self.budget[1]) - bar.n)
                if self.step % log_every == 0:
                    bar.set_postfix(loss=f"{self._log_loss(losses, report):.4f}", refresh=False)
                batch = self.config.batch_size
                crossed = self.seen // validate_every > (self.seen - batch) // validate_every
                if self.held_out is not None and crossed:
                    self._log_held_out(stop, report)
                if time.monotonic() - saved >= wait:
                    began = time.monotonic()
                    self.save()
                    saved = time.monotonic()
                    wait = max(1.0, (saved - began) * (1 / _SAVE_FRACTION - 1))
            if first:
                if losses:
                    self._log_loss(losses, report)
                self.save()
        self.processes.wait()
        return self.finished

    def validate(
        self, *, conditional: bool = False, stop: threading.Event | None = None
    ) -> dict[str, float]:
        """The objective's figure by noise level, of the averaged weights on the held-out data.

        Args:
            conditional: Whether the network gets the class of each item.
            stop: Ends the measurement when it is set; the figures so far are returned.
        """
        assert self.held_out is not None
        figures: dict[str, float] = {}
        with torch.inference_mode():
            for s in self.objective.levels(self.config):
                generator = torch.Generator().manual_seed(1)  # the same noise at every level
                values = []
                for first in range(0, len(self.held_out), 256):
                    if stop is not None and stop.is_set():
                        return figures
                    x = as_floats(self.held_out[first : first + 256])
                    sigma = torch.full((len(x),), s)
                    noisy = self.objective.noisy(x, sigma, generator)
                    batch = (t.to(self.device) for t in (x, noisy, sigma))
                    model: Any = self.average.module
                    if conditional and self.labels is not None:
                        start = len(self.images) + first
                        own = own_conditions(self.labels[start : start + len(x)], self.classes)
                        model = ClassConditional(model, own.to(self.device))
                    values.append(self.objective.validate(model, *batch))
                figures[f"{s:g}"] = torch.cat(values).double().mean().item()
        return figures

    def save(self) -> None:
        """Writes everything that the next step depends on, atomically."""
        tensors: dict[str, Tensor] = {
            f"average.{n}": p for n, p in self.average.module.named_parameters()
        }
        tensors |= {f"model.{n}": p for n, p in self.model.named_parameters()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
        tensors["generator"] = self.generator.get_state()
        tensors |= {f"objective.{n}": t for n, t in self.objective.tensors().items()}
        config = asdict(self.config)
        info = StateInfo(config, self.step, self.seconds, self.about, self.data)
        write_state(self.folder, info, tensors)

    def _load(self) -> None:
        info, tensors = read_state(self.folder)
        check_same_run(self.folder, info, self.config, self.about.get("teacher"), self.data)
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
        self.step, self.seconds = info.step, info.seconds
        self.average.n_averaged.fill_(self.step)

    def _power_law(self, averages: Sequence[Any], current: Sequence[Any], count: Any) -> None:
        """Moves the averages of `count` earlier weights towards the current ones."""
        keep = (1 - 1 / (int(count) + 1)) ** (self.config.average + 1)
        for average, p in zip(averages, current, strict=True):
            average.lerp_(p, 1 - keep)

    def _log_held_out(self, stop: threading.Event, report: Any) -> None:
        """Logs the figures on the held-out data, or nothing if the run is stopped meanwhile."""
        rows = {"held_out": False} | ({"held_out_conditional": True} if self.classes else {})
        for name, conditional in rows.items():
            figures = self.validate(conditional=conditional, stop=stop)
            if not stop.is_set():
                self._log(report, **{name: figures}, of=self.objective.label)

    def _log_loss(self, losses: list[float], report: Any) -> float:
        """Logs the mean loss since the last row and empties the list."""
        mean = sum(losses) / len(losses)
        losses.clear()
        self._log(report, loss=mean, factor=self.factor())
        return mean

    def _log(self, report: Any, **values: object) -> None:
        times = {"step": self.step, "images": self.seen, "seconds": round(self.seconds, 1)}
        append_log(self.folder, {**times, **values})
        if report:
            report({**times, **values})
