"""A small U-Net and the denoiser made from it, optionally class-conditional."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis.nn.kind import Architecture, NetworkKind, number, read_config, size_setting
from basis.settings import check_settings, setting
from basis.tensors import per_item

M = TypeVar("M", bound=nn.Module)
_Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVOLUTIONS: dict[int, type[_Conv]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@dataclass(frozen=True)
class UNetConfig:
    """Configuration of a `UNet`.

    `fold` is the side of the square of pixels (or the length of the piece of a signal) folded into
    channels before the first convolution. `widths` and `blocks` are channels and residual blocks
    per level, finest first; the blocks of every level but the last are built twice, going down and
    coming up. The last `attention` levels have self-attention. `dims` is the number of axes after
    the channels: 1 for signals, 2 for images, 3 for volumes. A network with `classes` is
    class-conditional.
    """

    channels: int = size_setting(1, "channels of the data", flag=False)
    fold: int = size_setting(2, "pixels per side folded into channels", at_most=64)
    widths: tuple[int, ...] = size_setting((48, 96), "channels per level")
    blocks: tuple[int, ...] = size_setting((2, 4), "residual blocks per level")
    attention: int = size_setting(1, "coarsest levels with attention", at_least=0)
    head_width: int = size_setting(32, "channels of an attention head")
    embedding: int = size_setting(128, "features of the noise level")
    dropout: float = setting(0.0, "dropout rate in training", at_least=0.0, at_most=0.99)
    dims: int = size_setting(2, "axes after the channels", flag=False, at_most=3)
    classes: int = size_setting(0, "classes of a conditional network", flag=False, at_least=0)

    def __post_init__(self) -> None:
        check_settings(self)


class _Attention(nn.Module):
    def __init__(self, width: int, head_width: int, dims: int) -> None:
        super().__init__()
        # The largest number of heads that divides the width, none narrower than head_width.
        self.heads = _divisor(width, width // head_width)
        self.norm = _norm(width)
        self.qkv = _conv(dims, width, 3 * width, 1)
        self.out = _zeroed(_conv(dims, width, width, 1))
        self.plain = False

    def forward(self, x: Tensor) -> Tensor:
        b, c, *size = x.shape
        qkv = self.qkv(self.norm(x)).movedim(1, -1)
        positions = math.prod(size)
        q, k, v = qkv.reshape(b, positions, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        if self.plain:
            y = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        y = y.transpose(1, 2).reshape(b, *size, c).movedim(-1, 1)
        return x + self.out(y)


class _Block(nn.Module):
    """Residual block, modulated by the noise-level embedding after its first convolution."""

    def __init__(self, width_in: int, width: int, heads: int, config: UNetConfig) -> None:
        super().__init__()
        dims = config.dims
        self.skip = _conv(dims, width_in, width, 1) if width_in != width else nn.Identity()
        self.norm0 = _norm(width)
        self.conv0 = _conv(dims, width, width)
        self.modulate = _zeroed(nn.Linear(config.embedding, 2 * width))
        self.norm1 = _norm(width, affine=False)
        self.dropout = nn.Dropout(config.dropout)
        self.conv1 = _zeroed(_conv(dims, width, width))
        self.attention = _Attention(width, heads, dims) if heads else nn.Identity()

    def forward(self, x: Tensor, emb: Tensor) -> Tensor:
        x = self.skip(x)
        numbers = self.modulate(emb)
        numbers = numbers.reshape(*numbers.shape, *[1] * (x.ndim - 2))
        scale, shift = numbers.chunk(2, dim=1)
        y = self.conv0(F.silu(self.norm0(x)))
        y = F.silu(torch.addcmul(shift, self.norm1(y), 1 + scale))
        return self.attention(x + self.conv1(self.dropout(y)))


class UNet(nn.Module):
    """Maps a signal and one number per item (the noise label) to a signal of the same shape.

    Args:
        config: The configuration.

    Shapes:
        x: (batch, channels, *size), `config.dims` sides, each divisible by `multiple`.
        label: (batch,), of order one.
        condition: (batch, classes), `class_weights` of each item; None for unconditional.
    """

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        if len(config.widths) != len(config.blocks):
            raise ValueError("widths and blocks must have one entry per level")
        if config.dims not in _CONVOLUTIONS:
            raise ValueError(f"dims must be 1, 2 or 3, not {config.dims}")
        self.config = config
        self.frequencies: Tensor
        frequencies = torch.logspace(math.log10(0.5), math.log10(32.0), 32)
        self.register_buffer("frequencies", frequencies, persistent=False)
        emb = config.embedding
        self.embed = nn.Sequential(nn.Linear(64, emb), nn.SiLU(), nn.Linear(emb, emb), nn.SiLU())
        count = config.classes
        # Embeds the classes; zero at first, which is the unconditional network. Saved weights have
        # its name.
        self.told = _zeroed(nn.Linear(count, emb, bias=False)) if count else None

        dims = config.dims
        pixels = config.channels * config.fold**dims
        widths = config.widths
        # One channel of ones, to distinguish borders (padded with zeros) from dark pixels.
        self.enter = _conv(dims, pixels + 1, widths[0])
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.shrink, self.grow = nn.ModuleList(), nn.ModuleList()
        last = len(widths) - 1
        for level, (width, count) in enumerate(zip(widths, config.blocks, strict=True)):
            heads = config.head_width if level > last - config.attention else 0

            def block(width_in: int, width: int = width, heads: int = heads) -> _Block:
                return _Block(width_in, width, heads, config)

            self.down.append(nn.ModuleList(block(width) for _ in range(count)))
            if level < last:
                self.up.append(nn.ModuleList(block(2 * width) for _ in range(count)))
                folded = 2**dims * width
                self.shrink.append(_conv(dims, folded, widths[level + 1], 1))
                self.grow.append(_conv(dims, widths[level + 1], folded, 1))
        self.norm = _norm(widths[0])
        self.leave = _zeroed(_conv(dims, widths[0], pixels))

    @property
    def multiple(self) -> int:
        """Sides must be a multiple of this."""
        return self.config.fold * 2 ** (len(self.config.widths) - 1)

    def use_plain_attention(self) -> None:
        """Computes attention step by step: the fused one has no second derivative."""
        for module in self.modules():
            if isinstance(module, _Attention):
                module.plain = True

    def forward(self, x: Tensor, label: Tensor, condition: Tensor | None = None) -> Tensor:
        return self.read(self.features(x, label, condition))

    def features(self, x: Tensor, label: Tensor, condition: Tensor | None = None) -> Tensor:
        """The last hidden state, (batch, widths[0], *size / fold)."""
        angle = label[:, None] * self.frequencies
        emb = self.embed(torch.cat([angle.sin(), angle.cos()], dim=1))
        if condition is not None:
            assert self.told is not None
            emb = emb + self.told(condition)
        return self.hidden(x, emb)

    def hidden(self, x: Tensor, emb: Tensor) -> Tensor:
        """The same from the numbers that describe the noise level, (batch, embedding)."""
        h = _fold(x, self.config.fold)
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
                h = self.shrink[level](_dense(_fold(h, 2)))
        for level in reversed(range(len(self.up))):
            h = _dense(_unfold(self.grow[level](h), 2))
            for block in cast(nn.ModuleList, self.up[level]):
                h = block(torch.cat([h, kept[level].pop()], dim=1), emb)
        return h

    def read(self, features: Tensor) -> Tensor:
        """The signal of a last hidden state."""
        return _unfold(self.leave(F.silu(self.norm(features))), self.config.fold)


class VarianceHead(nn.Module):
    """Predicts the variance of each clean value from a U-Net's last hidden state.

    It returns the logarithm of the variance of the clean signal given the noisy one, in units of
    the denoiser's output scale. It is a few convolutions on features that are computed anyway.
    """

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        width, self.fold = config.widths[0], config.fold
        self.norm = _norm(width)
        self.hidden = _conv(config.dims, width, width)
        values = config.channels * config.fold**config.dims
        self.leave = _zeroed(_conv(config.dims, width, values))

    def forward(self, features: Tensor) -> Tensor:
        h = F.silu(self.hidden(F.silu(self.norm(features))))
        # Eleven orders of magnitude are enough, and samples stay finite.
        return _unfold(self.leave(h), self.fold).clamp(-24.0, 2.0)


class Denoiser(nn.Module):
    """A network as a denoiser: E[x | x + sigma n], for data of any range.

    The preconditioning of EDM (Karras et al. 2022, arXiv:2206.00364, Table 1), on data shifted to
    zero mean. With `mean` and `std` of the data the network works in units of order one; sigma is
    in the data's units.

    Args:
        network: Maps (signal, noise label) to a signal by way of features.
        mean, std: Mean and standard deviation of the data's values.
        head: Predicts the variance of each value, for `moments`.
    """

    def __init__(
        self, network: UNet, mean: float, std: float, head: VarianceHead | None = None
    ) -> None:
        super().__init__()
        self.network, self.mean, self.std, self.head = network, mean, std, head

    def forward(self, x: Tensor, sigma: Tensor, condition: Tensor | None = None) -> Tensor:
        """The denoised signal.

        Shapes:
            x: (batch, channels, *size), and so the answer.
            sigma: (batch,).
            condition: (batch, classes), `class_weights` of each item; None for unconditional.
        """
        return self.read(x, sigma, self.features(x, sigma, condition))

    def moments(
        self, x: Tensor, sigma: Tensor, condition: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; needs a head."""
        assert self.head is not None
        features, mean = self.features_and_mean(x, sigma, condition)
        unit = self.output_scale(per_item(sigma, x)).square()
        return mean, unit * self.head(features).exp()

    def features_and_mean(
        self, x: Tensor, sigma: Tensor, condition: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The network's last hidden state, which a head reads, and the denoised signal."""
        features = self.features(x, sigma, condition)
        return features, self.read(x, sigma, features)

    def features(self, x: Tensor, sigma: Tensor, condition: Tensor | None = None) -> Tensor:
        """The network's last hidden state."""
        inside = (x - self.mean) / self._total(sigma, x)
        return self.network.features(inside, sigma.log() / 4, condition)

    def read(self, x: Tensor, sigma: Tensor, features: Tensor) -> Tensor:
        """The denoised signal of the network's last hidden state for (x, sigma)."""
        kept = (self.std / self._total(sigma, x)).square() * (x - self.mean)
        scale = self.output_scale(per_item(sigma, x))
        return self.mean + kept + scale * self.network.read(features)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError if signals of this shape, (channels, *size), do not fit."""
        multiple = self.network.multiple
        if any(side % multiple for side in shape[1:]):
            size = "x".join(map(str, shape[1:]))
            raise ValueError(
                f"{size} does not fit this network: sides must be multiples of {multiple} "
                "(fold x 2 per level after the first)"
            )

    def _total(self, sigma: Tensor, x: Tensor) -> Tensor:
        return (per_item(sigma, x).square() + self.std**2).sqrt()

    def output_scale(self, sigma: Tensor) -> Tensor:
        """The factor of the network's output at sigma: the unit of the denoising error."""
        return sigma * self.std / (sigma.square() + self.std**2).sqrt()


class ClassConditional(nn.Module):
    """A denoiser conditioned on the classes that its signals may be of.

    Args:
        denoiser: A denoiser whose network has classes.
        weights: `class_weights` of the classes, (classes,) for all signals or (batch, classes).
    """

    def __init__(self, denoiser: Denoiser, weights: Tensor) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.weights: Tensor
        self.register_buffer("weights", weights, persistent=False)

    @property
    def head(self) -> VarianceHead | None:
        """The variance head of the denoiser, or None."""
        return self.denoiser.head

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (batch, channels, *size); sigma: (batch,). Returns the denoised signal."""
        return self.denoiser(x, sigma, self._rows(x))

    def moments(self, x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; needs a head."""
        return self.denoiser.moments(x, sigma, self._rows(x))

    def output_scale(self, sigma: Tensor) -> Tensor:
        """The factor of the network's output at sigma."""
        return self.denoiser.output_scale(sigma)

    def _rows(self, x: Tensor) -> Tensor:
        return self.weights.to(x.dtype).expand(len(x), -1)


def class_weights(member: Tensor) -> Tensor:
    """The condition for signals of some classes, all equally likely.

    All classes together give zero, which is the unconditional network.

    Shapes:
        member: (batch, classes) or (classes,), bool: whether each class is among them, at least one
            per row. The result has the same shape.
    """
    return member / member.sum(dim=-1, keepdim=True) - 1 / member.shape[-1]


def norm_groups(width: int) -> int:
    """Groups of a norm over `width` channels: 12 channels each if that divides the width."""
    return _divisor(width, width // 12)


def _divisor(width: int, most: int) -> int:
    """The largest number up to `most` that divides the width, and at least 1."""
    return next(n for n in range(max(1, most), 0, -1) if width % n == 0)


def _norm(width: int, affine: bool = True) -> nn.GroupNorm:
    return nn.GroupNorm(norm_groups(width), width, affine=affine)


def _zeroed(module: M) -> M:
    """Starts a layer at zero, so that every residual branch begins as the identity."""
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def _conv(dims: int, width_in: int, width: int, kernel: int = 3) -> _Conv:
    return _CONVOLUTIONS[dims](width_in, width, kernel, padding=kernel // 2)


def _dense(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x.contiguous()


def _fold(x: Tensor, side: int) -> Tensor:
    """Space to depth: (batch, channels, *size) to (batch, channels * side^dims, *size / side)."""
    if x.ndim == 4:
        return F.pixel_unshuffle(x, side)
    dims = x.ndim - 2
    split = [n for length in x.shape[2:] for n in (length // side, side)]
    x = x.reshape(*x.shape[:2], *split)
    coarse, fine = range(2, 2 + 2 * dims, 2), range(3, 3 + 2 * dims, 2)
    return x.permute(0, 1, *fine, *coarse).flatten(1, 1 + dims)


def _unfold(x: Tensor, side: int) -> Tensor:
    """Depth to space, the inverse of `_fold`."""
    if x.ndim == 4:
        return F.pixel_shuffle(x, side)
    size = x.shape[2:]
    dims = len(size)
    x = x.reshape(len(x), -1, *[side] * dims, *size)
    pairs = [axis for d in range(dims) for axis in (2 + dims + d, 2 + d)]
    return x.permute(0, 1, *pairs).reshape(len(x), -1, *[length * side for length in size])


def build_denoiser(architecture: Architecture, module: type[Denoiser] = Denoiser) -> Denoiser:
    """A denoiser, of the given class, around the U-Net that a card's architecture describes."""
    config = read_config(UNetConfig, architecture)
    head = VarianceHead(config) if architecture.get("variance") else None
    network = UNet(config)
    mean, std = number(architecture, "mean"), number(architecture, "std", positive=True)
    return module(network, mean, std, head)


def describe_denoiser(module: Denoiser) -> dict[str, Any]:
    """The architecture of a denoiser around a U-Net, without its kind."""
    config = asdict(module.network.config)
    if not config["classes"]:
        del config["classes"]  # older cards do not have it
    found = {"network": config, "mean": module.mean, "std": module.std}
    return found | ({"variance": True} if module.head is not None else {})


KIND = NetworkKind(
    name="unet",
    title="score",
    module=Denoiser,
    config=UNetConfig,
    build=build_denoiser,
    describe=describe_denoiser,
)
