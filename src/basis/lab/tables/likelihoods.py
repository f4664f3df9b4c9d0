"""Bits per dimension of test images and of separated sources."""

from __future__ import annotations

from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.section import Section, mean_and_error
from basis.lab.separated import separate_pairs
from basis.lab.studies.likelihood_study import likelihood_table, likelihoods


def compute(ctx: Context, section: Section) -> None:
    """Measures how probable test images and separated sources are under the flow."""
    prior = ctx.need("mnist-glow")
    count = ctx.count(64)
    done = separate_pairs(ctx, prior, count, sampler="gibbs", samples=10, choose="likelihood")
    section.add_cost(done)
    truth = ctx.pairs(count).sources.flatten(0, 1)
    row = likelihoods(prior, truth, done.sources.flatten(0, 1), seed=ctx.seed)
    section.tables.append(likelihood_table([row]))
    section.text.append(
        f"Bits per dimension, mean ± standard error, {len(truth)} images; p_σ at σ = "
        f"{row.sigma:g}. Separated sources are the best of ten by likelihood, PSNR "
        f"{mean_and_error(done.psnr)} dB."
    )


TABLE = TableDefinition("likelihoods", "Sample likelihoods", compute, order=120)
