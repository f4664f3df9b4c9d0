"""A ladder: one likelihood model per noise level, as in the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.nn.glow import Glow, GlowConfig
from basis.nn.kind import Architecture, NetworkKind, number, read_config


class Ladder(nn.Module):
    """One likelihood model per noise level; the nearest one answers.

    Args:
        models: Noise level to model; each has `log_prob(x)` or `log_prob(x, sigma)`.
    """

    def __init__(self, models: Mapping[float, nn.Module]) -> None:
        super().__init__()
        if not models or any(not sigma > 0 for sigma in models):
            raise BasisError("a ladder needs one model or more, each at a positive noise level")
        self.sigmas = sorted(models)
        self.rungs = nn.ModuleList(models[sigma] for sigma in self.sigmas)

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) of each item by the model of the nearest level, (batch,)."""
        logs = torch.tensor([math.log(s) for s in self.sigmas], device=sigma.device)
        nearest = (sigma.float().log()[:, None] - logs).abs().argmin(dim=1)
        levels = nearest.unique().tolist()
        if len(levels) == 1:
            return call_log_prob(self.rungs[levels[0]], x, sigma)
        out = x.new_zeros(len(x))
        for level in levels:
            mine = nearest == level
            out = out.index_put((mine,), call_log_prob(self.rungs[level], x[mine], sigma[mine]))
        return out


def call_log_prob(model: Any, x: Tensor, sigma: Tensor) -> Tensor:
    """log p of a model; the noise level is left out if its `noise_conditioned` is False."""
    alone = getattr(model, "noise_conditioned", True) is False
    answer = model.log_prob(x) if alone else model.log_prob(x, sigma)
    if not isinstance(answer, Tensor):
        raise BasisError(
            f"log_prob of {type(model).__name__} must return a tensor (batch,), not "
            f"{type(answer).__name__}"
        )
    return answer


def _build(architecture: Architecture) -> Ladder:
    sigmas = architecture.get("sigmas")
    if not isinstance(sigmas, list | tuple) or not 1 <= len(sigmas) <= 1000:
        raise BasisError(f"a ladder's sigmas must be a list of noise levels, not {sigmas!r:.60}")
    levels = [number({"sigma": s}, "sigma", positive=True) for s in sigmas]
    config = read_config(GlowConfig, architecture)
    return Ladder({level: Glow(config) for level in levels})


def _describe(module: Any) -> dict[str, Any]:
    if not isinstance(module.rungs[0], Glow):
        raise BasisError("only a ladder of Glow models can be described by a card")
    return {"network": asdict(module.rungs[0].config), "sigmas": list(module.sigmas)}


KIND = NetworkKind(
    name="ladder",
    title="flow",
    module=Ladder,
    config=GlowConfig,
    trainable=False,
    objective="likelihood",
    build=_build,
    describe=_describe,
)
