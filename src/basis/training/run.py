"""`train`: a prior from data, in a folder that a run continues from."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from basis.devices import find_device
from basis.errors import BasisError
from basis.files import as_folder, check_disk_space
from basis.nn.energy import Energy
from basis.nn.experts import Experts
from basis.nn.growing import grow_head, grow_unet
from basis.nn.kind import NetworkKind
from basis.nn.kinds import describe_module, find_kind
from basis.nn.unet import UNet, VarianceHead
from basis.priors.prior import Prior
from basis.store.folder import CARD
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.data import Data, TrainingData, interleaved, noise_scale, training_data
from basis.training.export import finish
from basis.training.objectives import (
    Denoising,
    DualScore,
    Likelihood,
    Objective,
    SigmaDraw,
    discrete_sigmas,
    focused_sigmas,
    likelihood_sigmas,
    normalize,
    one_sigma,
)
from basis.training.processes import Processes, Report, stoppable
from basis.training.state import STATE, read_info
from basis.training.teacher import SeparationStates, Teacher, find_teacher
from basis.training.trainer import Trainer

_SHARED = ("fold", "widths", "blocks", "attention", "head_width", "embedding")
"""Sizes that a U-Net takes from the one that it starts from, unless others are asked for."""
_NEW = ("constant.", "wide.", "network.told.")
"""Parts that the network of the other prior may lack: an energy's constant, a flow's wide steps and
conditions on classes, none of which change anything at first."""


def train(
    data: Data,
    *,
    out: str | Path | None = None,
    kind: str = "unet",
    size: int | None = None,
    classes: Sequence[int] | None = None,
    value_range: tuple[float | None, float | None] | None = None,
    name: str | None = None,
    held_out: int | None = None,
    init: str | Path | Prior | None = None,
    teacher: str | Path | Prior | None = None,
    conditional: bool = False,
    sigma: float | None = None,
    variance_images: int = 100_000,
    energy_pairs: int = 64,
    root: str | Path | None = None,
    device: torch.device | str = "auto",
    compile: bool = False,
    progress: Report = True,
    **settings: Any,
) -> Prior:
    """Trains a prior in a folder, continuing from wherever the folder left off.

    The folder then holds the prior (`basis.Prior.from_pretrained(out)`), the state to continue
    from, the log and curve.png. Stopped by SIGINT or SIGTERM, it saves the state and raises
    KeyboardInterrupt with a line that says how to continue; a killed run loses seconds. The same
    call continues it to the step, and does whatever is missing of the final measurements.

    Args:
        data: A folder, a named data set (`basis.signals.load_images` lists what can be read), an
            .npy or .npz file, an `ImageSet`, or an array or tensor (n, channels, *size), by the
            rules of `basis.signals.to_batch`: uint8, which stands for [0, 1], int16, which
            stands for [-1, 1], or floats of any range.
        out: The folder; it must be given. One with a run on other data, or a prior without a run,
            is refused.
        kind: The kind of network: "unet", "energy", "ncsn" or "glow".
        size: The side to which pictures from files are cut and resized.
        classes: Only items with these labels.
        value_range: Bounds of float values; None for unbounded values.
        name: The name of the prior; the folder's name by default.
        held_out: Items at the end of the data that are kept for validation; by default 512, or a
            tenth of less than 5,120. A run continues with as many as it began with. Items sorted by
            class are interleaved first.
        init: A prior, or its name or folder, whose weights a new run starts from. A U-Net may be
            larger than the one it starts from, and has the same sizes by default.
        teacher: A prior, or its name or folder, with which the gradient of a model with a
            likelihood is compared, on noisy items and on states of separations, instead of the
            items themselves. The variance is learned from it too.
        conditional: Whether a U-Net learns to answer for given classes as well
            (`Prior.condition`); for data with labels.
        sigma: Trains a model of this noise level only (0: noiseless), for kinds that can be either,
            such as "glow".
        variance_images: Images seen at the end to learn the variance of each value, at most as many
            as the run itself saw; 0 for none. With `images=0` only this is trained, of `init`.
        energy_pairs: Mixtures of held-out items that are separated at the end to measure typical
            energies, at most one for 64 images seen; 0 for none.
        root: The data root, in which data and priors are found by name.
        device: Where to compute; "auto" is a GPU if there is one.
        compile: Whether steps run through torch.compile: a slow start, then faster for networks of
            more than about half a GFLOP per image.
        progress: Whether to show a progress bar with the time left (or lines, without a terminal);
            or a function that is called with each row of the log, a dictionary with `step`,
            `images`, `seconds` and `loss` or `held_out`.
        settings: Settings of `TrainConfig`, such as `images=` or `hours=`, and sizes of the
            network, such as `widths=` of `basis.nn.UNetConfig`.
    """
    folder = as_folder(out)
    network = find_kind(kind, trainable=True)
    training, sizes = split_settings(network, settings)
    if "images" in training and training.get("hours") is not None:
        raise BasisError("give images or hours, not both")
    config = TrainConfig(**training)
    items = interleaved(training_data(data, value_range, size=size, classes=classes, root=root))
    device = find_device(device)
    check_folder(folder)
    kept = split_size(items, held_out, folder)
    values = items.values[:kept]
    scale = noise_scale(items.values)
    config = config.scaled(scale)
    if not config.images and init is None:
        raise BasisError("images=0 trains nothing without a prior to start from (init)")
    if sigma is not None:
        if not hasattr(network.config, "conditioned"):
            raise BasisError(f"a single noise level (sigma) is for glow, not for {network.name}")
        config = replace(config, sigma_min=sigma, sigma_max=sigma)
    guide = find_teacher(teacher, network, items, config, root, device)
    start = load_prior(init, root=root) if isinstance(init, str | Path) else init
    if start is not None:
        sizes = sizes_like(start, network, config.noise[0]) | sizes
    if conditional:
        sizes["classes"] = count_classes(network, items)
    module = new_module(network, items, sizes, sigma is None, config.seed)
    head = start_from(module, start, config.noise[0]) if start is not None else None
    sigmas, config = _noise_levels(network, module, config, sigma)
    low, high, _ = config.noise
    taught = None
    if guide is not None:
        states = SeparationStates(guide, values, (config.batch_size + 1) // 2, low, high)
        taught = Teacher(guide, states)
    objective: Objective = Denoising(scale)
    if network.objective == "energy":
        objective = DualScore(config.dual_weight, scale, teacher=taught)
    elif network.objective == "likelihood":
        steps, std = 255 if values.dtype == torch.uint8 else 0, items.moments()[1]
        weight = config.score_weight
        objective = Likelihood(weight, std, steps=steps, scale=scale, teacher=taught)
    check_disk_space(folder, state_size(module))
    if isinstance(module, Energy) and not (folder / STATE).exists():
        # Roughly, so that the first steps need not learn what a few hundred images show.
        normalize(module, values, low, high, count=32)
    processes = Processes()
    # From here on the folder's state is read, and nobody else may change it.
    with processes.lock(folder), stoppable(folder):
        about: dict[str, Any] = {"architecture": describe_module(module), "data": items.about(kept)}
        about |= {"teacher": guide.name} if guide else {}
        trainer = Trainer(
            module,
            values,
            folder,
            config,
            held_out=items.values[kept:],
            labels=items.labels if conditional else None,
            about=about,
            sigmas=sigmas,
            objective=objective,
            device=device,
            compile=compile,
        )
        shown = progress is True and processes.first
        if trainer.step and not trainer.finished and shown:
            print(f"continuing from step {trainer.step} ({trainer.seen:,} images)", file=sys.stderr)
        run_to_end(trainer, progress)
        if processes.first:
            if config.images and (init is None or head is not None):
                # Only a new head on a trained network needs all images.
                variance_images = min(variance_images, trainer.seen)
            pairs = energy_pairs or None
            if config.images and pairs:
                # Separating a pair costs about as much as training on 64 images.
                pairs = min(pairs, trainer.seen // 64)
            done = finish(
                trainer,
                items,
                network,
                name=name or folder.resolve().name,
                variance_images=variance_images,
                energy_pairs=pairs,
                head=head,
                teacher=guide,
                progress=progress is True,
            )
            if not done and shown:
                print(f"finished already, after {trainer.seen:,} images", file=sys.stderr)
        processes.wait()
        return load_prior(folder, device=device)


def run_to_end(trainer: Trainer, progress: Report) -> None:
    """Trains to the end of the run; raises KeyboardInterrupt if a signal stops it."""
    if trainer.finished:
        return
    if not trainer.run(progress=progress):
        raise KeyboardInterrupt(f"after {trainer.seen:,} images")


def split_settings(
    network: NetworkKind, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divides the keywords of `train` into those of `TrainConfig` and those of the network."""
    training = {f.name for f in fields(TrainConfig)}
    sizes = {f.name for f in fields(network.config or TrainConfig) if f.metadata.get("flag")}
    for name in settings:
        if name not in training | sizes:
            raise BasisError(
                f"there is no setting {name!r:.60}; the settings of {network.name} are "
                f"{', '.join(sorted(sizes - training))}, those of training "
                f"{', '.join(sorted(training))}"
            )
    own = {name: value for name, value in settings.items() if name in training}
    return own, {name: value for name, value in settings.items() if name not in training}


