"""`basis study`: what the paper measures of priors beside their separations."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import add_pairs, add_root, natural, number, out_folder, say
from basis.cli.sampling import add_sampling, priors_from, run_separation, sampler_from, way
from basis.cli.sure_studies import (
    calibration_study,
    plausibility_study,
    sources_study,
    study_pairs,
    weights_study,
)
from basis.errors import markdown_code
from basis.files import write_json, write_text

if TYPE_CHECKING:
    from basis.priors.prior import Prior


EPILOG = """\
examples:
  basis study gradients --priors mnist mnist-glow --pairs 128
      sigma |grad log p_sigma| at the paper's ten levels
  basis study likelihoods --priors mnist-glow --pairs 128 --sampler basis
      bits per dimension of test images and of separated sources
  basis study cost --prior cifar10 --sides 32 64 256 --sampler gibbs --steps 98
      operations and seconds, for each pixel and step
  basis study calibration --pairs 16 --samples 20 --sampler gibbs
      coverage of intervals, with exact posteriors and on test mixtures
  basis study weights --pairs 128 --effort fast
      weights of 128 pairs, uniform in 0.25 to 0.75, estimated with the sources
  basis study sources --pairs 32 --effort fast
      the number of sources of 32 mixtures each of 1, 2 and 3
  basis study capacity --priors runs/small runs/large --pairs 64 --ways fast basis
      networks of different size on the same mixtures
  basis study plausibility --pairs 512 --effort fast
      how many of 512 right mixtures, and of 8 kinds of wrong ones, 32 each, are called implausible

  basis study scale --store separated --separations 1000000 --workers 1 10 100 1000
      what a finished job's shard times say of more workers

gradients writes gradients.png, gradients.md and gradients.json; likelihoods writes likelihoods.md
and likelihoods.json, the others the same. The images are those of the --pairs mixtures.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("kind", choices=tuple(_KINDS))
    parser.add_argument("--priors", nargs="+", metavar="NAME|DIR", help="default: --prior alone")
    parser.add_argument(
        "--sides",
        type=natural,
        nargs="+",
        metavar="SIDE",
        help="cost: of images (default: the prior's own)",
    )
    parser.add_argument(
        "--ways",
        nargs="+",
        default=["fast"],
        metavar="WAY",
        help="capacity: efforts and samplers to separate by (default: fast)",
    )
    scale = parser.add_argument_group("scale")
    scale.add_argument("--store", metavar="DIR", help="the store of a finished job")
    scale.add_argument("--separations", type=natural, default=1_000_000, help="default 1000000")
    scale.add_argument(
        "--workers", type=natural, nargs="+", default=[1, 10, 100, 300, 1000], metavar="N"
    )
    scale.add_argument(
        "--losses", type=number, default=0.01, help="workers lost, of each per hour (0.01)"
    )
    parser.add_argument("--out", default="study", metavar="DIR", help="default: study")
    add_pairs(parser, 64)
    add_sampling(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Runs one study and writes its table and record."""
    out = out_folder(args.out)
    args.prior = args.priors or args.prior
    priors = [] if args.kind == "scale" else priors_from(args)
    table, rows = _KINDS[args.kind](args, priors, out)
    write_text(out / f"{args.kind}.md", f"{table}\n{markdown_code(args.line)}\n")
    record = {"command": args.line, "data": args.data, "seed": args.seed, args.kind: rows}
    write_json(out / f"{args.kind}.json", record)
    print(table)
    say(f"written to {out}")


def _gradients(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The gradient study: its table, and its rows for the record."""
    from basis.lab.studies.gradient_study import gradient_norms, gradient_table, plot_gradients
    from basis.plots.charts import require_matplotlib

    require_matplotlib()
    signals = study_pairs(args).sources.flatten(0, 1)
    curves = {p.name: gradient_norms(p, signals.to(p.device or "cpu")) for p in priors}
    plot_gradients(curves, out / "gradients.png")
    noise = next(iter(curves.values()))[0].noise
    table = gradient_table(curves).markdown()
    table += f"\n{len(signals)} images; the norm of the noise itself is {noise:.2f}.\n"
    rows = {name: [dataclasses.asdict(g) for g in curve] for name, curve in curves.items()}
    return table, rows


def _likelihoods(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The likelihood study: its tables, and its rows for the record."""
    from basis import mixings
    from basis.lab import studies
    from basis.priors.likelihood import with_likelihood

    priors = with_likelihood(priors)
    pairs, alphas = study_pairs(args), (1.0,) * args.k
    mixing = mixings.mixture(alphas, pairs.sources.shape[2])
    sampler = sampler_from(args)
    rows, costs = [], []
    for prior in priors:
        label = f"{prior.name}, {way(args)} on {args.pairs} mixtures"
        result = run_separation(args, pairs.mix(alphas), [prior], mixing, sampler, label)
        place = prior.device or "cpu"
        flat = (t.flatten(0, 1).to(place) for t in (pairs.sources, result.sources))
        rows.append(studies.likelihoods(prior, *flat, seed=args.seed))
        costs.append(studies.separation_cost(prior, result, pairs.sources))
    tables = (studies.likelihood_table(rows), studies.separation_cost_table(costs))
    text = "\n".join(table.markdown() for table in tables)
    text += f"\n{args.pairs} mixtures of {args.k}, {way(args)}, all in one run.\n"
    both = zip(rows, costs, strict=True)
    return text, [dataclasses.asdict(cost) | dataclasses.asdict(row) for row, cost in both]


def _cost(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The cost study: its table, and its rows for the record."""
    import torch

    from basis.lab.studies.cost_study import cost_table, evaluation_cost
    from basis.samplers import SAMPLERS

    costs = [evaluation_cost(p, side) for p in priors for side in args.sides or [None]]
    steps = (sampler_from(args) or SAMPLERS["gibbs"]()).total_steps
    table = cost_table(costs, steps, args.k).markdown()
    table += (
        f"\n{priors[0].device or 'cpu'}, {torch.get_num_threads()} threads, one image at a time.\n"
    )
    return table, [dataclasses.asdict(c) | {"side": c.side} for c in costs]


def _capacity(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The study of capacity: its table, and its rows for the record."""
    import torch

    from basis import lab
    from basis.lab import studies

    ways, pairs = [lab.find_way(name) for name in args.ways], study_pairs(args)
    rows = [
        studies.measure_capacity(p, pairs, ways, seed=args.seed, progress=print) for p in priors
    ]
    table = studies.capacity_table(rows).markdown()
    table += f"\n{args.pairs} mixtures of {args.k}, {torch.get_num_threads()} threads.\n"
    return table, [dataclasses.asdict(row) for row in rows]


_KINDS = {
    "calibration": calibration_study,
    "weights": weights_study,
    "sources": sources_study,
    "gradients": _gradients,
    "likelihoods": _likelihoods,
    "cost": _cost,
    "capacity": _capacity,
    "plausibility": plausibility_study,
}
