"""Untrained networks that fit the data at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from basis._check import measure_energies
from basis.devices import find_device
from basis.errors import BasisError
from basis.files import check_disk_space
from basis.nn.energy import Energy
from basis.nn.experts import Experts
from basis.nn.growing import grow_head, grow_unet
from basis.nn.kind import NetworkKind
from basis.nn.kinds import describe_module, find_kind
from basis.nn.unet import UNet, VarianceHead
from basis.priors.measured import measure_spectrum
from basis.priors.prior import Prior
from basis.settings import settings_from
from basis.signals.image_set import ImageSet
from basis.store.folder import CARD, read_card, update_card
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.export import export_prior, plot_log
from basis.training.objectives import (
    Denoising,
    DualScore,
    Likelihood,
    Objective,
    SigmaDraw,
    discrete_sigmas,
    focused_sigmas,
    likelihood_sigmas,
    normalise,
    one_sigma,
)
from basis.training.processes import Processes
from basis.training.signals import (
    Signals,
    as_floats,
    as_signals,
    fingerprint,
    interleaved,
    noise_unit,
)
from basis.training.state import STATE, read_meta
from basis.training.teacher import Lessons, Taught, TaughtEnergy, find_teacher
from basis.training.trainer import Trainer
from basis.training.variance import learns_variance

_SIZES = ("fold", "widths", "blocks", "attention", "head_width", "embedding")
"""What a U-Net has in common with one that it starts from, unless something else is asked for."""


def new_module(
    family: NetworkKind, signals: Signals, sizes: Any, *, conditioned: bool, seed: int
) -> nn.Module:
    """An untrained network of a family for signals of this shape and range.

    Args:
        family: The kind of network.
        signals: The data.
        sizes: Sizes other than the family's, as a mapping or as its dataclass; what the data
            decides (channels, sides, mean, standard deviation) is filled in.
        conditioned: Whether one model is to answer for all noise levels.
        seed: Of the first weights.
    """
    if family.unit_range and (signals.low, signals.high) != (0.0, 1.0):
        raise BasisError(
            f"{family.name} takes values in [0, 1] alone (low=0, high=1), not low {signals.low} "
            f"and high {signals.high}"
        )
    mean, std = signals.moments()
    values = family_sizes(family, signals, sizes) | {"conditioned": conditioned}
    names = {f.name for f in fields(family.config)} if family.config else set()
    values = {name: value for name, value in values.items() if name in names}
    architecture = {"kind": family.name, "network": values, "mean": mean, "std": std}
    try:
        # The caller's own random numbers are left alone.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module: nn.Module = family.build_module(architecture)
        check = getattr(module, "check_shape", None)
        if check is not None:
            check(signals.shape)
    except BasisError:
        raise
    except (TypeError, ValueError) as error:
        raise BasisError(f"{family.name}: {error}") from error
    return module


def family_sizes(family: NetworkKind, signals: Signals, sizes: Any) -> dict[str, Any]:
    """The sizes that were given, with what the data decides filled in."""
    given = as_mapping(sizes)
    settings_from(family.config, given, family.name)  # refused before anything is built
    shape = signals.shape
    mean, std = signals.moments()
    facts = {"shape": shape, "channels": shape[0], "dims": len(shape) - 1}
    facts |= {"mean": mean, "std": std}
    if any(f.name == "size" for f in fields(family.config or NetworkKind)):
        if len(shape) != 3 or shape[1] != shape[2]:
            sides = "x".join(map(str, shape[1:]))
            raise BasisError(f"{family.name} takes square images; these are {sides}")
        facts["size"] = shape[1]
    return given | facts


def as_mapping(sizes: Any) -> dict[str, Any]:
    """Sizes that were given, as a mapping or as a family's dataclass, by name."""
    if sizes is None:
        return {}
    if is_dataclass(sizes) and not isinstance(sizes, type):
        return asdict(sizes)
    if isinstance(sizes, Mapping):
        return dict(sizes)
    raise BasisError(f"sizes must be a mapping or the family's dataclass, not {sizes!r:.60}")


def count_classes(family: NetworkKind, signals: Signals) -> int:
    """How many classes a network of this family can be told of these signals."""
    if family.name != "unet":
        raise BasisError(f"a unet can be told classes, not {family.name}")
    if signals.labels is None or len(signals.classes) < 2:
        raise BasisError(f"{signals.name} has no labels of two or more classes to tell a network")
    return len(signals.classes)


def find_init(init: str | Path | Prior, root: str | Path | None) -> Prior:
    """The prior that a run starts from, by its name or folder, or as it is."""
    return init if isinstance(init, Prior) else load_prior(init, root=root)


