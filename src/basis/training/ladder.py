"""The paper's noisy flows: one model per noise level, each fine-tuned from the one below.

The noiseless model is trained first; the model of the smallest level starts from it, the next from
that one, and so on. Every level is a training run in its own folder, so that all of it can be
continued.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from basis.devices import find_device
from basis.errors import BasisError
from basis.files import check_disk_space, check_no_link
from basis.nn.glow import Glow
from basis.nn.kinds import describe_module, find_kind
from basis.nn.ladder import Ladder
from basis.plots.charts import new_figure, save_figure
from basis.priors.prior import Prior
from basis.store.folder import save_prior
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.data import Data, training_data
from basis.training.export import card_entries
from basis.training.objectives import Likelihood, one_sigma
from basis.training.processes import Processes, Report, stoppable
from basis.training.run import (
    check_folder,
    new_module,
    run_to_end,
    split_settings,
    split_size,
    state_size,
)
from basis.training.state import STATE
from basis.training.trainer import Trainer

PAPER_SIGMAS = tuple(10 ** (-2 * i / 9) for i in range(10))[::-1]
"""The paper's ten noise levels, smallest first."""


def train_ladder(
    data: Data,
    *,
    out: str | Path,
    sigmas: Sequence[float] = PAPER_SIGMAS,
    first: int = 400_000,
    each: int = 50_000,
    size: int | None = None,
    classes: Sequence[int] | None = None,
    name: str | None = None,
    held_out: int | None = None,
    root: str | Path | None = None,
    device: torch.device | str = "auto",
    progress: Report = True,
    **settings: Any,
) -> Prior:
    """Trains a flow per noise level in a folder, continuing from wherever the folder left off.

    The folder then holds the prior and bits.png. A stop by SIGINT or SIGTERM is as for `train`.

    Args:
        data: 8-bit images, as for `train`.
        out: The folder.
        sigmas: Noise levels, smallest first.
        first: Images for the noiseless model.
        each: Images for every level above.
        size, classes, name, held_out, root, device, progress: As for `train`.
        settings: Settings of `TrainConfig` other than the images and noise levels, and sizes of
            the flows, as in `basis.nn.GlowConfig`.
    """
    folder, glow = Path(out), find_kind("glow")
    items = training_data(data, size=size, classes=classes, root=root)
    training, sizes = split_settings(glow, settings)
    for setting in ("images", "hours", "sigma_min", "sigma_max"):
        if setting in training:
            raise BasisError(f"{setting} is set for each level: by first, each and sigmas")
    config = TrainConfig(**{"adam_lr": 2e-3, "warmup": 5_000, **training})
    folders = [folder / f"level-{number:02d}" for number in range(len(sigmas) + 1)]
    for level in folders:
        check_no_link(level)
    check_folder(folder, str(Path(folders[0].name, STATE)))
    kept = split_size(items, held_out, folders[0])
    device = find_device(device)
    processes = Processes()
    models, bits, seconds = {}, {}, 0.0
    with processes.lock(folder), stoppable(folder):
        below = None
        for number, (sigma, level) in enumerate(zip([0.0, *sigmas], folders, strict=True)):
            model = new_module(glow, items, sizes, False, config.seed)
            assert isinstance(model, Glow)
            if below is not None:
                model.load_state_dict(below.state_dict())
            images = each if number else first
            own = replace(config, images=images, sigma_min=sigma, sigma_max=sigma)
            trainer = Trainer(
                model,
                items.values[:kept],
                level,
                own,
                held_out=items.values[kept:],
                about={"sigma": sigma},
                sigmas=one_sigma(sigma),
                objective=Likelihood(config.score_weight, model.config.std),
                device=device,
            )
            check_disk_space(folder, (len(folders) - number) * state_size(model))
            run_to_end(trainer, progress)
            bits[sigma] = next(iter(trainer.validate().values()))
            if progress is True and processes.first:
                print(f"sigma {sigma:g}: {bits[sigma]:.3f} bits per dimension", file=sys.stderr)
            below = trainer.average.module
            if number:
                models[sigma] = below
            seconds += trainer.seconds
        if processes.first:
            plot_bits(bits, folder / "bits.png")
            ladder = Ladder(models)
            card = {
                "name": name or folder.resolve().name,
                "title": f"ladder of flows of {items.name}",
                **card_entries(config, items),
                "architecture": describe_module(ladder),
                "sigma_min": min(sigmas),
                "sigma_max": max(sigmas),
                "data": items.about(kept),
                "training": {
                    "images_first": first,
                    "images_each": each,
                    "hours": round(seconds / 3600, 2),
                    "config": asdict(config.scaled(1.0)),
                    "held_out_bits_per_dimension": {
                        f"{s:.4g}": round(b, 4) for s, b in bits.items()
                    },
                },
            }
            save_prior(folder, dict(ladder.named_parameters()), card)
        processes.wait()
        return load_prior(folder, device=device)


def plot_bits(bits: dict[float, float], path: Path) -> Path:
    """Bits per dimension over noise levels (0 is drawn at the left edge)."""
    figure, (axes,) = new_figure(6, 4)
    axes.plot([max(sigma, 0.004) for sigma in bits], list(bits.values()), "o-", ms=4, lw=1.3)
    axes.set(xscale="log", xlabel="σ (leftmost: noiseless)", ylabel="held-out bits per dimension")
    return save_figure(figure, path)