def new_module(
    network: NetworkKind, data: TrainingData, sizes: Mapping[str, Any], conditioned: bool, seed: int
) -> nn.Module:
    """An untrained network for this data; `conditioned` if it serves all noise levels."""
    if network.unit_range and (data.low, data.high) != (0.0, 1.0):
        raise BasisError(
            f"{network.name} accepts values in [0, 1] only (value_range=(0, 1)), not from "
            f"{data.low} to {data.high}"
        )
    # The caller's random numbers stay as they are.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network.new_module(data.shape, *data.moments(), sizes, conditioned=conditioned)


def state_size(module: nn.Module) -> int:
    """Roughly the bytes that a run of this network needs on the disk: two states and a prior."""
    return 36 * sum(p.numel() for p in module.parameters())


def check_folder(folder: Path, state: str = STATE) -> None:
    """Raises if a folder holds a prior but not the state of its training."""
    if (folder / CARD).exists() and not (folder / state).exists():
        raise BasisError(
            f"{folder} holds a prior without the state of its training, which would be "
            "overwritten; use another folder"
        )


def split_size(data: TrainingData, held_out: int | None, folder: Path) -> int:
    """How many items are trained on; the rest is held out.

    The default is that of the run in the folder; for a new run 512, or a tenth of few items.
    """
    count = len(data.values)
    if held_out is None:
        begun = read_info(folder)
        held_out = max(1, min(512, count // 10))
        if begun:
            held_out = begun.data.get("held_out", held_out)
    if held_out < 1 or count <= held_out:
        raise BasisError(
            f"{data.name} has {count} items; training needs more than the {held_out} kept for "
            "validation, and at least one of those"
        )
    return count - held_out


def _noise_levels(
    network: NetworkKind, module: nn.Module, config: TrainConfig, single: float | None
) -> tuple[SigmaDraw, TrainConfig]:
    """How noise levels are drawn, and the settings with their range."""
    if single is not None:
        return one_sigma(single), config
    if network.noise == "discrete":
        levels = module.levels
        assert isinstance(levels, Tensor)
        low, high = levels.min().item(), levels.max().item()
        return discrete_sigmas(levels), replace(config, sigma_min=low, sigma_max=high)
    draw = likelihood_sigmas if network.noise == "continuous" else focused_sigmas
    return draw(config), config


def count_classes(network: NetworkKind, data: TrainingData) -> int:
    """The number of classes of a conditional network for this data."""
    if network.name != "unet":
        raise BasisError(f"only a unet can be conditional, not {network.name}")
    if data.labels is None or len(data.classes) < 2:
        raise BasisError(f"{data.name} has no labels of two or more classes")
    return len(data.classes)


def sizes_like(prior: Prior, network: NetworkKind, sigma_min: float) -> dict[str, Any]:
    """The sizes of the U-Net that a run starts from."""
    known = getattr(_source(prior, sigma_min), "network", None)
    names = {f.name for f in fields(network.config)} if network.config else set()
    if not isinstance(known, UNet):
        return {}
    return {name: getattr(known.config, name) for name in _SHARED if name in names}


def start_from(module: nn.Module, prior: Prior, sigma_min: float = 0.0) -> nn.Module | None:
    """Gives the module a prior's weights; returns the prior's variance head, if it has one.

    A U-Net also starts from a smaller one: it computes the same until it is trained.
    """
    source = _source(prior, sigma_min)
    head: nn.Module | None = getattr(source, "head", None)
    small, large = getattr(source, "network", None), getattr(module, "network", None)
    if isinstance(small, UNet) and isinstance(large, UNet):
        classes = large.config.classes
        if replace(small.config, classes=classes) != large.config:
            return _grow(prior, small, large, head)
    try:
        # The variance head is not trained but fitted at the end; conditions on other classes than
        # the new network's are not taken either.
        same = getattr(small, "config", None) == getattr(large, "config", None)
        left = ("head.", "above.") if same else ("head.", "above.", "network.told.")
        own = {n: t for n, t in source.state_dict().items() if not n.startswith(left)}
        new = {n: t for n, t in module.state_dict().items() if n.startswith(_NEW)}
        module.load_state_dict(new | own)
    except (AttributeError, RuntimeError) as error:
        raise BasisError(
            f"prior {prior.name!r} has another architecture than the network asked for"
        ) from error
    return head


def _source(prior: Prior, sigma_min: float) -> Any:
    """The network of a prior that a run starts from.

    Of two experts it is the one for small noise, unless the run's smallest noise level is not far
    below those of the other.
    """
    source = getattr(prior, "module", None)
    if isinstance(source, Experts) and sigma_min >= source.sigma / 2:
        return source.above
    return source


def _grow(prior: Prior, small: UNet, large: UNet, head: nn.Module | None) -> nn.Module | None:
    try:
        grow_unet(small, large)
    except ValueError as error:
        raise BasisError(f"prior {prior.name!r} does not fit into this network: {error}") from error
    if not isinstance(head, VarianceHead):
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        grown = VarianceHead(large.config)
    grow_head(head, grown)
    return grown
