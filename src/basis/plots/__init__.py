"""Pictures of separations: images enlarged pixel by pixel, sound as waveforms, drawn by Pillow."""

from __future__ import annotations

from basis.plots.drawing import grid, to_picture, write_picture
from basis.plots.panels import (
    RESIDUAL_GAIN,
    UNCERTAIN,
    samples_panel,
    pictures_panel,
    separation_panel,
    trajectory_panel,
)

__all__ = [
    "RESIDUAL_GAIN",
    "UNCERTAIN",
    "samples_panel",
    "grid",
    "pictures_panel",
    "separation_panel",
    "trajectory_panel",
    "to_picture",
    "write_picture",
]
