"""`basis train`: a score prior from images, resumed from wherever it was left."""

from __future__ import annotations

import argparse
import copy
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli._arguments import (
    add_root,
    add_training_set,
    data_record,
    device_from,
    natural,
    number,
    training_set,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from basis.data import ImageSet
    from basis.nn import GlowConfig
    from basis.training import Trainer
    from basis.training._objectives import Objective
    from basis.training._trainer import SigmaDraw

_LIKELIHOODS = {"glow": "flow", "pixelcnn": "autoregressive", "vae": "autoencoder"}

EPILOG = """\
examples:
  basis train --data mnist --out runs/mnist --images 2000000
  basis train --data photos/ --size 64 --out runs/photos --widths 64 128 192 --blocks 2 2 3
  basis train --data mnist --architecture ncsn --out runs/ncsn --lr 0.01
  basis train --data mnist --architecture glow --out runs/glow --width 96 --sigma-max 1.0

A run stopped at any moment (Ctrl-C too) goes on to the step when the same command is given again; raise --images
to train longer. The folder then holds a prior: basis separate sample --prior runs/mnist
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    add_training_set(parser)
    parser.add_argument(
        "--init", metavar="NAME|DIR", help="start a new run from this prior's weights"
    )
    parser.add_argument("--device", default="cpu", help="torch device (default: cpu)")
    parser.add_argument("--threads", type=natural, help="CPU threads (default: torch's choice)")
    network = parser.add_argument_group("network")
    network.add_argument(
        "--architecture",
        choices=("unet", "ncsn", *_LIKELIHOODS),
        default="unet",
        help="what to train (unet)",
    )
    network.add_argument(
        "--fold", type=natural, default=2, help="unet: pixels per side laid into channels"
    )
    network.add_argument(
        "--widths", type=natural, nargs="+", default=[48, 96], help="unet: per level"
    )
    network.add_argument(
        "--blocks", type=natural, nargs="+", default=[2, 4], help="unet: per level"
    )
    network.add_argument("--attention", type=int, default=1, help="unet: levels with attention")
    network.add_argument("--dropout", type=number, default=0.0, help="unet: share dropped")
    network.add_argument("--width", type=natural, default=64, help="all but unet: channels")
    network.add_argument("--levels", type=natural, default=2, help="glow: halvings of the side")
    network.add_argument("--depth", type=natural, default=8, help="glow: steps per level")
    network.add_argument("--coupling", choices=("affine", "additive"), default="affine")
    network.add_argument(
        "--single",
        type=number,
        metavar="SIGMA",
        help="glow: a model of this noise level alone (0: noiseless) instead of one for all",
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--variance-images",
        type=int,
        default=100_000,
        help="unet: images seen at the end to learn how sure the network is of each pixel (default 100000, and no more "
        "than the run itself saw); --init's own goes on",
    )
    for name, kind, default, text in _training_fields():
        flag = "--" + name.replace("_", "-")
        if kind is bool:
            training.add_argument(flag, action="store_true", help=text)
        else:
            convert = natural if kind is int and name != "seed" else kind
            training.add_argument(flag, type=convert, default=default, help=f"{text} ({default:g})")
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Does it."""
    import torch

    from basis._errors import BasisError
    from basis.store import describe_module
    from basis.training import (
        Denoising,
        Likelihood,
        TrainConfig,
        Trainer,
        discrete_sigmas,
        likelihood_sigmas,
        one_sigma,
        plot_log,
    )

    if args.threads:
        torch.set_num_threads(args.threads)
    config = TrainConfig(**{f.name: getattr(args, f.name) for f in dataclasses.fields(TrainConfig)})
    images = training_set(args)
    torch.manual_seed(config.seed)
    module = _module(args, images)
    head = _start_from(module, args) if args.init else None
    sigmas: SigmaDraw | None = None
    objective: Objective = Denoising()
    if args.single is not None and args.architecture != "glow":
        raise BasisError("--single goes with --architecture glow")
    if args.architecture in _LIKELIHOODS:
        objective = Likelihood(config.score, pixel_moments(images.images)[1])
        if args.single is not None:
            config = dataclasses.replace(config, sigma_min=args.single, sigma_max=args.single)
            sigmas = one_sigma(args.single)
        else:
            sigmas = likelihood_sigmas(config)
    if args.architecture == "ncsn":
        sigmas = discrete_sigmas(module.levels)  # type: ignore[arg-type]
        top, bottom = float(module.levels[0]), float(module.levels[-1])  # type: ignore[index]
        config = dataclasses.replace(config, sigma_min=bottom, sigma_max=top)
    trainer = Trainer(
        module,
        images.images[: -args.held_out],
        args.out,
        config,
        held_out=images.images[-args.held_out :],
        about={"architecture": describe_module(module), "data": data_record(args, images)},
        sigmas=sigmas,
        objective=objective,
        device=device_from(args.device),
    )
    if trainer.step:
        print(f"going on from step {trainer.step} ({trainer.seen:,} images seen)")
    complete = trainer.run()
    variance = complete and args.variance_images > 0
    folder = export(trainer, images, args, variance=variance, head=head)
    curve = plot_log(trainer.folder)
    if not complete:
        print(f"stopped at {trainer.seen:,} of {config.images:,} images; the same command goes on")
    print(f"prior: {folder}  curve: {curve}")


def export(
    trainer: Trainer,
    images: ImageSet,
    args: argparse.Namespace,
    *,
    variance: bool,
    head: nn.Module | None = None,
) -> Path:
    """Writes the averaged weights with their card into the run's folder.

    A finished run also gets its variance head here: minutes, done anew whenever the run is exported. It goes on from `head`,
    that of the prior which the run started from.
    """
    from basis.nn import Denoiser
    from basis.store import describe_module, save_prior
    from basis.training import fit_variance

    name = args.name or trainer.folder.resolve().name
    training = _training_record(trainer)
    card = {
        "name": name,
        "title": f"{_LIKELIHOODS.get(args.architecture, 'score')} prior of {images.name}",
        "architecture": describe_module(trainer.model),
        "shape": list(images.images.shape[1:]),
        "sigma_min": trainer.config.sigma_min,
        "sigma_max": trainer.config.sigma_max,
        # Where the files lay says nothing to whoever reads the card elsewhere.
        "data": data_record(args, images),
        "training": training,
    }
    # Saved before the head is learned, so that stopping there loses nothing.
    folder = save_prior(trainer.folder, trainer.average, card)
    if not (variance and isinstance(trainer.model, Denoiser)):
        return folder
    with trainer.averaged() as module:
        assert isinstance(module, Denoiser)
        try:
            low, high = trainer.config.sigma_min, trainer.config.sigma_max
            # A short trial is not to wait for long; a head from nothing on a trained network needs all of it.
            whole = args.init is not None and head is None
            count = args.variance_images if whole else min(args.variance_images, trainer.seen)
            module.head = copy.deepcopy(head)  # type: ignore[assignment]
            losses = fit_variance(
                module, trainer.images, count=count, sigma_min=low, sigma_max=high
            )
            tail = losses[-50:]
            training["variance"] = {"images": count, "loss": round(sum(tail) / len(tail), 4)}
            card["architecture"] = describe_module(module)
            return save_prior(trainer.folder, dict(module.named_parameters()), card)
        finally:
            module.head = None


def _training_record(trainer: Trainer) -> dict[str, Any]:
    from basis.training import Denoising

    record = {
        "images_seen": trainer.seen,
        "steps": trainer.step,
        "hours": round(trainer.seconds / 3600, 2),
        "config": dataclasses.asdict(trainer.config),
    }
    if trainer.held_out is not None:
        errors = trainer.validate()
        record[trainer.objective.record] = {s: round(e, 5) for s, e in errors.items()}
        if trainer.objective.record != Denoising.record and trainer.config.sigma_max > 0:
            record[Denoising.record] = _gradient_errors(trainer)
    return record


def _gradient_errors(trainer: Trainer) -> dict[str, float]:
    """How well a likelihood model denoises by its gradient, on the held-out images: few-step samplers ask for it."""
    import torch

    from basis.priors import LikelihoodPrior
    from basis.training import Denoising

    assert trainer.held_out is not None
    clean = trainer.held_out.float().div(255)
    low, high = trainer.config.sigma_min, trainer.config.sigma_max
    errors = {}
    with trainer.averaged() as module:
        wanted = [p.requires_grad for p in module.parameters()]
        shape = tuple(clean.shape[1:])
        prior = LikelihoodPrior(module, shape, low, high)  # type: ignore[arg-type]
        for level in Denoising().levels(trainer.config):
            noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))
            answer = prior.denoise((clean + level * noise).to(trainer.device), level).cpu()
            errors[f"{level:g}"] = round(((answer - clean).square().mean() / level**2).item(), 5)
        for p, was in zip(module.parameters(), wanted, strict=True):
            p.requires_grad_(was)
    return errors


