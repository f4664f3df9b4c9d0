"""The layers of Glow: actnorm, invertible convolutions and couplings, each with its inverse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis.nn.unet import UNet, UNetConfig

if TYPE_CHECKING:
    from basis.nn.glow import GlowConfig

DEQUANTIZATION = 1 / 255 / math.sqrt(12)
"""Standard deviation of uniform noise within one 8-bit step, the noise at sigma = 0."""


class LevelEmbedding(nn.Module):
    """Maps sigma, (batch,), zero allowed, to (batch, size)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.frequencies: Tensor
        self.register_buffer("frequencies", torch.logspace(-1, 1, 16), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(32, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU()
        )

    def forward(self, sigma: Tensor) -> Tensor:
        label = (sigma.square() + DEQUANTIZATION**2).sqrt().log() / 2
        angle = label[:, None] * self.frequencies
        return self.layers(torch.cat([angle.sin(), angle.cos()], dim=1))


LOGSCALE = 3.0
REACH = 16.0
"""Bound of the inputs of a coupling's network, in standard deviations."""


class Shift(nn.Module):
    """Per-channel log-scale and shift as functions of the noise level, zero at first."""

    def __init__(self, embedding: int, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(embedding, 2 * channels)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, emb: Tensor) -> tuple[Tensor, Tensor]:
        log_scale, shift = self.linear(emb)[:, :, None, None].chunk(2, dim=1)
        return 2 * torch.tanh(log_scale / 2), shift


class ActNorm(nn.Module):
    """x -> (x + bias) exp(3 logs); the first batch sets both for mean 0 and variance 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.logs = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.bias[:, None, None]) * self.log_scale()[:, None, None].exp()

    def inverse(self, y: Tensor) -> Tensor:
        return y * (-self.log_scale())[:, None, None].exp() - self.bias[:, None, None]

    def log_scale(self) -> Tensor:
        return LOGSCALE * self.logs

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Sets bias and scale from a batch."""
        self.bias.copy_(-x.mean(dim=(0, 2, 3)))
        std = x.std(dim=(0, 2, 3)).clamp_min(1e-6)
        self.logs.copy_(-std.log() / LOGSCALE)


class InvertibleConv(nn.Module):
    """A 1x1 convolution by an invertible matrix, as P L (U + diag(sign exp(log s))) or as it is."""

    def __init__(self, channels: int, lu: bool) -> None:
        super().__init__()
        rotation, _ = torch.linalg.qr(torch.randn(channels, channels))
        self.lu = lu
        if not lu:
            self.weight = nn.Parameter(rotation)
            return
        p, lower, upper = torch.linalg.lu(rotation)
        s = upper.diagonal()
        self.permutation: Tensor
        self.sign: Tensor
        # Not trained; parameters so that they are saved with the other weights.
        self.permutation = nn.Parameter(p, requires_grad=False)
        self.sign = nn.Parameter(s.sign(), requires_grad=False)
        self.log_s = nn.Parameter(s.abs().log())
        self.lower = nn.Parameter(lower.tril(-1))
        self.upper = nn.Parameter(upper.triu(1))

    def matrix(self) -> Tensor:
        """The matrix, (channels out, channels in)."""
        if not self.lu:
            return self.weight
        eye = torch.eye(len(self.sign), dtype=self.sign.dtype, device=self.sign.device)
        lower = self.lower.tril(-1) + eye
        upper = self.upper.triu(1) + (self.sign * self.log_s.exp()).diag()
        return self.permutation @ lower @ upper

    def log_det(self) -> Tensor:
        """log |det| of the matrix, which counts once per pixel."""
        return self.log_s.sum() if self.lu else torch.linalg.slogdet(self.weight).logabsdet

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.matrix()[:, :, None, None])

    def inverse(self, y: Tensor) -> Tensor:
        inverse = torch.linalg.inv(self.matrix().double()).to(y.dtype)
        return F.conv2d(y, inverse[:, :, None, None])


