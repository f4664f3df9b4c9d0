"""The paper's noisy flows: one model per noise level, each fine-tuned from the one below.

The noiseless model is trained first; the model of the smallest level starts from it, the next from
that one, and so on up the levels. Every level is a training run in a folder of its own, so that the
whole resumes anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from basis.devices import find_device
from basis.files import check_disk_space, check_no_link
from basis.nn.glow import Glow, GlowConfig
from basis.nn.kinds import describe_module, find_kind
from basis.nn.ladder import Ladder
from basis.plots.charts import new_figure, save_figure
from basis.priors.prior import Prior
from basis.signals.image_set import ImageSet
from basis.store.folder import save_prior
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.export import card_entries
from basis.training.objectives import Likelihood, one_sigma
from basis.training.processes import Processes
from basis.training.run import check_folder, new_module, split_size, state_size
from basis.training.signals import Signals, as_signals
from basis.training.state import STATE
from basis.training.trainer import Trainer

PAPER_SIGMAS = tuple(10 ** (-2 * i / 9) for i in range(10))[::-1]
"""The paper's ten noise levels, smallest first."""


@dataclass(frozen=True)
class _Level:
    """A finished level: its noise, its averaged model, its bits per dimension, its time."""

    sigma: float
    model: nn.Module
    bits: float
    seconds: float


def train_ladder(
    data: ImageSet | Tensor | np.ndarray[Any, Any],
    out: str | Path,
    *,
    sizes: Mapping[str, Any] | GlowConfig | None = None,
    config: TrainConfig | None = None,
    sigmas: Sequence[float] = PAPER_SIGMAS,
    first: int = 400_000,
    each: int = 50_000,
    name: str | None = None,
    held_out: int | None = None,
    about_data: Mapping[str, Any] | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
    report: Callable[[str], None] | None = None,
) -> Prior | None:
    """Trains a flow per noise level, from wherever the folder left off; None when stopped.

    Args:
        data: An `ImageSet`, or uint8 values (n, channels, side, side) that stand for [0, 1].
        out: The folder of the run, which then holds the prior and bits.png.
        sizes: Sizes of the flows other than those of `GlowConfig`.
        config: How to train; its noise levels and number of images are set per level.
        sigmas: Noise levels, smallest first.
        first: Images for the noiseless model.
        each: Images for every level above.
        name, held_out, about_data, device, progress, report: As for `train`.
    """
    folder, report = Path(out), report or (lambda line: None)
    signals = as_signals(data, None, None)
    for number in range(len(sigmas) + 1):
        check_no_link(folder / _folder(number))
    check_folder(folder, str(Path(_folder(0), STATE)))
    kept = split_size(signals, held_out, folder / _folder(0))
    device = find_device(device)
    config = config or TrainConfig(adam_lr=2e-3, warmup=5_000)
    with Processes().alone(folder):
        levels: list[_Level] = []
        for number, sigma in enumerate([0.0, *sigmas]):
            images = each if number else first
            own = replace(config, images=images, sigma_min=sigma, sigma_max=sigma)
            trainer = _level_trainer(
                signals, sizes, own, folder / _folder(number), levels, kept, device
            )
            check_disk_space(folder, (len(sigmas) + 1 - number) * state_size(trainer.model))
            if trainer.seen < own.images and not trainer.run(progress=progress):
                report(f"stopped at sigma {sigma:g}; the same command goes on")
                return None
            bits = next(iter(trainer.validate().values()))
            report(f"sigma {sigma:g}: {bits:.3f} bits per dimension")
            levels.append(_Level(sigma, trainer.average.module, bits, trainer.seconds))
        curve = {level.sigma: level.bits for level in levels}
        plot_ladder({"ladder": curve}, folder / "bits.png")
        ladder = Ladder({level.sigma: level.model for level in levels[1:]})
        card = {
            "name": name or folder.resolve().name,
            "title": f"ladder of flows of {signals.name}",
            **card_entries(config, signals),
            "architecture": describe_module(ladder),
            "sigma_min": min(sigmas),
            "sigma_max": max(sigmas),
            "data": {
                "name": signals.name,
                "images": kept,
                **(about_data or {}),
            },
            "training": {
                "images_first": first,
                "images_each": each,
                "hours": round(sum(level.seconds for level in levels) / 3600, 2),
                "config": asdict(config.in_units(1.0)),
                "held_out_bits_per_dimension": {f"{s:.4g}": round(b, 4) for s, b in curve.items()},
            },
        }
        save_prior(folder, dict(ladder.named_parameters()), card)
        report(f"prior: {folder}  bits: {folder / 'bits.png'}")
        return load_prior(folder, device=device)


def _folder(number: int) -> str:
    return f"level-{number:02d}"


def _level_trainer(
    signals: Signals,
    sizes: Any,
    config: TrainConfig,
    folder: Path,
    below: Sequence[_Level],
    kept: int,
    device: torch.device | str,
) -> Trainer:
    """The trainer of one level, started from the averaged weights of the level below."""
    glow = find_kind("glow")
    model = new_module(glow, signals, sizes, conditioned=False, seed=config.seed)
    assert isinstance(model, Glow)
    if below:
        model.load_state_dict(below[-1].model.state_dict())
    sigma, _, _ = config.noise
    return Trainer(
        model,
        signals.values[:kept],
        folder,
        config,
        held_out=signals.values[kept:],
        about={"sigma": sigma},
        sigmas=one_sigma(sigma),
        objective=Likelihood(config.score, model.config.std),
        device=device,
    )


def plot_ladder(bits: dict[str, dict[float, float]], path: str | Path) -> Path:
    """Bits per dimension over noise levels, a curve per model (0 is drawn at the left edge)."""
    figure, (axes,) = new_figure(6, 4)
    for name, curve in bits.items():
        levels = sorted(curve)
        axes.plot(
            [max(level, 0.004) for level in levels],
            [curve[level] for level in levels],
            "o-",
            ms=4,
            lw=1.3,
            label=name,
        )
    axes.set(xscale="log", xlabel="σ (leftmost: noiseless)", ylabel="held-out bits per dimension")
    axes.legend(frameon=False, fontsize=9)
    return save_figure(figure, path)
