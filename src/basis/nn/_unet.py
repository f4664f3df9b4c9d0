"""The house network: a small U-Net that is good per floating-point operation.

Images are folded (space to depth) so that the first convolution already sees many channels, every
convolution is 3x3 on dense channels-last tensors, and self-attention runs only at the coarsest level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class UNetConfig:
    """Sizes of a `UNet`.

    `fold` is the side of the square of pixels laid into channels before the first convolution,
    `widths` and `blocks` give channels and residual blocks per level (finest first; the blocks of every
    level but the last are built twice, going down and coming up), and the last `attention` levels
    carry self-attention.
    """

    channels: int = 1
    fold: int = 2
    widths: tuple[int, ...] = (48, 96)
    blocks: tuple[int, ...] = (2, 4)
    attention: int = 1
    head_width: int = 32
    embedding: int = 128
    dropout: float = 0.0


class _Attention(nn.Module):
    def __init__(self, width: int, head_width: int) -> None:
        super().__init__()
        self.heads = max(1, width // head_width)
        self.norm = _norm(width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.out = _zeroed(nn.Conv2d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        qkv = self.qkv(self.norm(x)).permute(0, 2, 3, 1)
        q, k, v = qkv.reshape(b, h * w, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(b, h, w, c).permute(0, 3, 1, 2)
        return x + self.out(y)


class _Block(nn.Module):
    """Residual block, modulated by the noise-level embedding after its first convolution."""

    def __init__(
        self, width_in: int, width: int, embedding: int, attention: int, dropout: float
    ) -> None:
        super().__init__()
        self.skip = nn.Conv2d(width_in, width, 1) if width_in != width else nn.Identity()
        self.norm0 = _norm(width)
        self.conv0 = nn.Conv2d(width, width, 3, padding=1)
        self.modulate = _zeroed(nn.Linear(embedding, 2 * width))
        self.norm1 = _norm(width, affine=False)
        self.dropout = nn.Dropout(dropout)
        self.conv1 = _zeroed(nn.Conv2d(width, width, 3, padding=1))
        self.attention = _Attention(width, attention) if attention else nn.Identity()

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        x = self.skip(x)
        scale, shift = self.modulate(emb)[:, :, None, None].chunk(2, dim=1)
        y = self.conv0(F.silu(self.norm0(x)))
        y = F.silu(torch.addcmul(shift, self.norm1(y), 1 + scale))
        return self.attention(x + self.conv1(self.dropout(y)))


class UNet(nn.Module):
    """Maps an image and one number per item (the noise label) to an image of the same shape.

    Args:
        config: The sizes.

    Shapes:
        x: (batch, channels, height, width), sides divisible by `multiple`.
        label: (batch,), of order one.
    """

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        if len(config.widths) != len(config.blocks):
            raise ValueError("widths and blocks must have one entry per level")
        self.config = config
        self.frequencies: Tensor
        frequencies = torch.logspace(math.log10(0.5), math.log10(32.0), 32)
        self.register_buffer("frequencies", frequencies, persistent=False)
        emb = config.embedding
        self.embed = nn.Sequential(nn.Linear(64, emb), nn.SiLU(), nn.Linear(emb, emb), nn.SiLU())

        pixels = config.channels * config.fold**2
        widths = config.widths
        # One channel of ones, so that borders (padded with zeros) can be told from dark pixels.
        self.enter = nn.Conv2d(pixels + 1, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.shrink, self.grow = nn.ModuleList(), nn.ModuleList()
        last = len(widths) - 1
        for level, (width, count) in enumerate(zip(widths, config.blocks, strict=True)):
            heads = config.head_width if level > last - config.attention else 0

            def block(width_in: int, width: int = width, heads: int = heads) -> _Block:
                return _Block(width_in, width, emb, heads, config.dropout)

            self.down.append(nn.ModuleList(block(width) for _ in range(count)))
            if level < last:
                self.up.append(nn.ModuleList(block(2 * width) for _ in range(count)))
                self.shrink.append(nn.Conv2d(4 * width, widths[level + 1], 1))
                self.grow.append(nn.Conv2d(widths[level + 1], 4 * width, 1))
        self.norm = _norm(widths[0])
        self.leave = _zeroed(nn.Conv2d(widths[0], pixels, 3, padding=1))

    @property
    def multiple(self) -> int:
        """Image sides must be a multiple of this."""
        return self.config.fold * 2 ** (len(self.config.widths) - 1)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return self.read(self.features(x, label))

    def features(self, x: Tensor, label: Tensor) -> Tensor:
        """The last hidden state, (batch, widths[0], height / fold, width / fold)."""
        angle = label[:, None] * self.frequencies
        emb = self.embed(torch.cat([angle.sin(), angle.cos()], dim=1))
        h = F.pixel_unshuffle(x, self.config.fold)
        h = torch.cat([h, torch.ones_like(h[:, :1])], dim=1)
        h = self.enter(_dense(h))
        kept: list[list[Tensor]] = []
        for level, down in enumerate(self.down):
            states = []
            for block in cast(nn.ModuleList, down):
                h = block(h, emb)
                states.append(h)
            if level < len(self.shrink):
                kept.append(states)
                h = self.shrink[level](_dense(F.pixel_unshuffle(h, 2)))
        for level in reversed(range(len(self.up))):
            h = _dense(F.pixel_shuffle(self.grow[level](h), 2))
            for block in cast(nn.ModuleList, self.up[level]):
                h = block(torch.cat([h, kept[level].pop()], dim=1), emb)
        return h

    def read(self, features: Tensor) -> Tensor:
        """The image that a last hidden state stands for."""
        return F.pixel_shuffle(self.leave(F.silu(self.norm(features))), self.config.fold)


class VarianceHead(nn.Module):
    """Reads from a U-Net's last hidden state how sure it is of each pixel.

    Its answer is the logarithm of the variance of the clean image given the noisy one, in units of the denoiser's
    output scale. It is a few convolutions on features that are computed anyway, so that asking for the variance
    costs next to nothing.
    """

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        width, self.fold = config.widths[0], config.fold
        self.norm = _norm(width)
        self.hidden = nn.Conv2d(width, width, 3, padding=1)
        self.leave = _zeroed(nn.Conv2d(width, config.channels * config.fold**2, 3, padding=1))

    def forward(self, features: Tensor) -> Tensor:
        h = F.silu(self.hidden(F.silu(self.norm(features))))
        # Eleven orders of magnitude are enough, and a draw can never blow up.
        return F.pixel_shuffle(self.leave(h), self.fold).clamp(-24.0, 2.0)


class Denoiser(nn.Module):
    """A network dressed as a denoiser: E[x | x + sigma n], for images in [0, 1].

    The preconditioning of EDM (Karras et al. 2022, arXiv:2206.00364, Table 1), on data shifted to zero mean.

    Args:
        network: Maps (image, noise label) to an image by way of features.
        mean, std: Mean and standard deviation of the data's pixels.
        head: Says how sure the network is of each pixel, for `moments`.
    """

    def __init__(
        self, network: UNet, mean: float, std: float, head: VarianceHead | None = None
    ) -> None:
        super().__init__()
        self.network, self.mean, self.std, self.head = network, mean, std, head

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (batch, channels, height, width); sigma: (batch,). Returns the denoised image."""
        return self.read(x, sigma, self.features(x, sigma))

    def moments(self, x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean pixel given the noisy image; needs a head."""
        assert self.head is not None
        features = self.features(x, sigma)
        unit = self.output_scale(sigma.view(-1, 1, 1, 1)).square()
        return self.read(x, sigma, features), unit * self.head(features).exp()

    def features(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The network's last hidden state."""
        return self.network.features((x - self.mean) / self._total(sigma), sigma.log() / 4)

    def read(self, x: Tensor, sigma: Tensor, features: Tensor) -> Tensor:
        """The denoised image that the network's last hidden state for (x, sigma) stands for."""
        kept = (self.std / self._total(sigma)).square() * (x - self.mean)
        scale = self.output_scale(sigma.view(-1, 1, 1, 1))
        return self.mean + kept + scale * self.network.read(features)

    def _total(self, sigma: Tensor) -> Tensor:
        return (sigma.view(-1, 1, 1, 1).square() + self.std**2).sqrt()

    def output_scale(self, sigma: Tensor) -> Tensor:
        """How strongly the network's output counts at sigma: the natural unit of the denoising error."""
        return sigma * self.std / (sigma.square() + self.std**2).sqrt()


def _norm(width: int, affine: bool = True) -> nn.GroupNorm:
    groups = next(g for g in range(max(1, width // 12), 0, -1) if width % g == 0)
    return nn.GroupNorm(groups, width, affine=affine)


def _zeroed(module: M) -> M:
    """Starts a layer at zero, so that every residual branch begins as the identity."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def _dense(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
