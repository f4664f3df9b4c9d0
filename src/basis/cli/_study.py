"""`basis study`: what the paper measures of priors beside their separations."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis._figures import Table
from basis._files import write_text
from basis.cli._common import (
    add_pairs,
    add_root,
    add_sampling,
    out_folder,
    priors_from,
    run_separation,
    sampler_from,
    way,
    write_json,
)

if TYPE_CHECKING:
    from torch import nn

    from basis.data import ImageSet
    from basis.priors import Prior

EPILOG = """\
examples:
  basis study gradients --priors mnist mnist-glow --pairs 128      sigma |grad log p_sigma| at the paper's ten levels
  basis study likelihoods --priors mnist-glow --pairs 128 --sampler basis      bits per dimension of test images and
                                                                   of separated sources

gradients writes gradients.png, gradients.md and gradients.json; likelihoods writes likelihoods.md and likelihoods.json.
The images are those of the --pairs mixtures.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("kind", choices=("gradients", "likelihoods"))
    parser.add_argument("--priors", nargs="+", metavar="NAME|DIR", help="default: --prior alone")
    parser.add_argument("--out", default="study", metavar="DIR", help="default: study")
    add_pairs(parser, 64)
    add_sampling(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    from basis.data import load_images

    out = out_folder(args.out)
    images = load_images(args.data, "test", root=args.data_root)
    args.prior = args.priors or args.prior
    priors = priors_from(args)
    measure = _gradients if args.kind == "gradients" else _likelihoods
    table, rows = measure(args, priors, images, out)
    write_text(out / f"{args.kind}.md", f"{table}\n`{args.line}`\n")
    record = {"command": args.line, "data": args.data, "seed": args.seed, args.kind: rows}
    write_json(out / f"{args.kind}.json", record)
    print(table)
    print(f"written to {out}")


def _gradients(
    args: argparse.Namespace, priors: list[Prior], images: ImageSet, out: Path
) -> tuple[str, Any]:
    from basis.pairs import draw_pairs
    from basis.studies import gradient_norms, gradient_table, plot_gradients

    pairs = draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)
    pictures = pairs.sources.flatten(0, 1)
    curves = {p.name: gradient_norms(p, pictures.to(p.device or "cpu")) for p in priors}
    plot_gradients(curves, out / "gradients.png")
    noise = next(iter(curves.values()))[0].noise
    table = gradient_table(curves).markdown()
    table += f"\n{len(pictures)} images; the norm of the noise itself is {noise:.2f}.\n"
    rows = {name: [dataclasses.asdict(g) for g in curve] for name, curve in curves.items()}
    return table, rows


def _likelihoods(
    args: argparse.Namespace, priors: list[Prior], images: ImageSet, out: Path
) -> tuple[str, Any]:
    from basis import BasisError, metrics, mixings
    from basis.pairs import draw_pairs
    from basis.studies import likelihood_table, likelihoods

    for prior in priors:
        if not prior.has_likelihood:
            raise BasisError(f"prior {prior.name!r} has no likelihood")
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


def _module(prior: Prior) -> nn.Module:
    """The network of a prior that was loaded; an empty one where it has none."""
    from torch import nn

    return getattr(prior, "module", nn.Module())
