"""Four digits in one picture, the most ambiguous mixture marked."""

from __future__ import annotations

from basis import mixings
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.mnist_table import disagreement, samples_panel
from basis.lab.section import Section, mean_and_error
from basis.lab.separated import posterior_draws, separate_pairs


def compute(ctx: Context, section: Section) -> None:
    """Separates mixtures of four, and draws again the one whose draws differ most."""
    prior = ctx.need("mnist")
    count, draws = ctx.count(16, least=4), 4
    truth = ctx.pairs(count, k=4).sources
    mixing = mixings.mixture((1.0,) * 4, truth.shape[2])
    done = separate_pairs(ctx, prior, count, k=4, effort="best")
    again = posterior_draws(ctx, prior, truth, mixing, draws, "teaser")
    section.add_cost(done)
    section.add_cost(again)
    spread = disagreement(again.samples)
    item = int(spread.argmax())
    shown = sorted({*range(min(3, count)), item})
    section.add_panel(
        "The first mixtures, and the most ambiguous",
        truth[shown],
        done.sources[shown],
        mixing,
        names=[f"{i} ambiguous" if i == item else f"{i}" for i in shown],
        title=f"four digits, effort best: {mean_and_error(done.psnr)} dB over {count} mixtures",
    )
    title = f"mixture {item}: draws differ by {spread[item].item():.3f} rms"
    caption = f"Mixture {item} drawn again: other digits, the same sum"
    samples_panel(section, caption, truth[item], again.samples[item], mixing, title)
    section.text.append(
        f"The ambiguous mixture is the one of {count} whose {draws} posterior draws differ most; "
        "every draw reproduces the mixture exactly."
    )


TABLE = TableDefinition("teaser", "Four digits in one picture", compute, order=10)
