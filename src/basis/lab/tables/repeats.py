"""The same mixtures drawn again: certain ones agree, ambiguous ones do not."""

from __future__ import annotations

from basis import mixings
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.mnist_table import disagreement, samples_panel
from basis.lab.section import Section
from basis.lab.separated import posterior_draws


def compute(ctx: Context, section: Section) -> None:
    """Draws mixtures several times and shows the most ambiguous and the most certain."""
    prior = ctx.need("mnist")
    count, draws = ctx.count(64, least=6), 4
    truth = ctx.pairs(count).sources
    mixing = mixings.mixture((1.0, 1.0), truth.shape[2])
    drawn = posterior_draws(ctx, prior, truth, mixing, draws, "repeats")
    section.add_cost(drawn)
    spread = disagreement(drawn.samples)
    order = spread.argsort(descending=True)
    for words, chosen in (
        ("most ambiguous", order[:2].tolist()),
        ("most certain", order[-1:].tolist()),
    ):
        for item in chosen:
            title = f"{words}: draws differ by {spread[item].item():.3f} rms"
            caption = f"Mixture {item}, {words} of {count}"
            samples_panel(section, caption, truth[item], drawn.samples[item], mixing, title)
    section.text.append(
        f"{draws} draws from the posterior of each of {count} mixtures. All reproduce the mixture "
        "exactly; where they differ, the mixture has more than one explanation."
    )


TABLE = TableDefinition("repeats", "The same mixtures, drawn again", compute, order=140)
