"""What separations cost and how good they are, measured in one run on the same mixtures."""

from basis.bench._growth import Growth, measure_growth
from basis.bench._peers import PEERS, measure_peer
from basis.bench._quality import (
    DEFAULT_WAYS,
    WAYS,
    Quality,
    Way,
    average_quality,
    find_way,
    measure_quality,
    plot_quality,
)
from basis.bench._speed import Speed, measure_speed
from basis.bench._summary import growth_cases, markdown, record

__all__ = [
    "DEFAULT_WAYS",
    "PEERS",
    "WAYS",
    "Growth",
    "Quality",
    "Speed",
    "Way",
    "average_quality",
    "find_way",
    "growth_cases",
    "markdown",
    "measure_growth",
    "measure_peer",
    "measure_quality",
    "measure_speed",
    "plot_quality",
    "record",
]
