"""What the paper measures of priors: gradients and likelihoods."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from basis.reproduce._pieces import Piece, Workshop, dB
from basis.reproduce._shards import Shard
from basis.studies import (
    Gradient,
    gradient_norms,
    gradient_table,
    likelihood_table,
    likelihoods,
    plot_gradients,
)

PAPER_STEPS = (
    "the paper's choice of eta proportional to sigma^2 rests on this being nearly constant"
)


def gradients(shop: Workshop) -> Piece:
    """sigma |grad log p_sigma| at the ten levels, for every prior of digits there is."""
    import tempfile
    from pathlib import Path

    piece = Piece("gradients", "σ |∇ log p_σ| over the noise levels")
    count = shop.count(256, least=8)
    images = shop.pairs(max(1, count // 2)).sources.flatten(0, 1)
    curves: dict[str, list[Gradient]] = {}
    for name in ("mnist", "mnist-glow"):
        prior = shop.prior(name)
        if prior is None:
            piece.text.append(f"no prior called {name!r} yet")
            continue

        def make(prior: Any = prior) -> Shard:
            return Shard(values={"rows": [asdict(g) for g in gradient_norms(prior, images)]})

        shard = shop.shards.get("gradients", shop.about(prior, count=len(images)), make)
        curves[name] = [Gradient(**row) for row in shard.values["rows"]]
        piece.seconds += shard.seconds
        piece.evaluations += 10 * len(images) * prior.cost
    if not curves:
        return piece
    with tempfile.TemporaryDirectory() as work:
        path = plot_gradients(curves, Path(work) / "gradients.png")
        piece.pictures.append((f"Mean over {len(images)} test images", path.read_bytes()))
    piece.tables.append(gradient_table(curves))
    piece.text.append(f"In expectation over test images and noise; {PAPER_STEPS}.")
    return piece


def sample_likelihoods(shop: Workshop) -> Piece:
    """Bits per dimension of test images and of separated sources."""
    piece = Piece("likelihoods", "Sample likelihoods")
    prior = shop.need("mnist-glow", piece)
    count = shop.count(64)
    done = shop.separate(prior, count, sampler="gibbs", samples=10, choose="likelihood")
    truth = shop.pairs(count).sources.flatten(0, 1)
    row = likelihoods(prior, truth, done.sources.flatten(0, 1), seed=shop.seed)
    piece.seconds, piece.evaluations = done.seconds, done.evaluations

    piece.tables.append(likelihood_table([row]))
    piece.text.append(
        f"Bits per dimension, mean ± standard error, {len(truth)} images; p_σ at σ = {row.sigma:g}. Separated sources are "
        f"the best of ten by likelihood, PSNR {dB(done.psnr)} dB."
    )
    return piece
