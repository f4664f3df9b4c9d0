"""The paper's noisy flows: one model per noise level, each fine-tuned from the one below.

The noiseless model is trained first; the model of the smallest level starts from it, the next from that one, and so on up
the levels. Every level is a training run in a folder of its own, so that the ladder resumes anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from basis._figures import new_figure, save_figure
from basis.nn import Glow, GlowConfig
from basis.training._config import TrainConfig
from basis.training._objectives import Likelihood
from basis.training._trainer import Trainer, one_sigma


@dataclass(frozen=True)
class Rung:
    """A finished level: its noise, its averaged weights, and its bits per dimension on held-out images."""

    sigma: float
    weights: dict[str, Tensor]
    bits: float
    seconds: float


def train_ladder(
    glow: GlowConfig,
    images: Tensor,
    folder: str | Path,
    config: TrainConfig,
    *,
    held_out: Tensor,
    sigmas: Sequence[float],
    first: int,
    each: int,
    device: torch.device | str = "cpu",
    tell: Callable[[str], None] = print,
) -> list[Rung] | None:
    """Trains all levels, from wherever the folder left off; None when stopped on the way (state saved).

    Args:
        glow: The flow's sizes; not conditioned.
        images, held_out: uint8 images, (n, channels, height, width).
        config: How to train; its noise levels and number of images are set per level.
        sigmas: Noise levels, smallest first.
        first: Images for the noiseless model.
        each: Images for every level above.
    """
    rungs: list[Rung] = []
    below: dict[str, Tensor] | None = None
    for number, sigma in enumerate([0.0, *sigmas]):
        own = replace(config, images=each if number else first, sigma_min=sigma, sigma_max=sigma)
        torch.manual_seed(config.seed)
        model = Glow(glow)
        if below is not None:
            model.load_state_dict(below, strict=False)
        trainer = Trainer(
            model,
            images,
            Path(folder) / f"level-{number:02d}",
            own,
            held_out=held_out,
            about={"sigma": sigma},
            sigmas=one_sigma(sigma),
            objective=Likelihood(config.score, glow.std),
            device=device,
        )
        if trainer.seen < own.images and not trainer.run():
            tell(f"stopped at sigma {sigma:g}; the same command goes on")
            return None
        bits = next(iter(trainer.validate().values()))
        tell(f"sigma {sigma:g}: {bits:.3f} bits per dimension")
        below = {name: t.cpu() for name, t in trainer.average.items()}
        rungs.append(Rung(sigma, below, bits, trainer.seconds))
    return rungs


def ladder_weights(rungs: Sequence[Rung]) -> dict[str, Tensor]:
    """The weights of a `Ladder` of all noisy levels, under its parameters' names."""
    noisy = sorted((r for r in rungs if r.sigma > 0), key=lambda r: r.sigma)
    return {
        f"rungs.{number}.{name}": tensor
        for number, rung in enumerate(noisy)
        for name, tensor in rung.weights.items()
    }


def plot_ladder(bits: dict[str, dict[float, float]], path: str | Path) -> Path:
    """Bits per dimension over the noise levels, one curve per model (0 is drawn at the left edge)."""
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