def sizes_like(family: NetworkKind, prior: Prior, sizes: Any, sigma_min: float) -> dict[str, Any]:
    """Sizes with those of the U-Net that a run starts from where none are given."""
    known = getattr(_source(prior, sigma_min), "network", None)
    names = {f.name for f in fields(family.config)} if family.config else set()
    own = {}
    if isinstance(known, UNet):
        own = {name: getattr(known.config, name) for name in _SIZES if name in names}
    return own | as_mapping(sizes)


def _source(prior: Prior, sigma_min: float) -> Any:
    """The network of a prior that a run starts from.

    Of a prior of two networks the one for little noise goes on; where the run's own least noise,
    `sigma_min`, is not far below what the other answers for, that one does.
    """
    source = getattr(prior, "module", None)
    if isinstance(source, Experts) and sigma_min >= source.sigma / 2:
        return source.above
    return source


def start_from(module: nn.Module, prior: Prior, sigma_min: float = 0.0) -> nn.Module | None:
    """Gives the module a prior's weights; returns the prior's variance head, if it has one.

    A U-Net also starts from a smaller one: it then computes the same until it is trained on.
    """
    source = _source(prior, sigma_min)
    head: nn.Module | None = getattr(source, "head", None)
    small, large = getattr(source, "network", None), getattr(module, "network", None)
    if isinstance(small, UNet) and isinstance(large, UNet):
        classes = large.config.classes
        if replace(small.config, classes=classes) != large.config:
            return _grow(prior, small, large, head)
    try:
        # A variance head is not part of what is trained; it is fitted to the network at the end.
        weights = source.state_dict()
        # Nor is what it is told of classes where the new one is told of others, or of none.
        fits = getattr(small, "config", None) == getattr(large, "config", None)
        left = ("head.", "above.") if fits else ("head.", "above.", "network.told.")
        own = {n: t for n, t in weights.items() if not n.startswith(left)}
        # A denoiser has no constant to start an energy's from, a flow may have no wide steps, and a
        # network may not have been told classes; all of these change nothing at first.
        new = ("constant.", "wide.", "network.told.")
        blank = {n: t for n, t in module.state_dict().items() if n.startswith(new)}
        module.load_state_dict(blank | own)
    except (AttributeError, RuntimeError) as error:
        raise BasisError(
            f"prior {prior.name!r} has another architecture than the network asked for"
        ) from error
    return head


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


_SPECTRUM = 256  # held-out signals that tell how values move together


