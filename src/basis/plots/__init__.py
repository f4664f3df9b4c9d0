"""Pictures of separations, drawn by Pillow: images enlarged pixel by pixel, sound as waveforms."""

from __future__ import annotations

from basis.plots.drawing import grid, write_picture
from basis.plots.panels import pictures_panel, separation_panel, trajectory_panel

__all__ = [
    "grid",
    "pictures_panel",
    "separation_panel",
    "trajectory_panel",
    "write_picture",
]