def _module(args: argparse.Namespace, images: ImageSet) -> nn.Module:
    from basis._errors import BasisError
    from basis.nn import NCSN, Denoiser, NCSNConfig, NCSNDenoiser, UNet, UNetConfig

    _, channels, height, width = images.images.shape
    if args.architecture == "ncsn":
        if height != width:
            raise BasisError(f"ncsn takes square images; these are {height}x{width}")
        return NCSNDenoiser(NCSN(NCSNConfig(channels=channels, size=height, width=args.width)))
    mean, std = pixel_moments(images.images)
    if args.architecture in _LIKELIHOODS:
        try:
            return _likelihood_module(args, channels, height, width, {"mean": mean, "std": std})
        except ValueError as error:
            raise BasisError(f"{args.architecture}: {error}") from error
    if len(args.widths) != len(args.blocks):
        raise BasisError(
            f"{len(args.widths)} widths and {len(args.blocks)} blocks; give one of each per level"
        )
    network = UNet(
        UNetConfig(
            channels=channels,
            fold=args.fold,
            widths=tuple(args.widths),
            blocks=tuple(args.blocks),
            attention=args.attention,
            dropout=args.dropout,
        )
    )
    if height % network.multiple or width % network.multiple:
        raise BasisError(
            f"images of {height}x{width} do not fit this network: sides must be multiples of "
            f"{network.multiple} (fold x 2 per level after the first)"
        )
    return Denoiser(network, mean, std)


