"""Published Glow checkpoints, of TensorFlow, as priors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from basis.adapters.tensorflow import read_checkpoint
from basis.adapters.weights import build_fitting
from basis.errors import BasisError
from basis.files import reading
from basis.nn.glow import Glow, GlowConfig
from basis.nn.ladder import Ladder
from basis.priors.likelihood import LikelihoodPrior
from basis.settings import settings_from

_AVERAGE = "/ExponentialMovingAverage"
_NORM = {"actnorm_center/b": "bias", "actnorm_scale/logs": "logs"}
_ZERO = {"W": "conv.weight", "b": "bias", "logs": "logs"}


def _kernel(t: Tensor) -> Tensor:
    return t.permute(3, 2, 0, 1)


def _flat(t: Tensor) -> Tensor:
    return t.reshape(-1)


def _names(levels: int, depth: int, top: bool) -> dict[str, tuple[str, Callable[[Tensor], Tensor]]]:
    """Our name of each parameter, to its variable and the layout that ours has."""
    names: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {}

    def norm(ours: str, theirs: str) -> None:
        for variable, parameter in _NORM.items():
            names[f"{ours}.{parameter}"] = (f"{theirs}/{variable}", _flat)

    def zero(ours: str, theirs: str) -> None:
        for variable, parameter in _ZERO.items():
            names[f"{ours}.{parameter}"] = (
                f"{theirs}/{variable}",
                _kernel if variable == "W" else _flat,
            )

    for level in range(levels):
        for step in range(depth):
            ours, theirs = f"flows.{level}.{step}", f"{level}/{step}"
            norm(f"{ours}.norm", theirs)
            names[f"{ours}.mix.weight"] = (f"{theirs}/invconv/W", Tensor.t)
            for number in (0, 1):
                layer = f"{theirs}/f1/l_{number + 1}"
                names[f"{ours}.coupling.conv{number}.weight"] = (f"{layer}/W", _kernel)
                norm(f"{ours}.coupling.norm{number}", layer)
            zero(f"{ours}.coupling.out", f"{theirs}/f1/l_last")
        if level < levels - 1:
            zero(f"splits.{level}", f"pool{level}/conv")
    if top:
        zero("top", "prior/p")
    return names


def from_glow(
    checkpoints: str | Path | Sequence[str | Path],
    *,
    size: int,
    sigmas: Sequence[float] = (0.0,),
    name: str = "glow",
) -> LikelihoodPrior:
    """Published checkpoints as one prior.

    Args:
        checkpoints: Their paths without `.index`, one per noise level.
        size: The side of the images.
        sigmas: Their noise levels in pixels of [0, 1], for models that were fine-tuned on noisy
            images as the paper's authors did; a single 0 for a noiseless model as published, which
            has a likelihood but cannot separate.
        name: What records call the prior.
    """
    if isinstance(checkpoints, str | Path):
        checkpoints = [checkpoints]
    if len(checkpoints) != len(sigmas) or not checkpoints:
        raise BasisError(
            f"{len(checkpoints)} checkpoints and {len(sigmas)} noise levels: "
            "give one level for each"
        )
    if len(set(sigmas)) < len(sigmas) or min(sigmas) < 0 or (len(sigmas) > 1 and not all(sigmas)):
        raise BasisError(
            "noise levels must be positive and different; a noiseless model (0) stands alone"
        )
    models = {s: _read_flow(c, size, s > 0) for s, c in zip(sigmas, checkpoints, strict=True)}
    configs = {tuple(asdict(m.config).items()) for m in models.values()}
    if len(configs) > 1:
        raise BasisError("the checkpoints are of different sizes")
    model = Ladder(models) if min(sigmas) > 0 else models[0.0]
    channels = next(iter(models.values())).config.channels
    return LikelihoodPrior(model, (channels, size, size), min(sigmas), max(sigmas), name=name)


def _read_flow(prefix: str | Path, size: int, noisy: bool) -> Glow:
    """A published checkpoint as a `Glow`.

    Args:
        prefix: The checkpoint's path without `.index`.
        size: The side of its images.
        noisy: Whether it was fine-tuned on noisy images v / 255 - 1/2, as the paper's authors did,
            or trained on (v + u) / 256 - 1/2 with u uniform, as published.
    """

    def wanted(name: str) -> bool:
        return re.search(r"(^|/)model/", name) is not None

    found = read_checkpoint(prefix, wanted)
    # The averaged weights, where the file holds them, are the ones to use.
    variables = {_short(n): t for n, t in found.items() if not n.endswith(_AVERAGE)}
    variables |= {
        _short(n.removesuffix(_AVERAGE)): t for n, t in found.items() if n.endswith(_AVERAGE)
    }
    config = _config(prefix, variables, size, noisy)
    names = _names(config.levels, config.depth, config.learned_top)
    missing = [theirs for theirs, _ in names.values() if theirs not in variables]
    if missing:
        raise BasisError(f"{prefix} is not a published Glow: it has no variable model/{missing[0]}")
    with reading(prefix, "a published Glow"):
        weights = {ours: layout(variables[theirs]) for ours, (theirs, layout) in names.items()}
        shapes = {n: t.shape for n, t in weights.items()}
        model = build_fitting(lambda: Glow(config), shapes, f"{prefix} is not a published Glow")
    wrong = [n for n, p in model.named_parameters() if n in weights and weights[n].shape != p.shape]
    if wrong:
        raise BasisError(f"{prefix}: model/{names[wrong[0]][0]} has an unexpected shape")
    model.load_state_dict(weights, strict=False)
    model.started.data.fill_(1.0)
    return model


def _short(name: str) -> str:
    """A variable's name below the scope `model`, whatever scopes are around that."""
    return name[re.search(r"(^|/)model/", name).end() :]  # type: ignore[union-attr]


def _config(prefix: str | Path, variables: dict[str, Tensor], size: int, noisy: bool) -> GlowConfig:
    steps = [m for n in variables if (m := re.fullmatch(r"(\d+)/(\d+)/invconv/W", n))]
    if not steps:
        raise BasisError(
            f"{prefix} is not a published Glow: it has no variables like model/0/0/invconv/W"
        )
    if any(n.startswith("prior/y_emb/") for n in variables):
        raise BasisError(f"{prefix} is a class-conditional Glow; only unconditional ones are read")
    levels = 1 + max(int(m[1][:9]) for m in steps)
    depth = 1 + max(int(m[2][:9]) for m in steps)
    if levels * depth > len(variables):
        raise BasisError(
            f"{prefix} is not a published Glow: it has too few variables for its steps"
        )
    try:
        squeezed = len(variables["0/0/invconv/W"])
        width = variables["0/0/f1/l_1/W"].shape[3]
        affine = variables["0/0/f1/l_last/W"].shape[3] == squeezed
    except (KeyError, IndexError, TypeError) as error:
        raise BasisError(f"{prefix} is not a published Glow: its couplings are missing") from error
    if size % 2**levels:
        raise BasisError(f"{prefix} has {levels} levels: size must be divisible by {2**levels}")
    sizes = {
        "channels": squeezed // 4,
        "size": size,
        "levels": levels,
        "depth": depth,
        "width": width,
        "coupling": "affine" if affine else "additive",
        "scale": "sigmoid",
        "lu": False,
        "learned_top": "prior/p/W" in variables,
        "mean": 0.5,
        "std": 1.0 if noisy else 256 / 255,
    }
    return settings_from(GlowConfig, sizes, str(prefix))
