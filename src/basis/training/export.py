"""A trained network as a prior's folder: averaged weights, card, and how sure it is."""

from __future__ import annotations

import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from basis.errors import BasisError
from basis.nn.energy import Energy
from basis.nn.kind import NetworkKind
from basis.nn.kinds import describe_module
from basis.nn.unet import Denoiser
from basis.plots.charts import new_figure, save_figure
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior
from basis.store.folder import save_prior
from basis.training.config import TrainConfig
from basis.training.objectives import Denoising, normalise
from basis.training.signals import Signals, as_floats
from basis.training.state import read_log
from basis.training.trainer import Trainer
from basis.training.variance import fit_variance, learns_variance


def export_prior(
    trainer: Trainer,
    signals: Signals,
    family: NetworkKind,
    *,
    name: str | None,
    variance_images: int,
    head: nn.Module | None,
    teacher: Prior | None = None,
    progress: bool,
) -> Path:
    """Writes the averaged weights with their card into the run's folder.

    Args:
        trainer: The run.
        signals: What it was trained on.
        family: The network's.
        name: What the card calls the prior; the folder's name by default.
        variance_images: Images to see for learning the variance, minutes, done anew whenever a run
            is exported; 0 for none.
        head: A variance head to go on from.
        teacher: A prior to learn the variance from.
        progress: Whether to show a progress bar.
    """
    module = copy.deepcopy(trainer.average.module)
    low, high, _ = trainer.config.noise
    if isinstance(module, Energy):
        # Ten seconds for larger images: a short trial does not wait for more than it trained.
        count = min(128, max(16, trainer.seen // 8))
        normalise(module, trainer.images, low, high, count=count)
    training, errors = _records(trainer)
    entries = {
        "name": name or trainer.folder.resolve().name,
        "title": f"{family.title} prior of {signals.name}",
        **card_entries(trainer.config, signals),
        "architecture": describe_module(module),
        "errors": errors,
        "classes": list(signals.classes) if trainer.classes else [],
        # Where the files lay says nothing to whoever reads the card elsewhere.
        "data": trainer.about["data"],
        "training": training,
    }
    # Saved before the head is learned, so that stopping there loses nothing.
    folder = save_prior(trainer.folder, dict(module.named_parameters()), entries)
    if not variance_images or not learns_variance(module, low, high):
        return folder
    module.head = copy.deepcopy(head)  # type: ignore[assignment]
    losses = fit_variance(
        module,
        trainer.images,
        count=variance_images,
        sigma_min=low,
        sigma_max=high,
        # A whole network learns more from many steps than from large ones.
        batch=128 if isinstance(module, Denoiser) else 64,
        teacher=teacher,
        labels=trainer.labels,
        progress=progress,
    )
    tail = losses[-50:]
    training["variance"] = {"images": variance_images, "loss": round(sum(tail) / len(tail), 4)}
    entries["architecture"] = describe_module(module)
    return save_prior(trainer.folder, dict(module.named_parameters()), entries)


def card_entries(config: TrainConfig, signals: Signals) -> dict[str, Any]:
    """What a card says of the signals and noise levels of a run."""
    mean, std = signals.moments()
    low, high, _ = config.noise
    entries = {"shape": list(signals.shape), "sigma_min": low, "sigma_max": high}
    entries |= {"value_range": [signals.low, signals.high], "std": std}
    # Between two bounds the middle is as typical as the mean, and where it was always taken.
    unbounded = signals.low is None or signals.high is None
    return entries | ({"center": mean} if unbounded else {})


def _records(trainer: Trainer) -> tuple[dict[str, Any], dict[str, float]]:
    """What a card says of the training, and the held-out denoising errors / sigma^2."""
    record: dict[str, Any] = {
        "images_seen": trainer.seen,
        "steps": trainer.step,
        "hours": round(trainer.seconds / 3600, 2),
        "config": asdict(trainer.config),
    }
    errors: dict[str, float] = {}
    if trainer.held_out is not None:
        figures = _rounded(trainer.validate())
        record[trainer.objective.record] = figures
        if trainer.classes:
            record[f"{trainer.objective.record}_with_class"] = _rounded(trainer.validate(told=True))
        if trainer.objective.record == Denoising.record:
            errors = figures
        elif trainer.config.noise[1] > 0:
            errors = _rounded(_gradient_errors(trainer))
            record[Denoising.record] = errors
    return record, {level: error for level, error in errors.items() if 0 < error < float("inf")}


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {level: float(f"{figure:.5g}") for level, figure in figures.items()}


def _gradient_errors(trainer: Trainer) -> dict[str, float]:
    """How well a likelihood model denoises by its gradient, on the held-out data.

    Few-step samplers ask for it.
    """
    assert trainer.held_out is not None
    clean = as_floats(trainer.held_out)
    low, high, _ = trainer.config.noise
    shape = tuple(clean.shape[1:])
    prior = LikelihoodPrior(trainer.average.module, shape, low, high, value_range=None)
    unit = getattr(trainer.objective, "unit", 1.0)
    errors = {}
    for level in Denoising(unit).levels(trainer.config):
        noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
        answer = prior.denoise((clean + level * noise).to(trainer.device), level).detach().cpu()
        errors[f"{level:g}"] = ((answer - clean).square().mean() / level**2).item()
    return errors


def plot_log(folder: str | Path, out: str | Path | None = None) -> Path:
    """Draws the loss and the held-out figures over the images seen; returns the picture's path.

    Args:
        folder: A training folder.
        out: The picture; `curve.png` in the folder by default.
    """
    path = Path(out) if out is not None else Path(folder) / "curve.png"
    rows = read_log(folder)
    if not rows:
        raise BasisError(f"{folder} holds no training log to plot")
    losses = [(r["images"] / 1000, r["loss"]) for r in rows if "loss" in r]
    held = [(r["images"] / 1000, r["held_out"]) for r in rows if "held_out" in r]
    label = next((r["of"] for r in reversed(rows) if "of" in r), "held-out error / σ²")
    figure, (left, right) = new_figure(10, 3.6, 2)
    if losses:
        left.plot(*zip(*losses, strict=True), lw=0.9, color="#3b5bdb")
    left.set(
        title="training loss",
        xlabel="thousand images seen",
        yscale="log" if all(v > 0 for _, v in losses) else "linear",
    )
    for sigma in held[-1][1] if held else ():
        points = [(n, e[sigma]) for n, e in held if sigma in e]
        right.plot(*zip(*points, strict=True), lw=1.2, label=f"σ = {sigma}")
    scale = "log" if "error" in label else "linear"
    right.set(title=label, xlabel="thousand images seen", yscale=scale)
    if held:
        right.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return save_figure(figure, path)
