"""The measurements of a bench as tables and as a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from basis._errors import BasisError
from basis._figures import Table
from basis.bench._growth import Growth
from basis.bench._quality import Quality
from basis.bench._speed import Speed


def growth_cases(mixtures: Sequence[int], sources: Sequence[int]) -> list[tuple[int, int]]:
    """What growth is measured on, as (mixtures, sources).

    Every number of mixtures with two sources, then the smallest number with each other number of
    sources.
    """
    if any(count < 1 for count in mixtures):
        raise BasisError(f"numbers of mixtures must be at least 1, not {list(mixtures)}")
    cases = [(count, 2) for count in sorted(mixtures)]
    return cases + [(min(mixtures), k) for k in sources if k != 2] if mixtures else cases


def markdown(
    rows: Sequence[Quality],
    speed: Speed | None = None,
    growth: Sequence[Growth] = (),
    *,
    times: bool = True,
) -> str:
    """The tables in Markdown.

    Args:
        rows, speed, growth: What was measured.
        times: Whether to show times; leave them out where other work disturbed them.
    """
    parts = []
    if rows:
        parts.append(_quality_table(rows, times).markdown())
    if speed:
        parts.append(
            f"Network: {speed.images_per_second:.0f} images/s at {speed.gflop_per_image:.3f} GFLOP "
            f"each, {speed.network_gflops:.0f} GFLOP/s: {speed.share:.0%} of this machine's matrix "
            f"product ({speed.matmul_gflops:.0f} GFLOP/s, {speed.threads} threads).\n"
        )
    if growth:
        parts.append(_growth_table(growth).markdown())
    return "\n".join(parts)


def _quality_table(rows: Sequence[Quality], times: bool) -> Table:
    paper = next((r for r in rows if r.way == "basis"), None)
    header: tuple[str, ...] = (
        "", "PSNR, mean ± standard error", "median", "evaluations, mean (most)",
    )  # fmt: skip
    header += ("seconds per mixture", "time of `basis` / time") if times else ()
    cells = []
    for r in rows:
        ratio = f"{paper.seconds / r.seconds:.1f}" if paper and r.seconds else ""
        quality = (r.way, f"{r.mean:.2f} ± {r.stderr:.2f}", f"{r.median:.2f}")
        spent = (f"{r.evaluations:,.0f} ({r.most:,})",)
        cells.append(quality + spent + ((f"{r.seconds:.3f}", ratio) if times else ()))
    return Table(header, cells)


def _growth_table(growth: Sequence[Growth]) -> Table:
    header = (
        "mixtures", "sources", "evaluations each", "seconds", "milliseconds per mixture",
        "memory above start, MiB",
    )  # fmt: skip
    cells = [
        (
            f"{g.mixtures:,}",
            f"{g.k}",
            f"{g.evaluations}",
            f"{g.seconds:.1f}",
            f"{1000 * g.seconds / g.mixtures:.1f}",
            "?" if g.memory is None else f"{g.memory:.0f}",
        )
        for g in growth
    ]
    return Table(header, cells)


def record(
    rows: Sequence[Quality], speed: Speed | None = None, growth: Sequence[Growth] = ()
) -> dict[str, Any]:
    """The measurements as data for JSON."""
    return {
        "quality": [asdict(r) for r in rows],
        "speed": None if speed is None else {**asdict(speed), "share": speed.share},
        "growth": [asdict(g) for g in growth],
    }
