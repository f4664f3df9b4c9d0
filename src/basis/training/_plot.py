"""A training log as a picture."""

from __future__ import annotations

from pathlib import Path

from basis._errors import BasisError
from basis._figures import new_figure, save_figure
from basis.training._state_files import read_log


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
