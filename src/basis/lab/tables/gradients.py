"""The norm of a prior's gradient over the noise levels."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from basis.errors import BasisError
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.result_cache import CachedResult
from basis.lab.section import Section
from basis.lab.studies.gradient_study import (
    Gradient,
    gradient_norms,
    gradient_table,
    plot_gradients,
)
from basis.priors.prior import Prior


def compute(ctx: Context, section: Section) -> None:
    """Measures sigma |grad log p_sigma| at the ten levels, for every prior of digits."""
    count = ctx.count(256, least=8)
    images = ctx.pairs(max(1, count // 2)).sources.flatten(0, 1)
    curves: dict[str, list[Gradient]] = {}
    for name in ("mnist", "mnist-glow"):
        prior = ctx.prior(name)
        if prior is None:
            section.text.append(f"no prior called {name!r} yet")
            continue

        def measure(prior: Prior = prior) -> CachedResult:
            return CachedResult(values={"rows": [asdict(g) for g in gradient_norms(prior, images)]})

        key = {"prior": ctx.prior_key(prior), "images": images}
        result = ctx.cached("gradients", key, measure, ("studies",))
        curves[name] = [Gradient(**row) for row in result.values["rows"]]
        section.seconds += result.seconds
        section.evaluations += len(curves[name]) * len(images) * prior.cost
    if not curves:
        return
    try:
        with tempfile.TemporaryDirectory() as work:
            path = plot_gradients(curves, Path(work) / "gradients.png")
            section.pictures.append((f"Mean over {len(images)} test images", path.read_bytes()))
    except BasisError as error:  # matplotlib is not installed
        section.text.append(str(error))
    section.tables.append(gradient_table(curves))
    section.text.append(
        "In expectation over test images and noise; the paper's choice of eta proportional to "
        "sigma^2 rests on this being nearly constant."
    )


TABLE = TableDefinition("gradients", "σ |∇ log p_σ| over the noise levels", compute, order=110)
