"""What one visitor may ask of the machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of the page.

    Attributes:
        runs: Separations at the same time; others wait in line.
        waiting: Visitors in line; more are asked to come back.
        seconds: The longest that a separation may take.
        megabytes: The largest file that may be uploaded.
        pixels: The most pixels of an uploaded picture, before it is made smaller.
        side: The longest side that photos are separated or filled in at.
        colour_side: The longest side of a photo that is coloured, kept at its size.
        draws: The most posterior draws of a mixture.
        first_draws: Draws where the visitor says nothing.
        idle: Seconds after which a separation stops that nobody looks at any more.
    """

    runs: int = 2
    waiting: int = 12
    seconds: float = 120.0
    megabytes: float = 8.0
    pixels: int = 24_000_000
    side: int = 64
    colour_side: int = 1024
    draws: int = 8
    first_draws: int = 3
    idle: float = 15.0
