"""`basis study`: what the paper measures of priors beside their separations."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis._figures import Table
from basis._files import write_text
from basis.cli._arguments import add_pairs, add_root, natural, out_folder, write_json
from basis.cli._sampling import add_sampling, priors_from, run_separation, sampler_from, way

if TYPE_CHECKING:
    from torch import nn

    from basis.priors import Prior

EPILOG = """\
examples:
  basis study gradients --priors mnist mnist-glow --pairs 128      sigma |grad log p_sigma| at the paper's ten levels
  basis study likelihoods --priors mnist-glow --pairs 128 --sampler basis      bits per dimension of test images and
                                                                   of separated sources
  basis study cost --prior cifar10 --sides 32 64 256 --steps 98    operations and seconds, for each pixel and step

gradients writes gradients.png, gradients.md and gradients.json; likelihoods writes likelihoods.md and likelihoods.json,
cost the same. The images are those of the --pairs mixtures.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
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
    parser.add_argument("--out", default="study", metavar="DIR", help="default: study")
    add_pairs(parser, 64)
    add_sampling(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    out = out_folder(args.out)
    args.prior = args.priors or args.prior
    priors = priors_from(args)
    table, rows = _KINDS[args.kind](args, priors, out)
    write_text(out / f"{args.kind}.md", f"{table}\n`{args.line}`\n")
    record = {"command": args.line, "data": args.data, "seed": args.seed, args.kind: rows}
    write_json(out / f"{args.kind}.json", record)
    print(table)
    print(f"written to {out}")


def _gradients(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    from basis.data import load_images
    from basis.pairs import draw_pairs
    from basis.studies import gradient_norms, gradient_table, plot_gradients

    images = load_images(args.data, "test", root=args.data_root)
    pairs = draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)
    pictures = pairs.sources.flatten(0, 1)
    curves = {p.name: gradient_norms(p, pictures.to(p.device or "cpu")) for p in priors}
    plot_gradients(curves, out / "gradients.png")
    noise = next(iter(curves.values()))[0].noise
    table = gradient_table(curves).markdown()
    table += f"\n{len(pictures)} images; the norm of the noise itself is {noise:.2f}.\n"
    rows = {name: [dataclasses.asdict(g) for g in curve] for name, curve in curves.items()}
    return table, rows


def _likelihoods(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    from basis import BasisError, metrics, mixings
    from basis.data import load_images
    from basis.pairs import draw_pairs
    from basis.studies import likelihood_table, likelihoods

    for prior in priors:
        if not prior.has_likelihood:
            raise BasisError(f"prior {prior.name!r} has no likelihood")
    images = load_images(args.data, "test", root=args.data_root)
    pairs = draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)
    mixing = mixings.mixture((1.0,) * args.k, images.images.shape[1])
    sampler = sampler_from(args)
    rows, costs = [], []
    for prior in priors:
        label = f"{prior.name}, {way(args)} on {args.pairs} mixtures"
        mixture = pairs.mix((1.0,) * args.k)
        result = run_separation(args, mixture, [prior], mixing, sampler, label)
        place = prior.device or "cpu"
        flat = (t.flatten(0, 1).to(place) for t in (pairs.sources, result.sources))
        rows.append(likelihoods(prior, *flat, seed=args.seed))
        score = metrics.summarise(metrics.psnr(result.sources, pairs.sources))
        weights = sum(p.numel() for p in _module(prior).parameters())
        costs.append((prior.name, score, result.evaluations, result.seconds / args.pairs, weights))
    cells = [
        (name, f"{s.mean:.2f} ± {s.stderr:.2f}", f"{spent:,}", f"{seconds:.2f}", f"{weights:,}")
        for name, s, spent, seconds, weights in costs
    ]
    header = ("separation", "PSNR, dB", "evaluations each", "seconds each", "weights to load")
    table = f"{likelihood_table(rows).markdown()}\n{Table(header, cells).markdown()}"
    table += f"\n{args.pairs} mixtures of {args.k}, {way(args)}, all in one run.\n"
    record = [
        {
            **dataclasses.asdict(r),
            "psnr": vars(s),
            "evaluations": spent,
            "seconds_each": seconds,
            "weights": weights,
        }
        for r, (_, s, spent, seconds, weights) in zip(rows, costs, strict=True)
    ]
    return table, record


def _cost(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    import torch

    from basis.samplers import Gibbs
    from basis.studies import cost_table, evaluation_cost

    costs = [evaluation_cost(p, side) for p in priors for side in args.sides or [None]]
    steps = args.steps or Gibbs().steps
    table = cost_table(costs, steps, args.k).markdown()
    table += (
        f"\n{priors[0].device or 'cpu'}, {torch.get_num_threads()} threads, one image at a time.\n"
    )
    return table, [dataclasses.asdict(c) for c in costs]


def _module(prior: Prior) -> nn.Module:
    """The network of a prior that was loaded; an empty one where it has none."""
    from torch import nn

    return getattr(prior, "module", nn.Module())


_KINDS = {"gradients": _gradients, "likelihoods": _likelihoods, "cost": _cost}
