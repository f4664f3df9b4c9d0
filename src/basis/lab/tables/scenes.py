"""Churches laid over bedrooms: a prior for each source, and sources in their own component."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from basis import metrics, mixings
from basis.errors import BasisError
from basis.lab.context import Context
from basis.lab.definition import TableDefinition
from basis.lab.own_component import SCENES, in_order, scene_classifier, scene_photos
from basis.lab.photo_table import PHOTOS
from basis.lab.section import Section, mean_and_error, percentage
from basis.lab.separated import separate_sources
from basis.lab.studies.likelihood_study import bits
from basis.plots.charts import Table
from basis.priors.prior import Prior


def compute(ctx: Context, section: Section) -> None:
    """Separates churches from bedrooms and measures which source landed in which component."""
    try:
        photos = [scene_photos(ctx, name, "test") for name in SCENES]
    except BasisError as error:
        section.text.append(f"no data: {error}")
        return
    count = min(ctx.count(60), *map(len, photos))
    truth = torch.stack([p[:count] for p in photos], dim=1)
    mixing = mixings.mixture((0.5, 0.5), truth.shape[2])
    classifier = scene_classifier(ctx)
    flows = ctx.all_priors([f"{name}-glow" for name in SCENES])
    average = mixing(truth)[:, None].expand_as(truth)
    rows = [
        (
            "Average",
            mean_and_error(metrics.psnr(average, truth, permute=True)),
            "",
            "",
            "",
            f"{count}",
        )
    ]
    costs = {} if flows is None else {"photos as they are": _bits(flows, truth, ctx.seed)}
    for ending, title in (("", "score networks"), ("-glow", "flows")):
        priors = ctx.all_priors([name + ending for name in SCENES])
        if priors is None:
            rows.append((title, "no prior", "", "", "", ""))
            continue
        done = separate_sources(ctx, priors, truth, mixing, **PHOTOS)
        section.add_cost(done)
        likely = ""
        if flows is not None:
            cost = costs[f"separated with {title}"] = _bits(flows, done.sources, ctx.seed)
            likely = percentage(cost[0, 0] + cost[1, 1] < cost[0, 1] + cost[1, 0])
        own = "" if classifier is None else percentage(classifier.in_order(done.sources))
        nearer = percentage(in_order(done.sources, truth))
        rows.append((title, mean_and_error(done.psnr), nearer, own, likely, f"{count}"))
        shown = min(6, count)
        section.add_panel(
            f"Uncurated, {title}", truth[:shown], done.sources[:shown], mixing,
            title=f"the first {shown} mixtures, {title}", cell=112,
        )  # fmt: skip
    header = (
        "priors", "PSNR, dB", "nearer to its own photo", "by a classifier", "by likelihood",
        "mixtures",
    )  # fmt: skip
    section.tables.append(Table(header, rows))
    section.text.append(
        "Shares of mixtures whose sources land in their own component: no permutation is tried, "
        "the first prior gives the church and the second the bedroom. By a classifier: the first "
        "source looks more like a church than the second does. By likelihood: the two flows prefer "
        "this order to the other. " + ("" if classifier is None else classifier.description)
    )
    if flows is not None:
        section.tables.append(_bits_table(flows, costs))


def _bits(flows: Sequence[Prior], sources: Tensor, seed: int) -> Tensor:
    """Bits per dimension of each source (second index) under each flow (first): (2, 2, count)."""
    return torch.stack(
        [
            torch.stack([bits(flow, x, flow.sigma_min, seed=seed) for x in sources.unbind(1)])
            for flow in flows
        ]
    )


def _bits_table(flows: Sequence[Prior], costs: dict[str, Tensor]) -> Table:
    """Every set under every flow, as the paper's table of sample likelihoods."""
    rows = [
        (title, *(mean_and_error(cost[f, s], 3) for s in range(2) for f in range(2)))
        for title, cost in costs.items()
    ]
    columns = [f"{name} under {flow.name}" for name in SCENES for flow in flows]
    return Table((f"bits per dimension, p_σ at σ = {flows[0].sigma_min:g}", *columns), rows)


TABLE = TableDefinition("scenes", "A church over a bedroom", compute, order=80)
