"""`basis convert`: published checkpoints as priors."""

from __future__ import annotations

import argparse

from basis.cli.arguments import natural, number, say

EPILOG = """\
examples:
  basis convert ncsn checkpoint.pth --config config.yml --out priors/ncsn-mnist
  basis convert glow logs0point01/model_best_loss.ckpt logs0point016/model_best_loss.ckpt \\
      --sigmas 0.01 0.01668 --size 32 --out priors/glow-cifar

ncsn takes the authors' checkpoint.pth; glow takes the prefixes of TensorFlow 1 checkpoints (without
.index), one per noise level. Nothing in the files is executed. The folder then holds a prior:
basis check DIR, basis separate --prior DIR. A diffusers pipeline needs no conversion:
basis priors add DIR.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("kind", choices=("ncsn", "glow"), help="what the checkpoint is of")
    parser.add_argument("checkpoints", nargs="+", metavar="FILE", help="one; glow: one per level")
    parser.add_argument("--out", required=True, metavar="DIR", help="the prior's folder")
    parser.add_argument("--name", help="what its card calls it (default: the folder's name)")
    parser.add_argument("--size", type=natural, help="side of the images (glow: must be given)")
    parser.add_argument("--config", metavar="FILE", help="ncsn: the config.yml of the checkpoint")
    parser.add_argument("--sigmas", type=number, nargs="+", help="glow: noise level of each file")


def run(args: argparse.Namespace) -> None:
    """Writes the prior of the checkpoints."""
    from basis.errors import BasisError
    from basis.lab.convert import convert_glow, convert_ncsn

    if args.kind == "ncsn":
        if len(args.checkpoints) != 1 or args.sigmas:
            raise BasisError("basis convert ncsn takes one checkpoint and no --sigmas")
        folder = convert_ncsn(
            args.checkpoints[0], args.out, config=args.config, name=args.name, size=args.size
        )
    else:
        if args.config:
            raise BasisError("--config goes with ncsn")
        if not args.size:
            raise BasisError(
                "basis convert glow needs --size: the side of its images is in no weight"
            )
        folder = convert_glow(
            args.checkpoints,
            args.out,
            sigmas=args.sigmas or ([0.0] if len(args.checkpoints) == 1 else []),
            size=args.size,
            name=args.name,
        )
    say(f"prior: {folder}")
