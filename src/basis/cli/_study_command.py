"""`basis study`: what the paper measures of priors beside their separations."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis._errors import BasisError
from basis._files import write_text
from basis._texts import markdown_code
from basis.cli._arguments import (
    add_pairs,
    add_root,
    natural,
    number,
    out_folder,
    progress_bar,
    say,
    write_json,
)
from basis.cli._sampling import add_sampling, priors_from, run_separation, sampler_from, way

if TYPE_CHECKING:
    from torch import Tensor

    from basis import Result
    from basis.pairs import Pairs
    from basis.priors import Prior

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


def _pairs(args: argparse.Namespace) -> Pairs:
    """The test mixtures that the arguments name."""
    from basis.data import load_images
    from basis.pairs import draw_pairs

    images = load_images(args.data, "test", root=args.data_root)
    return draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)


def _gradients(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The gradient study: its table, and its rows for the record."""
    from basis._figures import require_matplotlib
    from basis.studies import gradient_norms, gradient_table, plot_gradients

    require_matplotlib()
    signals = _pairs(args).sources.flatten(0, 1)
    curves = {p.name: gradient_norms(p, signals.to(p.device or "cpu")) for p in priors}
    plot_gradients(curves, out / "gradients.png")
    noise = next(iter(curves.values()))[0].noise
    table = gradient_table(curves).markdown()
    table += f"\n{len(signals)} images; the norm of the noise itself is {noise:.2f}.\n"
    rows = {name: [dataclasses.asdict(g) for g in curve] for name, curve in curves.items()}
    return table, rows


