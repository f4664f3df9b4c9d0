"""Networks of different size for the same data: what more operations buy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from basis._mix import Pairs
from basis.lab.bench import Quality, Way, measure_quality
from basis.lab.studies.cost_study import evaluation_cost
from basis.plots.charts import Table
from basis.priors.prior import Prior

_SHOWN = (0.1, 0.4)  # noise levels of the table: detail, and where modes are decided


@dataclass(frozen=True)
class Capacity:
    """What a network costs, how long it was trained, and how well it separates.

    Attributes:
        prior: The prior's name.
        parameters: Numbers that were trained.
        gflop: Operations of one evaluation of one signal, in 10^9.
        images, hours: Signals seen and time spent in training, where the card tells.
        errors: Held-out error / sigma^2 by noise level.
        quality: What each way of separating reached.
    """

    prior: str
    parameters: int
    gflop: float
    images: int | None
    hours: float | None
    errors: dict[float, float]
    quality: list[Quality]


def measure_capacity(
    prior: Prior,
    pairs: Pairs,
    ways: Sequence[Way],
    *,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Capacity:
    """Measures one network on the same mixtures as others.

    Args:
        prior: The network as a prior.
        pairs: The mixtures.
        ways: Ways of separating.
        seed: Of the separations.
        progress: Called with a line after every way.
    """
    quality = []
    for way in ways:
        quality.append(measure_quality(way, prior, pairs, seed=seed))
        if progress is not None:
            progress(f"{prior.name}, {way.name}: {quality[-1].mean:.2f} dB")
    training = prior.card.training if prior.card is not None else {}
    return Capacity(
        prior.name,
        sum(p.numel() for p in prior.parameters()),
        evaluation_cost(prior, repeats=1).flops / 1e9,
        training.get("images_seen"),
        training.get("hours"),
        dict(prior.errors or {}),
        quality,
    )


def capacity_table(rows: Sequence[Capacity]) -> Table:
    """One row a network, the smallest first."""
    header: tuple[str, ...] = ("prior", "GFLOP", "parameters", "images seen", "hours")
    header += tuple(f"error / σ² at {level:g}" for level in _SHOWN)
    for q in rows[0].quality if rows else ():
        header += (f"{q.way}, dB", "seconds")
    cells = []
    for r in sorted(rows, key=lambda r: r.gflop):
        cell: tuple[str, ...] = (r.prior, f"{r.gflop:.2f}", f"{r.parameters:,}")
        cell += ("?" if r.images is None else f"{r.images:,}",)
        cell += ("?" if r.hours is None else f"{r.hours:.2f}",)
        cell += tuple(f"{r.errors[s]:.4f}" if s in r.errors else "" for s in _SHOWN)
        for q in r.quality:
            cell += (f"{q.mean:.2f} ± {q.stderr:.2f}", f"{q.seconds:.2f}")
        cells.append(cell)
    return Table(header, cells)