def _likelihood_module(
    args: argparse.Namespace, channels: int, height: int, width: int, moments: dict[str, Any]
) -> nn.Module:
    """A flow, an autoregressive model or an autoencoder; raises ValueError where the images do not fit."""
    from basis.nn import VAE, Glow, PixelCNN, PixelCNNConfig, VAEConfig

    if args.architecture == "pixelcnn":
        return PixelCNN(PixelCNNConfig(channels=channels, width=args.width, **moments))
    if height != width:
        raise ValueError(f"images must be square, not {height}x{width}")
    if args.architecture == "vae":
        return VAE(VAEConfig(channels=channels, size=height, width=args.width, **moments))
    single = args.single is not None
    return Glow(glow_config(args, channels, height, conditioned=not single, **moments))


def glow_config(args: argparse.Namespace, channels: int, size: int, **more: Any) -> GlowConfig:
    """The sizes of a flow that --levels, --depth, --width and --coupling give."""
    from basis.nn import GlowConfig

    sizes = {name: getattr(args, name) for name in ("levels", "depth", "width", "coupling")}
    return GlowConfig(channels=channels, size=size, **sizes, **more)


def _start_from(module: nn.Module, args: argparse.Namespace) -> nn.Module | None:
    """Gives the module a prior's weights, which a resumed run then replaces by its own; the prior's variance head, if any."""
    from basis._errors import BasisError
    from basis.store import load_prior

    prior = load_prior(args.init, root=args.data_root)
    try:
        # A variance head is not part of what is trained; it is fitted to the network at the end.
        weights = prior.module.state_dict()  # type: ignore[attr-defined]
        module.load_state_dict({n: t for n, t in weights.items() if not n.startswith("head.")})
    except (AttributeError, RuntimeError) as error:
        raise BasisError(
            f"prior {prior.name!r} has another architecture than the network asked for"
        ) from error
    return getattr(prior.module, "head", None)  # type: ignore[attr-defined]


def pixel_moments(images: Tensor) -> tuple[float, float]:
    """Mean and standard deviation of all pixels in [0, 1], from their histogram."""
    import torch

    counts = torch.bincount(images.flatten().int(), minlength=256).double()
    values = torch.arange(256).double() / 255
    mean = (counts * values).sum() / counts.sum()
    variance = (counts * (values - mean).square()).sum() / counts.sum()
    return round(mean.item(), 4), round(variance.sqrt().item(), 4)


def _training_fields() -> list[tuple[str, type, Any, str]]:
    from basis.training._config import TrainConfig

    kinds = {"int": int, "float": float, "bool": bool}
    return [
        (f.name, kinds[str(f.type)], f.default, f.metadata["help"])
        for f in dataclasses.fields(TrainConfig)
    ]
