"""What a record says of a result, mixture by mixture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from basis.separation._result import Result


def has_draws(result: Result) -> bool:
    """Whether a result has several draws, which scatter."""
    return result.drawn and result.samples.shape[1] > 1


def verdict_rows(result: Result) -> list[dict[str, Any]]:
    """What a record says of every mixture's plausibility and modes."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(result.sources))]
    if result.plausibility is None or result.plausible is None:
        for row in rows:
            row["plausibility"] = None
    else:
        told = zip(
            rows,
            result.plausibility.tolist(),
            result.plausible.tolist(),
            result.remarks,
            strict=True,
        )
        for row, p, plausible, remark in told:
            row["plausibility"] = round(p, 4)
            row["plausible"] = plausible
            if remark:
                row["remark"] = remark
    if result.alphas is not None:
        for row, alphas in zip(rows, result.alphas.tolist(), strict=True):
            row["alphas"] = [round(a, 4) for a in alphas]
    if result.samples.shape[1] > 1:
        for row, modes in zip(rows, result.modes, strict=True):
            row["modes"] = [
                {"weight": mode.weight, "samples": [i + 1 for i in mode.members]} for mode in modes
            ]
    return rows
