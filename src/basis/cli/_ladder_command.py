"""`basis ladder`: one flow per noise level, each fine-tuned from the one below."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from basis.cli._arguments import (
    add_root,
    add_seed_and_device,
    add_training_set,
    data_record,
    device_from,
    natural,
    number,
    training_set,
)

EPILOG = """\
examples:
  basis ladder --data mnist --out runs/ladder --first 400000 --each 50000
  basis ladder --data mnist --out runs/ladder --width 96 --depth 8

The noiseless model is trained first, then the ten levels of the paper from 0.01 to 1.0. A run stopped at any moment goes
on when the same command is given again. The folder then holds a prior (basis separate sample --prior runs/ladder
--sampler basis) and bits.png, the bits per dimension of every level.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    add_training_set(parser)
    parser.add_argument(
        "--first", type=natural, default=400_000, help="images for the noiseless model (400000)"
    )
    parser.add_argument(
        "--each", type=natural, default=50_000, help="images for every noisy level (50000)"
    )
    parser.add_argument("--levels", type=natural, default=2, help="halvings of the side (2)")
    parser.add_argument("--depth", type=natural, default=8, help="steps per level (8)")
    parser.add_argument("--width", type=natural, default=96, help="hidden channels (96)")
    parser.add_argument("--coupling", choices=("affine", "additive"), default="affine")
    parser.add_argument("--batch", type=natural, default=128, help="images per step (128)")
    parser.add_argument("--lr", type=number, default=0.03, help="step of the matrices (0.03)")
    parser.add_argument("--adam-lr", type=number, default=2e-3, help="step of the rest (2e-3)")
    parser.add_argument(
        "--score", type=number, default=2.0, help="weight of the gradient's denoising error (2)"
    )
    add_seed_and_device(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    from basis._errors import BasisError
    from basis.cli._train_command import glow_config, pixel_moments
    from basis.store import save_prior
    from basis.studies import paper_sigmas
    from basis.training import TrainConfig, ladder_weights, plot_ladder, train_ladder

    images = training_set(args)
    _, channels, height, width = images.images.shape
    if height != width or height % 2**args.levels:
        raise BasisError(
            f"a glow of {args.levels} levels takes square images with a side divisible by "
            f"{2**args.levels}; these are {height}x{width}"
        )
    mean, std = pixel_moments(images.images)
    glow = glow_config(args, channels, height, mean=mean, std=std)
    config = TrainConfig(
        batch=args.batch,
        lr=args.lr,
        adam_lr=args.adam_lr,
        warmup=5_000,
        score=args.score,
        seed=args.seed,
    )
    sigmas = paper_sigmas()[::-1]
    out = Path(args.out)
    rungs = train_ladder(
        glow,
        images.images[: -args.held_out],
        out,
        config,
        held_out=images.images[-args.held_out :],
        sigmas=sigmas,
        first=args.first,
        each=args.each,
        device=device_from(args.device),
    )
    if rungs is None:
        return
    bits = {r.sigma: r.bits for r in rungs}
    plot_ladder({"ladder": bits}, out / "bits.png")
    card = {
        "name": args.name or out.resolve().name,
        "title": f"ladder of flows of {images.name}",
        "architecture": {"kind": "ladder", "network": dataclasses.asdict(glow), "sigmas": sigmas},
        "shape": [channels, height, width],
        "sigma_min": sigmas[0],
        "sigma_max": sigmas[-1],
        "data": data_record(args, images),
        "training": {
            "images_first": args.first,
            "images_each": args.each,
            "hours": round(sum(r.seconds for r in rungs) / 3600, 2),
            "config": dataclasses.asdict(config),
            "held_out_bits_per_dimension": {f"{s:.4g}": round(b, 4) for s, b in bits.items()},
        },
    }
    save_prior(out, ladder_weights(rungs), card)
    print(f"prior: {out}  bits: {out / 'bits.png'}")
