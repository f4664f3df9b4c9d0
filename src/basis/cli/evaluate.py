"""`basis evaluate`: PSNR on test mixtures, by the protocol of the paper's tables.

Signals without bounds, such as sound, are measured by SNR instead.
"""

from __future__ import annotations

import argparse

from basis.cli.arguments import add_json, add_pairs, add_root, say
from basis.cli.sampling import add_sampling, priors_from, run_separation, sampler_from, way
from basis.files import write_json

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
    parser.add_argument(
        "--clip", action="store_true", help="cut mixtures off at 1 without telling the separation"
    )
    parser.add_argument("--clipped", action="store_true", help="cut mixtures off at 1, and say so")
    parser.add_argument(
        "--rounded", action="store_true", help="round mixtures to the steps of 8 bits, and say so"
    )
    add_sampling(parser)
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Separates test mixtures and prints their PSNR beside that of the average."""
    import torch
    from torch import Tensor

    from basis import metrics, mixings
    from basis._mix import draw_pairs
    from basis.signals.datasets import load_images

    sampler = sampler_from(args)
    priors = priors_from(args)
    images = load_images(args.data, "test", root=args.data_root)
    pairs = draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)
    alphas = (1.0,) * args.k
    mixture = pairs.mix(alphas)
    low, high = priors[0].low, priors[0].high
    measure = "snr" if low is None or high is None else "psnr"

    def quality(estimate: Tensor) -> Tensor:
        if measure == "snr":
            return metrics.snr(estimate, pairs.sources, permute=True)
        return metrics.psnr(estimate, pairs.sources, (low, high), permute=True)

    rows: dict[str, Tensor] = {"average": quality(pairs.average())}
    mixing: mixings.Mixing = mixings.mixture(alphas, images.images.shape[1])
    mixing = mixing.clipped() if args.clipped else mixing
    mixing = mixing.rounded() if args.rounded else mixing
    if mixing.limited:
        mixture = mixing(pairs.sources)
    mixture = mixture.clamp(max=1.0) if args.clip else mixture
    name = way(args)
    label = f"{name} on {args.pairs} mixtures"
    result = run_separation(args, mixture, priors, mixing, sampler, label)
    rows[name] = quality(result.sources)
    if result.samples.shape[1] > 1:
        rows[f"{name}, one sample"] = quality(result.samples[:, 0])
        rows[f"{name}, mean of samples"] = quality(result.mean)
        each = [quality(s) for s in result.samples.unbind(1)]
        rows[f"{name}, best possible choice"] = torch.stack(each).amax(dim=0)
    for row, values in rows.items():
        say(f"{row:40} {metrics.summarize(values)} dB")
    residual = result.residual.max().item()
    in_steps = (low, high) == (0.0, 1.0)
    text = f"{residual * 255:.3f}/255" if in_steps else f"{residual:.3g}"
    say(f"residual: largest rms {text} over the mixtures")
    say(f"{result.evaluations} network evaluations per mixture, {result.seconds:.0f} s in all")
    if args.json:
        record = {
            "command": args.line,
            "data": args.data,
            "protocol": args.protocol,
            "pairs": args.pairs,
            "k": args.k,
            "seed": args.seed,
            measure: {name: vars(metrics.summarize(values)) for name, values in rows.items()},
            f"{measure}_each": {name: values.tolist() for name, values in rows.items()},
            "indices": pairs.indices.tolist(),
            "residual_rms_largest": residual,
            "evaluations_per_mixture": result.evaluations,
            "evaluations_most": int(result.spent.max()),
            "seconds": round(result.seconds, 2),
            "settings": result.settings,
        }
        write_json(args.json, record)