def train(
    data: ImageSet | Tensor | np.ndarray[Any, Any],
    out: str | Path,
    *,
    family: str = "unet",
    sizes: Any = None,
    config: TrainConfig | None = None,
    low: float | None = None,
    high: float | None = None,
    name: str | None = None,
    held_out: int | None = None,
    init: str | Path | Prior | None = None,
    single: float | None = None,
    conditional: bool = False,
    teacher: str | Path | Prior | None = None,
    variance_images: int = 100_000,
    energy_pairs: int = 64,
    about_data: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    device: torch.device | str = "cpu",
    compiled: bool = False,
    progress: bool = True,
    report: Callable[[str], None] | None = None,
) -> Prior | None:
    """Trains a prior in a folder, from wherever the folder left off; None when stopped.

    The folder then holds the prior (`basis.load_prior(out)`), the state to go on from, the log and
    curve.png. Stopped by SIGINT or SIGTERM, it saves the state at once and exports nothing: a prior
    that was there before stays. The same call goes on, and exports the prior at the end.

    Args:
        data: An `ImageSet`; uint8 values (n, channels, *size) that stand for [0, 1]; or floats of
            any range and shape (n, channels, *size).
        out: The folder. One that holds the run of other data, or a prior without a run, is refused.
        family: The kind of network: "unet", "energy", "ncsn", "glow", "pixelcnn" or "vae".
        sizes: Sizes of the network other than its family's own: a mapping, or a dataclass such as
            `basis.nn.UNetConfig`. Channels, sides, mean and deviation are those of the data.
        config: How to train; noise levels that it does not give suit the data.
        low, high: Bounds of float values; None for none.
        name: What the prior is called; the folder's name by default.
        held_out: Items at the end of the data that are kept for validation; by default 512, or a
            tenth where the data has fewer than 5,120. A run goes on with as many as it began with.
            Classes that come one after another, as those of a folder, are spread evenly first.
        init: A prior, or its name or folder, whose weights a new run starts from. A U-Net may be
            larger than the one it starts from, and is as large where no sizes are given.
        single: Train a model of this noise level alone (0: noiseless) instead of one for all; for
            families that can be either, such as "glow".
        conditional: Tell the network at times which classes an item may be of, so that
            `prior.condition(...)` answers for some of them; for data with labels and a U-Net.
        teacher: A prior, or its name or folder, whose denoising the gradient of a model with a
            likelihood learns, on noised items and on states that separations of two items visit,
            and whose variance the network of its variance learns; `config.teacher` by default.
        variance_images: Items seen at the end of a finished run to learn how sure the network is of
            each value, and no more than the run itself saw; 0 for none. With a config of 0 images
            this is all that is done with the prior given as `init`.
        energy_pairs: Mixtures of held-out items that a finished run separates, to write into its
            card what energies are typical, and no more than one for 64 items that it saw; 0 for
            none.
        about_data: Anything else that the card shall say of the data.
        root: The data root, in which `init` is looked for by name.
        device: Where to compute; "auto" is a GPU where there is one.
        compiled: Whether steps run through torch.compile: slow to start, faster for networks of
            more than about half a GFLOP an image.
        progress: Whether to show a progress bar; off a terminal, a line now and then.
        report: Called with lines about what happens.
    """
    folder, report = Path(out), report or (lambda line: None)
    kind = find_kind(family, trainable=True)
    signals = as_signals(data, low, high)
    device = find_device(device)
    check_folder(folder)
    kept = split_size(signals, held_out, folder)
    signals = _arranged(signals, kept, folder)
    unit = noise_unit(signals.values)
    config = (config or TrainConfig()).in_units(unit)
    if not config.images and init is None:
        raise BasisError("0 images train nothing: give a prior to start from (init) as well")
    if single is not None:
        _check_single(kind, single)
        config = replace(config, sigma_min=single, sigma_max=single)
    guide = find_teacher(teacher or config.teacher, kind, signals, config.score, root, device)
    config = replace(config, teacher=guide.name if guide else None)
    conditioned = single is None
    start = None if init is None else find_init(init, root)
    if start is not None:
        sizes = sizes_like(kind, start, sizes, config.noise[0])
    if conditional:
        sizes = {**as_mapping(sizes), "classes": count_classes(kind, signals)}
    module = new_module(kind, signals, sizes, conditioned=conditioned, seed=config.seed)
    head = start_from(module, start, config.noise[0]) if start is not None else None
    sigmas, config = _noise_levels(kind, module, config, single)
    check_disk_space(folder, state_size(module))
    if isinstance(module, Energy) and not (folder / STATE).exists():
        # Roughly, so that the first steps need not learn what a few hundred images tell.
        normalise(module, signals.values[:kept], *config.noise[:2], count=32)
    # From here on the folder's state is read, and nobody else may change it.
    with Processes().alone(folder):
        trainer = Trainer(
            module,
            signals.values[:kept],
            folder,
            config,
            held_out=signals.values[kept:],
            labels=signals.labels if conditional else None,
            about={
                "architecture": describe_module(module),
                "data": {"name": signals.name, "images": kept, **(about_data or {})},
            },
            sigmas=sigmas,
            objective=_objective(kind, config, signals, unit, kept, guide),
            device=device,
            compiled=compiled,
        )
        if _finished(trainer, name, variance_images):
            if trainer.processes.first:
                report(
                    f"finished already, after {trainer.seen:,} images; more images train longer  "
                    f"prior: {folder}"
                )
            return load_prior(folder, device=device)
        if trainer.step and trainer.processes.first:
            report(f"going on from step {trainer.step} ({trainer.seen:,} images seen)")
        if not trainer.run(progress=progress):
            if trainer.processes.first:
                seen = f"{trainer.seen:,} of {config.images:,} images"
                report(f"stopped at {seen}; the state is saved, and the same command goes on")
            return None
        if not trainer.processes.first:
            trainer.processes.wait()  # for the first one to write the prior
            return load_prior(folder, device=device)
        if config.images and (init is None or head is not None):
            # A short trial does not wait for long; only a head from nothing on a trained network
            # needs all of it, and a run that trains nothing else is there for it.
            variance_images = min(variance_images, trainer.seen)
        export_prior(
            trainer,
            signals,
            kind,
            name=name,
            variance_images=max(0, variance_images),
            head=head,
            teacher=guide,
            progress=progress,
        )
        if energy_pairs > 0 and len(signals.values) - kept >= 8:
            # Separating a pair costs about what training on 64 images does: no longer than the run.
            pairs = min(energy_pairs, trainer.seen // 64) if config.images else energy_pairs
            _measure(folder, as_floats(signals.values[kept:]), pairs, device, report)
        curve = f"  curve: {plot_log(folder)}" if trainer.step else ""
        report(f"prior: {folder}{curve}")
        trainer.processes.wait()
        return load_prior(folder, device=device)


def state_size(module: nn.Module) -> int:
    """Bytes that a run of this network needs on the disk, roughly.

    The weights, their average and two moments of each, beside the state before; and the prior.
    """
    return 36 * sum(p.numel() for p in module.parameters())


def _measure(
    folder: Path,
    held_out: Tensor,
    pairs: int,
    device: torch.device | str,
    report: Callable[[str], None],
) -> None:
    """Writes into a card what energies are typical of the prior, where it can separate, and how
    its values move together.
    """
    prior = load_prior(folder, device=device)
    if prior.sigma_max < prior.std:
        return  # a model of small noise alone starts no separation
    entries = {}
    try:
        entries["energies"] = measure_energies(prior, held_out.to(device), pairs=pairs).to_dict()
    except BasisError as error:
        report(f"typical energies were not measured: {error}")
    # Flows and energies draw by what they know of each value: together was not tried on them.
    if not prior.has_likelihood:
        told = {"origin": "held-out images"}
        try:
            spectrum = measure_spectrum(prior, held_out[:_SPECTRUM].to(device), about=told)
            entries["spectrum"] = spectrum.to_dict()
        except BasisError as error:
            report(f"how values move together was not measured: {error}")
    if entries:
        update_card(folder, **entries)


def check_folder(folder: Path, state: str = STATE) -> None:
    """Refuses a folder that holds a prior but not the state of its training."""
    if (folder / CARD).exists() and not (folder / state).exists():
        raise BasisError(
            f"{folder} holds a prior without the state of its training, which would be "
            "overwritten; use another folder"
        )


def split_size(signals: Signals, held_out: int | None, folder: Path) -> int:
    """How many items are trained on when this many are held out.

    Without a number a run in the folder says how many it holds out; a new one 512, or a tenth of
    few items.
    """
    count = len(signals.values)
    if held_out is None:
        begun = read_meta(folder)
        held_out = max(1, min(512, count // 10))
        if begun:
            held_out = (begun.get("data") or {}).get("held_out", 512)
    if held_out < 1 or count <= held_out:
        raise BasisError(
            f"{signals.name} has {count} items; training needs more than the {held_out} kept for "
            "validation, and at least one of those"
        )
    return count - held_out


def _arranged(signals: Signals, kept: int, folder: Path) -> Signals:
    """The data in the order it is trained on; a run goes on in the order that it began with."""
    spread, begun = interleaved(signals), read_meta(folder)
    if spread is signals or not begun:
        return spread
    as_given = fingerprint(signals.values[:kept], signals.values[kept:])
    return signals if begun.get("data") == as_given else spread


def _finished(trainer: Trainer, name: str | None, variance_images: int) -> bool:
    """Whether the run's folder holds the prior of the run's end, so that nothing is left to do."""
    if trainer.seen < trainer.config.images or not (trainer.folder / CARD).is_file():
        return False
    card = read_card(trainer.folder)
    learned = card.training.get("variance", {}).get("images", 0)
    wanted = variance_images > 0 and learns_variance(trainer.model, *trainer.config.noise[:2])
    return (
        card.training.get("steps") == trainer.step
        and card.name == (name or trainer.folder.resolve().name)
        and (not wanted or learned > 0)
    )


def _check_single(family: NetworkKind, single: float) -> None:
    names = getattr(family.config, "__dataclass_fields__", {})
    if "conditioned" not in names:
        raise BasisError(f"a single noise level goes with architecture glow, not {family.name}")
    if single < 0:
        raise BasisError(f"a noise level must be at least 0, not {single:g}")


def _noise_levels(
    family: NetworkKind, module: nn.Module, config: TrainConfig, single: float | None
) -> tuple[SigmaDraw, TrainConfig]:
    """How the family draws noise levels, and the settings with their range."""
    if single is not None:
        return one_sigma(single), config
    if family.noise == "discrete":
        levels = module.levels
        assert isinstance(levels, Tensor)
        low, high = levels.min().item(), levels.max().item()
        return discrete_sigmas(levels), replace(config, sigma_min=low, sigma_max=high)
    if family.noise == "continuous":
        return likelihood_sigmas(config), config
    return focused_sigmas(config), config


def _objective(
    family: NetworkKind,
    config: TrainConfig,
    signals: Signals,
    unit: float,
    kept: int,
    teacher: Prior | None,
) -> Objective:
    if family.objective == "denoising":
        return Denoising(unit)
    lessons = None if teacher is None else Lessons.of(teacher, signals.values[:kept], config)
    if family.objective == "energy":
        if lessons is not None:
            return TaughtEnergy(lessons, config.dual, unit)
        return DualScore(config.dual, unit)
    steps = 255 if signals.values.dtype == torch.uint8 else 0
    spread = signals.moments()[1]
    if lessons is not None:
        return Taught(lessons, config.score, spread, steps=steps, unit=unit)
    return Likelihood(config.score, spread, steps=steps, unit=unit)