def _likelihoods(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The likelihood study: its tables, and its rows for the record."""
    from basis import mixings, studies
    from basis.priors import with_likelihood

    priors = with_likelihood(priors)
    pairs, alphas = _pairs(args), (1.0,) * args.k
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

    from basis.samplers import SAMPLERS
    from basis.studies import cost_table, evaluation_cost

    costs = [evaluation_cost(p, side) for p in priors for side in args.sides or [None]]
    steps = (sampler_from(args) or SAMPLERS["gibbs"]()).total
    table = cost_table(costs, steps, args.k).markdown()
    table += (
        f"\n{priors[0].device or 'cpu'}, {torch.get_num_threads()} threads, one image at a time.\n"
    )
    return table, [dataclasses.asdict(c) | {"side": c.side} for c in costs]


def _capacity(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The study of capacity: its table, and its rows for the record."""
    import torch

    from basis import bench, studies

    ways, pairs = [bench.find_way(name) for name in args.ways], _pairs(args)
    rows = [
        studies.measure_capacity(p, pairs, ways, seed=args.seed, progress=print) for p in priors
    ]
    table = studies.capacity_table(rows).markdown()
    table += f"\n{args.pairs} mixtures of {args.k}, {torch.get_num_threads()} threads.\n"
    return table, [dataclasses.asdict(row) for row in rows]


def _scale(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The study of more workers: its table, and its rows for the record."""
    from basis.studies import read_times, scale_table, simulate

    if args.store is None:
        raise BasisError("--store is needed: the folder of a finished job, for its shards' times")
    times = read_times(args.store)
    rows = [
        simulate(times, count, args.separations, losses=args.losses, seed=args.seed)
        for count in args.workers
    ]
    table = scale_table(rows).markdown()
    table += (
        f"\n{args.separations:,} separations in shards of {times.per_shard}, {len(times.shards)} "
        f"measured; one process can feed about {times.limit:,.0f} workers.\n"
    )
    return table, [dataclasses.asdict(row) for row in rows]


def _plausibility(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The plausibility study: its table, and its rows for the record."""
    from basis import load_prior, mixings, sample
    from basis.data import load_images
    from basis.pairs import draw_pairs
    from basis.studies import Case, flag_cases, flagged_table, plausibility_cases

    (prior,), sampler = priors, sampler_from(args)
    images = load_images(args.data, "test", root=args.data_root)
    other = _as_shape(load_images("cifar10", "test", root=args.data_root).floats(slice(64)), prior)
    foreign = _as_shape(sample(load_prior("cifar10"), 64, steps=12, seed=args.seed), prior)
    three = draw_pairs(images, 32, k=3, seed=args.seed + 2).sources
    wrong = draw_pairs(images, 32, seed=args.seed + 1).sources
    cases = plausibility_cases(_pairs(args).sources, wrong, three, other, foreign, seed=args.seed)

    def separated(case: Case) -> Result:
        mixing = mixings.mixture(case.alphas)
        return run_separation(args, case.mixture, [prior], mixing, sampler, case.name)

    rows = flag_cases(prior, cases, separated)
    table = flagged_table(rows).markdown()
    return f"{table}\n{way(args)}.\n", [dataclasses.asdict(row) for row in rows]


def _as_shape(images: Tensor, prior: Prior) -> Tensor:
    """The middles of images in the shape of a prior, colours as their mean where it has none."""
    channels, *size = prior.shape
    if images.shape[1] != channels:
        images = images.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)
    for axis, side in zip((2, 3), size, strict=True):
        images = images.narrow(axis, (images.shape[axis] - side) // 2, side)
    return images


def _weights(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The study of unknown weights: its table, and its row for the record."""
    from basis import separate
    from basis.mixings import WeightedMixing
    from basis.studies import random_weights, weight_errors, weights_table

    (prior,), sampler, truth = priors, sampler_from(args), _pairs(args).sources
    mixing = WeightedMixing(random_weights(args.pairs, seed=args.seed))
    m = mixing(truth)
    with progress_bar("weights unknown") as progress:
        unknown = separate(
            m,
            prior,
            alphas="unknown",
            sources=2,
            effort=args.effort,
            sampler=sampler,
            seed=args.seed,
            chunk=args.chunk,
            progress=progress,
        )
    known = run_separation(args, m, [prior], mixing, sampler, "weights known")
    row = weight_errors(truth, mixing.alphas, unknown, known)
    text = weights_table(row).markdown()
    text += f"\n{way(args)}; {unknown.evaluations} evaluations per mixture, {known.evaluations} "
    return text + "with known weights.\n", dataclasses.asdict(row)


def _sources(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The study of unknown numbers of sources: its table, and its rows for the record."""
    from basis import separate
    from basis.data import load_images
    from basis.pairs import draw_pairs
    from basis.studies import counts_table

    (prior,), sampler = priors, sampler_from(args)
    images = load_images(args.data, "test", root=args.data_root)
    found = []
    for k in (1, 2, 3):
        m = draw_pairs(images, args.pairs, k=k, seed=args.seed).sources.sum(dim=1)
        with progress_bar(f"{k} sources") as progress:
            result = separate(
                m,
                prior,
                sources="unknown",
                effort=args.effort,
                sampler=sampler,
                seed=args.seed,
                chunk=args.chunk,
                progress=progress,
            )
        assert result.counts is not None
        found.append((k, result.counts))
    rows = {str(k): counts.tolist() for k, counts in found}
    return counts_table(found).markdown() + f"\n{way(args)}.\n", rows


def _calibration(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The calibration study: its table and figure, and its rows for the record."""
    from basis import mixings
    from basis._figures import require_matplotlib
    from basis.studies import (
        calibration,
        calibration_table,
        exact_calibrations,
        plot_calibration,
    )

    require_matplotlib()
    sampler, draws = sampler_from(args), args.samples or 20
    args.samples = draws
    rows = exact_calibrations(48, draws, seed=args.seed)
    for prior in priors:
        pairs, alphas = _pairs(args), (1.0,) * args.k
        label = f"{prior.name}, {way(args)}"
        result = run_separation(
            args, pairs.mix(alphas), [prior], mixings.mixture(alphas), sampler, label
        )
        # Pictures are rounded to 8 bits; where draws agree to less, there is nothing to tell.
        half = 0.5 / 255
        rows.append(calibration(f"{label}, all values", pairs.sources, result, tolerance=half))
        name = f"{label}, values that deviate by 0.02 or more"
        rows.append(calibration(name, pairs.sources, result, least=0.02, tolerance=half))
    plot_calibration(rows, out / "calibration.png")
    return calibration_table(rows).markdown(), [dataclasses.asdict(row) for row in rows]


_KINDS = {
    "calibration": _calibration,
    "weights": _weights,
    "sources": _sources,
    "gradients": _gradients,
    "likelihoods": _likelihoods,
    "cost": _cost,
    "scale": _scale,
    "capacity": _capacity,
    "plausibility": _plausibility,
}
