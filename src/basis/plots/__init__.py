"""Pictures of separations: images enlarged pixel by pixel, sound as waveforms, drawn by Pillow."""

from __future__ import annotations

from basis.plots.drawing import grid, to_picture, write_picture
from basis.plots.panels import (
    RESIDUAL_GAIN,
    UNCERTAIN,
    pictures_panel,
    samples_panel,
    separation_panel,
    trajectory_panel,
)

__all__ = [
    "RESIDUAL_GAIN",
    "UNCERTAIN",
    "grid",
    "pictures_panel",
    "samples_panel",
    "separation_panel",
    "to_picture",
    "trajectory_panel",
    "write_picture",
]
