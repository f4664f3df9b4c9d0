"""Makes the figures of the README and of the documentation: `make pictures`.

    python scripts/make_pictures.py panel four states    # all by default

The figures of photos need CIFAR-10 in the data root.
"""

import sys
from pathlib import Path

import torch

import basis
from basis.plots import pictures_panel, trajectory_panel, write_picture
from basis.signals import load_images

DOCS = Path(__file__).parents[1] / "docs"


def panel(path: Path) -> None:
    """Four mixtures of two digits."""
    mixed = basis.test_mixtures("sample", 4, seed=0)
    write_picture(path, basis.separate(mixed, "mnist").panel())


def four(path: Path) -> None:
    """Two mixtures of four digits."""
    mixed = basis.test_mixtures("sample", 2, sources=4, seed=0)
    write_picture(path, basis.separate(mixed, "mnist", method="best").panel())


def states(path: Path) -> None:
    """States of the paper's sampler at five noise levels."""
    mixed = basis.test_mixtures("sample", 2, sources=4, seed=0)
    sampler = basis.samplers.Basis()
    levels = (1.0, 0.36, 0.13, 0.046, 0.01)
    plan = basis.Plan((basis.Round(1, sampler),), trajectory=levels)
    result = basis.separate(mixed, "mnist", method=plan)
    kept = {sigma: x[:, 0] for sigma, x in result.trajectory.items()}
    write_picture(path, trajectory_panel(result.observation, kept))


def photos(path: Path) -> None:
    """One posterior sample of each of eight mixtures of two photos."""
    mixed = basis.test_mixtures("cifar10", 8, alphas=(0.5, 0.5), seed=0)
    weaker = basis.Prior.from_pretrained("cifar10-small")
    prior = basis.Prior.from_pretrained("cifar10").autoguide(weaker)
    result = basis.separate(mixed, prior, method=200, estimate="sample")
    write_picture(path, result.panel(rows=8))


def colorize(path: Path) -> None:
    """Five colorizations of each of four grey photos."""
    photos = load_images("cifar10", "test").floats(slice(4))
    grey = photos.mean(dim=1, keepdim=True)
    result = basis.colorize(grey, samples=5)
    columns = [grey.expand_as(photos), *result.samples[:, :, 0].unbind(1), photos]
    titles = ["grey", "1", "2", "3", "4", "5", "original"]
    write_picture(path, pictures_panel(torch.stack(columns, dim=1), titles))


FIGURES = {"panel": panel, "four": four, "states": states, "photos": photos, "colorize": colorize}

if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        FIGURES[name](DOCS / f"{name}.png")
        print(f"docs/{name}.png")