class EdgeConv(nn.Module):
    """A convolution whose padding has a channel of ones, so that it detects borders."""

    def __init__(self, channels: int, width: int, size: int) -> None:
        super().__init__()
        self.pad = size // 2
        extra = 1 if self.pad else 0
        self.weight = nn.Parameter(torch.randn(width, channels + extra, size, size) * 0.05)

    def forward(self, x: Tensor, norm: ActNorm | None = None) -> Tensor:
        """The convolution, with the norm that follows it folded in: one pass instead of three."""
        weight: Tensor = self.weight
        bias = None
        if norm is not None:
            scale = norm.log_scale().exp()
            weight, bias = weight * scale[:, None, None, None], norm.bias * scale
        if not self.pad:
            return F.conv2d(x, weight, bias)
        edge = torch.zeros_like(x[:1, :1])
        sides = (self.pad,) * 4
        edge = F.pad(edge, sides, value=1.0)
        # The border is the same for every image and computed once.
        border = F.conv2d(edge, weight[:, -1:], bias)
        return F.conv2d(x, weight[:, :-1], padding=self.pad) + border


class ZeroConv(nn.Module):
    """A 3x3 convolution that starts at zero, with a learned log-scale on its output."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv = EdgeConv(channels, width, 3)
        nn.init.zeros_(self.conv.weight)
        self.bias = nn.Parameter(torch.zeros(width))
        self.logs = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(x) + self.bias[:, None, None]
        return out * (LOGSCALE * self.logs)[:, None, None].exp()


class Coupling(nn.Module):
    """Changes one half of the channels by a small network of the other half."""

    def __init__(self, channels: int, config: GlowConfig) -> None:
        super().__init__()
        half = channels // 2
        self.affine, self.published = config.coupling == "affine", config.scale == "sigmoid"
        self._build(half, channels if self.affine else half, config)

    def _build(self, half: int, out: int, config: GlowConfig) -> None:
        """The network, from half of the channels to numbers for the other half."""
        self.conv0 = EdgeConv(half, config.width, 3)
        self.norm0 = ActNorm(config.width)
        self.conv1 = EdgeConv(config.width, config.width, 1)
        self.norm1 = ActNorm(config.width)
        self.out = ZeroConv(config.width, out)
        self.level = Shift(config.embedding, config.width) if config.conditioned else None

    def forward(self, x: Tensor, emb: Tensor | None) -> tuple[Tensor, Tensor]:
        kept, changed = x.chunk(2, dim=1)
        log_scale, shift = self._numbers(kept, emb)
        if self.published:
            changed = (changed + shift) * log_scale.exp()
        else:
            changed = changed * log_scale.exp() + shift
        return torch.cat([kept, changed], dim=1), log_scale.flatten(1).sum(dim=1)

    def inverse(self, y: Tensor, emb: Tensor | None) -> Tensor:
        kept, changed = y.chunk(2, dim=1)
        log_scale, shift = self._numbers(kept, emb)
        if self.published:
            changed = changed * (-log_scale).exp() - shift
        else:
            changed = (changed - shift) * (-log_scale).exp()
        return torch.cat([kept, changed], dim=1)

    def _numbers(self, kept: Tensor, emb: Tensor | None) -> tuple[Tensor, Tensor]:
        out = self._network(self._seen(kept), emb)
        if not self.affine:
            return torch.zeros_like(out), out
        shift, raw = out[:, 0::2], out[:, 1::2]
        if self.published:
            return F.logsigmoid(raw + 2.0), shift
        # A scale between 1/8 and 8: no input can make the inverse explode.
        return 2.0 * torch.tanh(raw / 2.0), shift

    def _network(self, kept: Tensor, emb: Tensor | None) -> Tensor:
        h = self.conv0(kept, self.norm0)
        if self.level is not None and emb is not None:
            scale, shift = self.level(emb)
            h = torch.addcmul(shift, h, scale.exp())
        h = F.relu(self.conv1(F.relu(h), self.norm1))
        return cast(Tensor, self.out(h))

    def _seen(self, kept: Tensor) -> Tensor:
        """The input of the network, bounded.

        Otherwise the shifts of every step grow with those of the previous one, and after sixteen
        steps they are not finite.
        """
        return kept if self.published else REACH * torch.tanh(kept / REACH)

    def start(self, x: Tensor, emb: Tensor | None) -> None:
        """Sets the inner actnorms from a batch."""
        kept, _ = x.chunk(2, dim=1)
        h = self.conv0(self._seen(kept))
        self.norm0.start(h)
        self.norm1.start(self.conv1(F.relu(self.norm0(h))))


class WideCoupling(Coupling):
    """A coupling whose network is a small U-Net with attention."""

    def _build(self, half: int, out: int, config: GlowConfig) -> None:
        levels = 1 if config.size % 4 else 2
        width = config.wide_width
        sizes = UNetConfig(
            channels=out,
            fold=1,
            widths=(width, 2 * width)[:levels],
            blocks=(1, 2)[:levels],
            head_width=min(32, width),
            embedding=config.embedding,
        )
        self.shown, self.network = half, UNet(sizes)
        self.network.use_plain_attention()
        self.network.embed = nn.Sequential()  # replaced by the flow's own

    def _network(self, kept: Tensor, emb: Tensor | None) -> Tensor:
        network = self.network
        if emb is None:
            emb = kept.new_zeros(len(kept), network.config.embedding)
        blank = kept.new_zeros(len(kept), network.config.channels - self.shown, *kept.shape[2:])
        return network.read(network.hidden(torch.cat([kept, blank], dim=1), emb))

    def start(self, x: Tensor, emb: Tensor | None) -> None:
        """Does nothing: the norms of a U-Net have no initial scale to set."""


class Step(nn.Module):
    """Actnorm, 1x1 convolution, coupling."""

    def __init__(self, channels: int, config: GlowConfig) -> None:
        super().__init__()
        self.norm = ActNorm(channels)
        self.level = Shift(config.embedding, channels) if config.conditioned else None
        self.mix = InvertibleConv(channels, config.lu)
        self.coupling = Coupling(channels, config)

    def forward(self, x: Tensor, emb: Tensor | None) -> tuple[Tensor, Tensor]:
        pixels = x.shape[2] * x.shape[3]
        x = self.norm(x)
        log_det = (self.norm.log_scale().sum() + self.mix.log_det()) * pixels
        if self.level is not None and emb is not None:
            scale, shift = self.level(emb)
            x = x * scale.exp() + shift
            log_det = log_det + scale.flatten(1).sum(dim=1) * pixels
        x, coupled = self.coupling(self.mix(x), emb)
        return x, log_det + coupled

    def inverse(self, y: Tensor, emb: Tensor | None) -> Tensor:
        x = self.mix.inverse(self.coupling.inverse(y, emb))
        if self.level is not None and emb is not None:
            scale, shift = self.level(emb)
            x = (x - shift) * (-scale).exp()
        return self.norm.inverse(x)

    def start(self, x: Tensor, emb: Tensor | None) -> Tensor:
        self.norm.start(x)
        self.coupling.start(self.mix(self.norm(x)), emb)
        return self(x, emb)[0]


class WideStep(Step):
    """A step with a `WideCoupling`, which at first only exchanges the halves."""

    def __init__(self, channels: int, config: GlowConfig) -> None:
        super().__init__(channels, config)
        self.coupling = WideCoupling(channels, config)
        swap = torch.eye(channels).roll(channels // 2, dims=0)
        with torch.no_grad():
            if self.mix.lu:
                for part in (self.mix.log_s, self.mix.lower, self.mix.upper):
                    part.zero_()
                self.mix.permutation.copy_(swap)
                self.mix.sign.fill_(1.0)
            else:
                self.mix.weight.copy_(swap)
