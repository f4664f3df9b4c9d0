"""The end of a training run: the prior with its card, its variance and its typical energies."""

from __future__ import annotations

import copy
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from basis._check import measure_energies
from basis.errors import BasisError
from basis.nn.energy import Energy
from basis.nn.kind import NetworkKind
from basis.nn.kinds import describe_module
from basis.nn.unet import Denoiser
from basis.plots.charts import new_figure, save_figure
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior
from basis.priors.spectrum import measure_spectrum
from basis.store.folder import CARD, read_card, save_prior, update_card
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.data import TrainingData, as_floats
from basis.training.objectives import Denoising, normalize
from basis.training.state import read_log
from basis.training.trainer import Trainer
from basis.training.variance import fit_variance, learns_variance

_SPECTRUM_IMAGES = 256
_FEWEST_MEASURED = 8


def finish(
    trainer: Trainer,
    data: TrainingData,
    network: NetworkKind,
    *,
    name: str,
    variance_images: int,
    energy_pairs: int | None,
    head: nn.Module | None,
    teacher: Prior | None,
    progress: bool,
) -> bool:
    """Does what is missing in the folder of a run that has its full length; False if nothing was.

    Args:
        trainer: The run.
        data: Its data, with the held-out items at the end.
        network: The kind of network.
        name: The name of the prior.
        variance_images: Images for learning the variance; 0 for none.
        energy_pairs: Mixtures for measuring typical energies; None for no measurement.
        head: A variance head to continue from.
        teacher: A prior to learn the variance from.
        progress: Whether to show a progress bar.
    """
    folder = trainer.folder
    low, high, _ = trainer.config.noise
    learn = variance_images > 0 and learns_variance(trainer.model, low, high)
    card = read_card(folder) if (folder / CARD).is_file() else None
    if card and (card.training.get("steps"), card.name) != (trainer.step, name):
        card = None  # that of an earlier step
    missing = card is None or (learn and "variance" not in card.training)
    held_out = data.values[len(trainer.images) :]
    measure = energy_pairs is not None and len(held_out) >= _FEWEST_MEASURED
    measure = measure and (missing or card is None or "measured" not in card.training)
    left = ["the prior"] * missing + ["the variance"] * (missing and learn)
    left += ["typical energies"] * measure
    if left and progress:
        print(f"left to do: {', '.join(left)}", file=sys.stderr)
    if missing:
        module = copy.deepcopy(trainer.average.module)
        if isinstance(module, Energy):
            # Ten seconds for larger images: a short trial waits no longer than it trained.
            count = min(128, max(16, trainer.seen // 8))
            normalize(module, trainer.images, low, high, count=count)
        training, errors = _records(trainer)
        entries = {
            "name": name,
            "title": f"{network.title} prior of {data.name}",
            **card_entries(trainer.config, data),
            "architecture": describe_module(module),
            "errors": errors,
            "classes": list(data.classes) if trainer.classes else [],
            "data": trainer.about["data"],
            "training": training,
        }
        # Saved before the variance is learned, so that a run that is killed then has a prior.
        save_prior(folder, dict(module.named_parameters()), entries)
        if learn:
            module.head = copy.deepcopy(head)  # type: ignore[assignment]
            losses = fit_variance(
                module,
                trainer.images,
                count=variance_images,
                sigma_min=low,
                sigma_max=high,
                # A whole network learns more from many steps than from large ones.
                batch_size=128 if isinstance(module, Denoiser) else 64,
                teacher=teacher,
                labels=trainer.labels,
                progress=progress,
            )
            loss = round(sum(losses[-50:]) / len(losses[-50:]), 4)
            training["variance"] = {"images": variance_images, "loss": loss}
            entries["architecture"] = describe_module(module)
            save_prior(folder, dict(module.named_parameters()), entries)
        card = read_card(folder)
    assert card is not None
    if measure and energy_pairs is not None:
        measured = _measure(trainer, as_floats(held_out), energy_pairs)
        update_card(folder, **measured, training={**card.training, "measured": True})
        missing = True
    if trainer.step and (missing or not (folder / "curve.png").exists()):
        plot_log(folder)
        missing = True
    return missing


def card_entries(config: TrainConfig, data: TrainingData) -> dict[str, Any]:
    """A card's entries about the signals and noise levels of a run."""
    mean, std = data.moments()
    low, high, _ = config.noise
    entries = {"shape": list(data.shape), "sigma_min": low, "sigma_max": high}
    entries |= {"value_range": [data.low, data.high], "std": std}
    # Between two bounds the middle is as typical as the mean.
    unbounded = data.low is None or data.high is None
    return entries | ({"center": mean} if unbounded else {})


def _records(trainer: Trainer) -> tuple[dict[str, Any], dict[str, float]]:
    """A card's entry about the training, and the held-out denoising errors / sigma^2."""
    record: dict[str, Any] = {
        "images_seen": trainer.seen,
        "steps": trainer.step,
        "hours": round(trainer.seconds / 3600, 2),
        "config": asdict(trainer.config),
    }
    if "teacher" in trainer.about:
        record["teacher"] = trainer.about["teacher"]
    objective, errors = trainer.objective, {}
    if trainer.held_out is not None:
        figures = _rounded(trainer.validate())
        record[objective.record] = figures
        if trainer.classes:
            figures = _rounded(trainer.validate(conditional=True))
            record[f"{objective.record}_with_class"] = figures
        if objective.record == Denoising.record:
            errors = record[objective.record]
        elif trainer.config.noise[1] > 0:
            errors = record[Denoising.record] = _rounded(_gradient_errors(trainer))
    return record, {level: error for level, error in errors.items() if 0 < error < float("inf")}


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {level: float(f"{figure:.5g}") for level, figure in figures.items()}


def _gradient_errors(trainer: Trainer) -> dict[str, float]:
    """How well a likelihood model denoises by its gradient, on the held-out data."""
    assert trainer.held_out is not None
    clean = as_floats(trainer.held_out)
    low, high, _ = trainer.config.noise
    shape = tuple(clean.shape[1:])
    prior = LikelihoodPrior(trainer.average.module, shape, low, high, value_range=None)
    scale = getattr(trainer.objective, "scale", 1.0)
    errors = {}
    for level in Denoising(scale).levels(trainer.config):
        noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
        answer = prior.denoise((clean + level * noise).to(trainer.device), level).detach().cpu()
        errors[f"{level:g}"] = ((answer - clean).square().mean() / level**2).item()
    return errors


def _measure(trainer: Trainer, held_out: torch.Tensor, pairs: int) -> dict[str, Any]:
    """The typical energies of the prior, and the correlations of its values."""
    prior = load_prior(trainer.folder, device=trainer.device)
    if prior.sigma_max < prior.std:
        return {}  # a model of small noise cannot start a separation
    entries = {}
    try:
        energies = measure_energies(prior, held_out.to(trainer.device), pairs=pairs)
        entries["energies"] = energies.to_dict()
        # Priors with a likelihood are sampled value by value.
        if not prior.has_likelihood:
            about = {"origin": "held-out images"}
            images = held_out[:_SPECTRUM_IMAGES].to(trainer.device)
            entries["spectrum"] = measure_spectrum(prior, images, about=about).to_dict()
    except BasisError as error:
        print(f"basis: warning: typical energies were not measured: {error}", file=sys.stderr)
    return entries


def plot_log(folder: str | Path, out: str | Path | None = None) -> Path:
    """Draws the loss and the held-out figures over the images seen; returns the picture's path.

    Args:
        folder: A training folder.
        out: The picture; `curve.png` in the folder by default.
    """
    path = Path(out) if out is not None else Path(folder) / "curve.png"
    rows = read_log(folder)
    if not rows:
        raise BasisError(f"{folder} has no training log to plot")
    losses = [(r["images"] / 1000, r["loss"]) for r in rows if "loss" in r]
    held = [(r["images"] / 1000, r["held_out"]) for r in rows if "held_out" in r]
    label = next((r["of"] for r in reversed(rows) if "of" in r), Denoising.label)
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
