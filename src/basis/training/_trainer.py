"""Denoising score matching, resumable to the step.

The loop draws images, noise levels and noise from one generator whose state is saved with the weights, so
that a run stopped anywhere and resumed is bit for bit the run that was never stopped.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm import tqdm

from basis._errors import BasisError
from basis._files import whole_file
from basis.training._config import TrainConfig
from basis.training._muon import Muon
from basis.training._objectives import Denoising, Objective

STATE = "state.safetensors"
LOG = "log.jsonl"
RESUMABLE = ("images", "cooldown")
"""Settings that a resumed run may change: how long it goes on and how it ends."""


SigmaDraw = Callable[[int, torch.Generator], Tensor]


def log_uniform(count: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """Numbers whose logarithms are uniform between those of low and high."""
    bottom, top = math.log(low), math.log(high)
    return (torch.rand(count, generator=generator) * (top - bottom) + bottom).exp()


def focused_sigmas(config: TrainConfig) -> SigmaDraw:
    """Noise levels as `TrainConfig` describes them."""
    low, high = math.log(config.sigma_min), math.log(config.sigma_max)

    def draw(count: int, generator: torch.Generator) -> Tensor:
        coin = torch.rand(count, generator=generator)
        spread = torch.rand(count, generator=generator) * (high - low) + low
        focus = torch.randn(count, generator=generator) * config.sigma_spread
        focus = (focus + math.log(config.sigma_focus)).clamp(low, high)
        return torch.where(coin < config.sigma_uniform, spread, focus).exp()

    return draw


def likelihood_sigmas(config: TrainConfig, noiseless: float = 0.1) -> SigmaDraw:
    """Noise levels log-uniform over the whole range, and none at all for a share of the images."""

    def draw(count: int, generator: torch.Generator) -> Tensor:
        coin = torch.rand(count, generator=generator)
        sigma = log_uniform(count, config.sigma_min, config.sigma_max, generator)
        return torch.where(coin < noiseless, torch.zeros(()), sigma)

    return draw


def one_sigma(sigma: float) -> SigmaDraw:
    """The same noise level for every image; 0 for the noiseless model."""
    return lambda count, generator: torch.full((count,), sigma)


def discrete_sigmas(levels: Tensor) -> SigmaDraw:
    """Noise levels drawn uniformly from a list, as NCSN is trained."""

    def draw(count: int, generator: torch.Generator) -> Tensor:
        return levels[torch.randint(len(levels), (count,), generator=generator)]

    return draw


class Trainer:
    """Trains a denoiser in a folder, from wherever the folder left off.

    Args:
        model: What the objective asks for: a denoiser in the manner of `basis.nn.Denoiser` (called with (x, sigma), and
            with an `output_scale` that is the natural unit of its error at sigma), or a model with a `log_prob`. Its
            weights are replaced by the saved ones when the folder holds a state.
        images: All training images, uint8, (n, channels, height, width).
        folder: Holds the state, the log and later the exported prior.
        config: How to train. A resumed run may change nothing but its length, `images` and `cooldown`.
        held_out: Images for the validation curve.
        about: What else a reader of the state must know to build the model again.
        sigmas: How noise levels are drawn.
        objective: What a step lowers; the denoising error by default.
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        folder: str | Path,
        config: TrainConfig,
        *,
        held_out: Tensor | None = None,
        about: dict[str, Any] | None = None,
        sigmas: SigmaDraw | None = None,
        objective: Objective | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise BasisError("training images must be uint8 of shape (n, channels, height, width)")
        self.folder, self.config = Path(folder), config
        self.device = torch.device(device)
        self.model = model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.images, self.held_out = images, held_out
        self.about = about or {}
        self.sigmas = sigmas or focused_sigmas(config)
        self.objective = objective or Denoising()
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = Muon(
            self.parameters, lr=config.lr, adam_lr=config.adam_lr, smallest=config.smallest
        )
        self.average = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.generator = torch.Generator().manual_seed(config.seed)
        self.step = 0
        self.seconds = 0.0
        if (self.folder / STATE).exists():
            self._load()
        self._trim_log()

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
        clean = self.images[pick].float().div_(255)
        if c.flip:
            mirrored = torch.rand(c.batch, generator=g) < 0.5
            clean = torch.where(mirrored.view(-1, 1, 1, 1), clean.flip(-1), clean)
        sigma = self.sigmas(c.batch, g)
        noisy = self.objective.noisy(clean, sigma, g)
        clean, noisy, sigma = (t.to(self.device) for t in (clean, noisy, sigma))
        if self.step == 0 and not getattr(self.model, "started", True):
            self.model.start(noisy, sigma)  # type: ignore[operator]
        # fork_rng keeps dropout reproducible without touching the caller's global state.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(c.seed * 1_000_003 + self.step)
            loss = self.objective.loss(self.model, clean, noisy, sigma)
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
        keep = (1 - 1 / self.step) ** (c.average + 1)
        for name, p in self.model.named_parameters():
            self.average[name].lerp_(p.detach(), 1 - keep)
        return loss.item()

    def run(
        self,
        *,
        save_every: float = 120.0,
        log_every: int = 50,
        validate_every: int = 50_000,
        progress: bool = True,
    ) -> bool:
        """Trains until `config.images` are seen. Returns False when stopped by a signal (state saved)."""
        c = self.config
        self.folder.mkdir(parents=True, exist_ok=True)
        bar = tqdm(
            total=c.images,
            initial=self.seen,
            unit="img",
            unit_scale=True,
            dynamic_ncols=True,
            disable=None if progress else True,
        )
        saved = last = time.monotonic()
        began = (self.seen, last)
        losses: list[float] = []
        with _stop_signals() as stop, bar:
            while self.seen < c.images and not stop.is_set():
                losses.append(self.train_step())
                bar.update(c.batch)
                now = time.monotonic()
                self.seconds += now - last
                last = now
                if self.step % log_every == 0:
                    bar.set_postfix(loss=f"{self._log_loss(losses):.4f}")
                if self.held_out is not None and self._crossed(validate_every):
                    self._log(held_out=self.validate(), of=self.objective.label)
                if now - saved > save_every:
                    self.save()
                    saved = time.monotonic()
                    if progress and bar.disable:  # no terminal: a line now and then
                        self._tell_progress(began, now)
            if losses:
                self._log_loss(losses)
            self.save()
        return self.seen >= c.images

    def _tell_progress(self, began: tuple[int, float], now: float) -> None:
        pace = (now - began[1]) / max(1, self.seen - began[0])
        left = pace * (self.config.images - self.seen) / 60
        print(
            f"{self.seen:,} of {self.config.images:,} images, {left:.0f} min left", file=sys.stderr
        )

    def validate(self) -> dict[str, float]:
        """The objective's figure by noise level, of the averaged weights on the held-out images."""
        assert self.held_out is not None
        levels = self.objective.levels(self.config)
        clean = self.held_out.float().div(255)
        figures = {}
        with self.averaged(), torch.inference_mode():
            for s in levels:
                generator = torch.Generator().manual_seed(1)  # the same noise at every level
                values = []
                for x in clean.split(256):
                    sigma = torch.full((len(x),), s)
                    noisy = self.objective.noisy(x, sigma, generator)
                    batch = (t.to(self.device) for t in (x, noisy, sigma))
                    values.append(self.objective.validate(self.model, *batch))
                figures[f"{s:g}"] = torch.cat(values).double().mean().item()
        return figures

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """The model carrying its averaged weights for the length of the block, in evaluation mode."""
        own = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        training = self.model.training
        self._put(self.average)
        self.model.eval()
        try:
            yield self.model
        finally:
            self._put(own)
            self.model.train(training)

    def save(self) -> None:
        """Writes everything the next step depends on, whole or not at all."""
        tensors = {f"average.{n}": p for n, p in self.average.items()}
        tensors |= {f"model.{n}": p.detach() for n, p in self.model.named_parameters()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
        tensors["generator"] = self.generator.get_state()
        meta = {
            "config": asdict(self.config),
            "about": self.about,
            "step": self.step,
            "seconds": self.seconds,
        }
        tensors = {n: t.detach().cpu().contiguous() for n, t in tensors.items()}
        with whole_file(self.folder / STATE) as path:
            save_file(tensors, path, {"training": json.dumps(meta)})

    def _load(self) -> None:
        meta, tensors = read_state(self.folder)
        saved = TrainConfig(**meta["config"])
        schedule = {name: getattr(self.config, name) for name in RESUMABLE}
        if replace(saved, **schedule) != self.config:
            was, now = asdict(saved), asdict(self.config)
            changed = [f"{k} {was[k]} -> {now[k]}" for k in was if was[k] != now[k]]
            raise BasisError(
                f"{self.folder} was trained with other settings ({', '.join(changed)}); "
                f"resume with the same ones (only {' and '.join(RESUMABLE)} may change) or use another folder"
            )
        try:
            self.average = {n: tensors[f"average.{n}"].to(self.device) for n in self.average}
            self._put({n: tensors[f"model.{n}"].to(self.device) for n in self.average})
        except (KeyError, RuntimeError) as error:
            raise BasisError(f"{self.folder / STATE} does not fit this network: {error}") from error
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, number, key = name.split(".")
                state.setdefault(int(number), {})[key] = tensor
        packed = self.optimizer.state_dict()
        self.optimizer.load_state_dict({**packed, "state": state})
        self.generator.set_state(tensors["generator"])
        self.step, self.seconds = meta["step"], meta["seconds"]

    def _put(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                if name in weights:  # a variance head is not part of what is trained here
                    p.copy_(weights[name])

    def _crossed(self, every: int) -> bool:
        return self.seen // every > (self.seen - self.config.batch) // every

    def _log_loss(self, losses: list[float]) -> float:
        """Logs the mean loss since the last row and starts anew."""
        mean = sum(losses) / len(losses)
        losses.clear()
        self._log(loss=mean, factor=self.factor())
        return mean

    def _log(self, **values: object) -> None:
        row = {"step": self.step, "images": self.seen, "seconds": round(self.seconds, 1), **values}
        with open(self.folder / LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _trim_log(self) -> None:
        """Drops what an earlier run logged after its last saved state."""
        rows = read_log(self.folder)
        kept = [row for row in rows if row["step"] <= self.step]
        if len(kept) < len(rows):
            with whole_file(self.folder / LOG) as path:
                path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")


def read_state(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings and tensors of a training folder's state."""
    path = Path(folder) / STATE
    try:
        with safe_open(path, framework="pt") as file:
            meta = json.loads(file.metadata()["training"])
            return meta, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise BasisError(f"{path} is not a training state: {error}") from error


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """The rows of a training log, in order; a row cut off by a crash is left out."""
    path = Path(folder) / LOG
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
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
