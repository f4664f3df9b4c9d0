"""Pictures of separations: images enlarged pixel by pixel, sound as waveforms, drawn by Pillow."""

from basis.panels._rendering import to_picture, write_picture
from basis.panels._separation_panels import (
    RESIDUAL_GAIN,
    UNCERTAIN,
    draws_panel,
    pictures_panel,
    separation_panel,
    states_panel,
)
from basis.panels._sheet import grid

__all__ = [
    "RESIDUAL_GAIN",
    "UNCERTAIN",
    "draws_panel",
    "grid",
    "pictures_panel",
    "separation_panel",
    "states_panel",
    "to_picture",
    "write_picture",
]
