"""Two ways on the same mixture, side by side."""

from __future__ import annotations

import html
from collections.abc import Sequence

from basis import metrics
from basis.page.markup import picture, row
from basis.page.run import Run


def comparison_view(runs: Sequence[Run]) -> str:
    """What each run found and what it cost."""
    return f'<div class="chains compared">{"".join(map(_column, runs))}</div>' if runs else ""


def _column(run: Run) -> str:
    assert run.outcome is not None and run.outcome.result is not None
    assert run.outcome.answer is not None
    result, found, truth = run.outcome.result, run.outcome.answer[:, 0], run.task.truth
    facts = [
        ("network evaluations", f"{result.evaluations:,}"),
        ("seconds", f"{result.seconds:.1f}"),
        ("residual", f"{255 * result.residual[0].item():.2f}/255"),
    ]
    if truth is not None and run.task.kind == "separate":
        found = metrics.reorder(found, truth)
        facts.append(("PSNR", f"{metrics.psnr(found, truth).item():.1f} dB"))
    shown = [picture(x, f"{run.task}, source {i + 1}") for i, x in enumerate(found[0])]
    rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts)
    return (
        f'<div class="chain"><div class="chain-name">{html.escape(str(run.task))}</div>'
        f"{row(shown, 'tight')}<table>{rows}</table></div>"
    )
