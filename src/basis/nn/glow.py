"""Glow, a normalizing flow with an exact likelihood."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis.nn.glow_layers import LevelEmbedding, Shift, Step, WideStep, ZeroConv
from basis.nn.kind import Architecture, NetworkKind, read_config, size_setting
from basis.nn.variance import build_variance, describe_variance
from basis.settings import check_settings, setting
from basis.tensors import per_item


@dataclass(frozen=True)
class GlowConfig:
    """Configuration of a `Glow`.

    `levels` halvings of the side with `depth` steps each and couplings of `width` hidden channels.
    Optional `wide` steps before them have U-Nets with attention as couplings; they begin as the
    identity, so that training can continue a flow without them. `lu` stores the 1x1 convolutions as
    triangular factors; the published weights are plain matrices. `scale` bounds the scale of an
    affine coupling: "sigmoid" as published, "bounded" in both directions and in the inputs of its
    network, which stays invertible far from the training set.
    """

    channels: int = size_setting(1, "channels of the data", flag=False)
    size: int = size_setting(28, "side of the images", flag=False)
    levels: int = size_setting(2, "halvings of the side", at_most=16)
    depth: int = size_setting(8, "steps per level")
    width: int = size_setting(96, "hidden channels of a coupling")
    wide: int = size_setting(0, "steps with U-Nets before all others, an even number", at_least=0)
    wide_width: int = size_setting(32, "channels of such a U-Net's finest level")
    coupling: Literal["affine", "additive"] = setting("affine", "kind of coupling")
    scale: Literal["bounded", "sigmoid"] = setting(
        "bounded", "how an affine coupling bounds its scale", flag=False
    )
    lu: bool = setting(True, "1x1 convolutions as triangular factors", flag=False)
    learned_top: bool = setting(True, "learned prior of the last latent", flag=False)
    conditioned: bool = setting(False, "one flow for all noise levels", flag=False)
    embedding: int = size_setting(64, "features of the noise level")
    mean: float = setting(0.5, "mean of the data's values", flag=False)
    std: float = setting(1.0, "standard deviation of the data's values", flag=False, above=0.0)

    def __post_init__(self) -> None:
        check_settings(self)


class Glow(nn.Module):
    """A flow over square images of any range of values.

    Args:
        config: The configuration.

    Shapes:
        x: (batch, channels, size, size).
        sigma: (batch,); used by a conditioned flow, which is p_sigma for each of them.
    """

    def __init__(self, config: GlowConfig) -> None:
        super().__init__()
        if config.size % 2**config.levels:
            raise ValueError(
                f"{config.levels} levels need a side divisible by {2**config.levels}, "
                f"not {config.size}"
            )
        if config.wide % 2:
            raise ValueError(
                f"wide must be even, for such steps exchange halves, not {config.wide}"
            )
        self.config = config
        self.embed = LevelEmbedding(config.embedding) if config.conditioned else None
        self.flows, self.splits = nn.ModuleList(), nn.ModuleList()
        self.split_levels = nn.ModuleList()
        channels = config.channels
        self.wide = nn.ModuleList(WideStep(4 * channels, config) for _ in range(config.wide))
        for level in range(config.levels):
            channels *= 4
            self.flows.append(nn.ModuleList(Step(channels, config) for _ in range(config.depth)))
            if level < config.levels - 1:
                channels //= 2
                self.splits.append(ZeroConv(channels, 2 * channels))
                if config.conditioned:
                    self.split_levels.append(Shift(config.embedding, channels))
        self.top = ZeroConv(2 * channels, 2 * channels) if config.learned_top else None
        self.top_level = Shift(config.embedding, channels) if config.conditioned else None
        self.started: Tensor
        # Whether the actnorms have seen data; saved with the weights.
        self.started = nn.Parameter(torch.zeros(()), requires_grad=False)

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log p_sigma(x) in nats, (batch,)."""
        return self._encode(x, sigma)[1]

    def encode(self, x: Tensor, sigma: Tensor) -> list[Tensor]:
        """The latents, one per level (the finest first), each standardized by its own prior.

        In double precision, as `decode` is: an image far from the training set has latents so large
        that single precision would lose the image.
        """
        return self._double()._encode(x.double(), sigma.double())[0]

    def decode(self, latents: list[Tensor], sigma: Tensor) -> Tensor:
        """The image with these latents: the inverse of `encode`, in double precision."""
        x = self._double()._decode([z.double() for z in latents], sigma.double())
        return x.to(self.started.dtype)

    def _double(self) -> Glow:
        return copy.deepcopy(self).double()

    def _decode(self, latents: list[Tensor], sigma: Tensor) -> Tensor:
        emb = self._emb(sigma)
        last = self.config.levels - 1
        mean, log_std = self._top_prior(latents[last], emb)
        h = mean + log_std.exp() * latents[last]
        for level in reversed(range(self.config.levels)):
            if level < last:
                mean, log_std = self._split_prior(level, h, emb)
                h = torch.cat([h, mean + log_std.exp() * latents[level]], dim=1)
            for step in reversed(self._steps(level)):
                h = step.inverse(h, emb)
            h = F.pixel_shuffle(h, 2)
        return self.config.mean + h * self._scale(sigma, h)

    @torch.no_grad()
    def start(self, x: Tensor, sigma: Tensor) -> None:
        """Sets every actnorm from a batch of images, for data-dependent initialization."""
        emb = self._emb(sigma)
        h = (x - self.config.mean) / self._scale(sigma, x)
        for level in range(self.config.levels):
            h = F.pixel_unshuffle(h, 2)
            for step in self._steps(level):
                h = step.start(h, emb)
            if level < self.config.levels - 1:
                h, _ = h.chunk(2, dim=1)
        self.started.fill_(1.0)

    def _encode(self, x: Tensor, sigma: Tensor) -> tuple[list[Tensor], Tensor]:
        """Standardized latents, and log p."""
        emb = self._emb(sigma)
        scale = self._scale(sigma, x)
        h = (x - self.config.mean) / scale
        pixels = x[0].numel()
        total = -pixels * scale.flatten(1).log().sum(dim=1).expand(len(x))
        latents = []
        last = self.config.levels - 1
        for level in range(self.config.levels):
            h = F.pixel_unshuffle(h, 2)
            for step in self._steps(level):
                h, log_det = step(h, emb)
                total = total + log_det
            if level < last:
                h, z = h.chunk(2, dim=1)
                mean, log_std = self._split_prior(level, h, emb)
            else:
                z = h
                mean, log_std = self._top_prior(h, emb)
            white = (z - mean) * (-log_std).exp()
            log_normal = -0.5 * (white.square() + 2 * log_std + math.log(2 * math.pi))
            total = total + log_normal.flatten(1).sum(dim=1)
            latents.append(white)
        return latents, total

    def _steps(self, level: int) -> list[Step]:
        """The steps of a level in order."""
        steps = [*(() if level else self.wide), *cast(nn.ModuleList, self.flows[level])]
        return cast(list[Step], steps)

    def _emb(self, sigma: Tensor) -> Tensor | None:
        return None if self.embed is None else self.embed(sigma)

    def _scale(self, sigma: Tensor, x: Tensor) -> Tensor:
        """The divisor of the image, (batch or 1, 1, 1, 1), which grows with the noise."""
        variance = self.config.std**2
        if not self.config.conditioned:
            return torch.full((1, 1, 1, 1), math.sqrt(variance), dtype=x.dtype, device=x.device)
        return (per_item(sigma, x).square() + variance).sqrt()

    def _split_prior(self, level: int, kept: Tensor, emb: Tensor | None) -> tuple[Tensor, Tensor]:
        out = self.splits[level](kept)
        mean, log_std = out[:, 0::2], out[:, 1::2]
        if emb is not None:
            scale, shift = self.split_levels[level](emb)
            mean, log_std = mean + shift, log_std + scale
        return mean, log_std

    def _top_prior(self, like: Tensor, emb: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.top is None:
            mean = log_std = torch.zeros_like(like)
        else:
            blank = torch.zeros_like(like[:1]).repeat(1, 2, 1, 1)
            mean, log_std = self.top(blank).chunk(2, dim=1)
        if emb is not None and self.top_level is not None:
            scale, shift = self.top_level(emb)
            mean, log_std = mean + shift, log_std + scale
        return mean.expand_as(like), log_std.expand_as(like)


def bits_per_dimension(log_prob: Tensor, dimensions: int, steps: float = 255) -> Tensor:
    """-log2 of the probability of one step of a value, per dimension, from a density.

    Args:
        log_prob: Log-density in nats, of any shape.
        dimensions: Values per item.
        steps: Steps per unit: 255 for 8-bit pixels v / 255; 1 gives the density's own code length.
    """
    return (dimensions * math.log(steps) - log_prob) / (dimensions * math.log(2))


def _build(architecture: Architecture) -> Glow:
    model = Glow(read_config(GlowConfig, architecture))
    head = build_variance(architecture)
    if head is not None:
        model.head = head
    return model


def _describe(module: Any) -> dict[str, Any]:
    head = getattr(module, "head", None)
    return {"network": asdict(module.config)} | describe_variance(head)


KIND = NetworkKind(
    name="glow",
    title="flow",
    module=Glow,
    config=GlowConfig,
    objective="likelihood",
    noise="continuous",
    build=_build,
    describe=_describe,
)
