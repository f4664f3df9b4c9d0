"""`basis evaluate`: PSNR on test mixtures, by the protocol of the paper's tables."""

from __future__ import annotations

import argparse
from typing import Any

from basis.cli._arguments import (
    add_json,
    add_pairs,
    add_root,
    add_sampling,
    priors_from,
    run_separation,
    sampler_from,
    way,
    write_json,
)

EPILOG = """\
examples:
  basis evaluate --data mnist --pairs 256 --effort best --json best.json
  basis evaluate --data mnist --pairs 256 --sampler basis      the paper's settings
  basis evaluate --data mnist --pairs 256 --sampler basis --delta 3e-5 --weight 2
                                                               the settings of its authors' code
  basis evaluate --data sample --pairs 16 --effort fast        a quick look with no data
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `basis evaluate`."""
    parser.epilog = EPILOG
    add_pairs(parser, 256)
    add_sampling(parser)
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Separates test mixtures and prints their PSNR beside that of the average."""
    import torch

    from basis import metrics, mixings
    from basis.data import load_images
    from basis.pairs import draw_pairs

    sampler = sampler_from(args)
    priors = priors_from(args)
    images = load_images(args.data, "test", root=args.data_root)
    pairs = draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)
    alphas = (1.0,) * args.k
    mixture = pairs.mix(alphas)
    rows: dict[str, Any] = {"average": metrics.psnr(pairs.average(), pairs.sources)}
    mixing = mixings.mixture(alphas, images.images.shape[1])
    name = way(args)
    label = f"{name} on {args.pairs} mixtures"
    result = run_separation(args, mixture, priors, mixing, sampler, label)
    rows[name] = metrics.psnr(result.sources, pairs.sources)
    if result.samples.shape[1] > 1:
        rows[f"{name}, one sample"] = metrics.psnr(result.samples[:, 0], pairs.sources)
        rows[f"{name}, mean of samples"] = metrics.psnr(result.mean, pairs.sources)
        each = [metrics.psnr(s, pairs.sources) for s in result.samples.unbind(1)]
        rows[f"{name}, best possible choice"] = torch.stack(each).amax(dim=0)
    for row, values in rows.items():
        print(f"{row:40} {metrics.summarise(values)} dB")
    residual = result.residual.max().item()
    print(f"residual: largest rms {residual * 255:.3f}/255 over the mixtures")
    print(f"{result.evaluations} network evaluations per mixture, {result.seconds:.0f} s in all")
    if args.json:
        record = {
            "command": args.line,
            "data": args.data,
            "protocol": args.protocol,
            "pairs": args.pairs,
            "k": args.k,
            "seed": args.seed,
            "psnr": {name: vars(metrics.summarise(values)) for name, values in rows.items()},
            "psnr_each": {name: values.tolist() for name, values in rows.items()},
            "indices": pairs.indices.tolist(),
            "residual_rms_largest": residual,
            "evaluations_per_mixture": result.evaluations,
            "evaluations_most": int(result.spent.max()),
            "seconds": round(result.seconds, 2),
            "settings": result.settings,
        }
        write_json(args.json, record)
