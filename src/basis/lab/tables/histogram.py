"""PSNR of single mixtures: near-perfect, or explained in another way."""

from __future__ import annotations

from basis.errors import BasisError
from basis.lab.context import Context, MissingRequirement
from basis.lab.definition import TableDefinition
from basis.lab.mnist_table import SETTINGS
from basis.lab.section import Section
from basis.lab.separated import separate_pairs
from basis.plots.charts import COLORS, figure_png, new_figure


def compute(ctx: Context, section: Section) -> None:
    """Draws how PSNR spreads over mixtures."""
    prior = ctx.need("mnist")
    try:
        figure, (axes,) = new_figure(7, 3.6)
    except BasisError as error:
        raise MissingRequirement(str(error)) from error
    for (_, title, settings, full), color in zip(SETTINGS[:2], COLORS[:2], strict=True):
        done = separate_pairs(ctx, prior, ctx.count(full), **settings)
        section.add_cost(done)
        axes.hist(
            done.psnr.tolist(), bins=[2 * i for i in range(3, 25)], density=True, alpha=0.5,
            color=color, label=f"{title} ({len(done.psnr)} mixtures)",
        )  # fmt: skip
    axes.set(xlabel="PSNR of a mixture, dB", ylabel="share per dB")
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1))
    section.pictures.append(("PSNR per mixture, class-agnostic pairs", figure_png(figure)))
    section.text.append(
        "A pair either comes out nearly perfect or is explained in another way than it was made: "
        "the left part of the histogram is other modes of the posterior, not noise."
    )


TABLE = TableDefinition("histogram", "PSNR of single mixtures", compute, order=90)
