"""A small U-Net, and the denoiser made from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis.nn.kinds import Family, entry, number_entry, refer, size_field
from basis.tensors import per_item

M = TypeVar("M", bound=nn.Module)
_Conv = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVOLUTIONS: dict[int, type[_Conv]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class _Attention(nn.Module):
    def __init__(self, width: int, head_width: int, dims: int) -> None:
        super().__init__()
        # As many heads as divide the width, none narrower than asked for.
        self.heads = _divisor(width, width // head_width)
        self.norm = _norm(width)
        self.qkv = _conv(dims, width, 3 * width, 1)
        self.out = _zeroed(_conv(dims, width, width, 1))
        self.plain = False

    def forward(self, x: Tensor) -> Tensor:
        b, c, *size = x.shape
        qkv = self.qkv(self.norm(x)).movedim(1, -1)
        places = math.prod(size)
        q, k, v = qkv.reshape(b, places, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
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
        config: The sizes.

    Shapes:
        x: (batch, channels, *size), `config.dims` sides, each divisible by `multiple`.
        label: (batch,), of order one.
        told: (batch, classes), `class_weights` of each item; None tells nothing.
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
        # At zero, so that a network begins as one that is told nothing.
        self.told = _zeroed(nn.Linear(count, emb, bias=False)) if count else None

        dims = config.dims
        pixels = config.channels * config.fold**dims
        widths = config.widths
        # One channel of ones, so that borders (padded with zeros) can be told from dark pixels.
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

    def forward(self, x: Tensor, label: Tensor, told: Tensor | None = None) -> Tensor:
        return self.read(self.features(x, label, told))

    def features(self, x: Tensor, label: Tensor, told: Tensor | None = None) -> Tensor:
        """The last hidden state, (batch, widths[0], *size / fold)."""
        angle = label[:, None] * self.frequencies
        emb = self.embed(torch.cat([angle.sin(), angle.cos()], dim=1))
        if told is not None:
            assert self.told is not None
            emb = emb + self.told(told)
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
        """The signal that a last hidden state stands for."""
        return _unfold(self.leave(F.silu(self.norm(features))), self.config.fold)


class VarianceHead(nn.Module):
    """Reads from a U-Net's last hidden state how sure it is of each value.

    Its answer is the logarithm of the variance of the clean signal given the noisy one, in units of
    the denoiser's output scale. It is a few convolutions on features that are computed anyway, so
    that asking for the variance costs next to nothing.
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
        # Eleven orders of magnitude are enough, and a draw can never blow up.
        return _unfold(self.leave(h), self.fold).clamp(-24.0, 2.0)


class Denoiser(nn.Module):
    """A network as a denoiser: E[x | x + sigma n], for data of any range.

    The preconditioning of EDM (Karras et al. 2022, arXiv:2206.00364, Table 1), on data shifted to
    zero mean. `mean` and `std` tell it the data's range, so that the network works in units of
    order one whatever the data's own units are; sigma is in the data's units.

    Args:
        network: Maps (signal, noise label) to a signal by way of features.
        mean, std: Mean and standard deviation of the data's values.
        head: Says how sure the network is of each value, for `moments`.
    """

    def __init__(
        self, network: UNet, mean: float, std: float, head: VarianceHead | None = None
    ) -> None:
        super().__init__()
        self.network, self.mean, self.std, self.head = network, mean, std, head

    def forward(self, x: Tensor, sigma: Tensor, told: Tensor | None = None) -> Tensor:
        """The denoised signal.

        Shapes:
            x: (batch, channels, *size), and so the answer.
            sigma: (batch,).
            told: (batch, classes), `class_weights` of each item; None tells nothing.
        """
        return self.read(x, sigma, self.features(x, sigma, told))

    def moments(
        self, x: Tensor, sigma: Tensor, told: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; needs a head."""
        assert self.head is not None
        features, mean = self.features_and_mean(x, sigma, told)
        unit = self.output_scale(per_item(sigma, x)).square()
        return mean, unit * self.head(features).exp()

    def features_and_mean(
        self, x: Tensor, sigma: Tensor, told: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The network's last hidden state, which a head reads, and the denoised signal."""
        features = self.features(x, sigma, told)
        return features, self.read(x, sigma, features)

    def features(self, x: Tensor, sigma: Tensor, told: Tensor | None = None) -> Tensor:
        """The network's last hidden state."""
        inside = (x - self.mean) / self._total(sigma, x)
        return self.network.features(inside, sigma.log() / 4, told)

    def read(self, x: Tensor, sigma: Tensor, features: Tensor) -> Tensor:
        """The denoised signal that the network's last hidden state for (x, sigma) stands for."""
        kept = (self.std / self._total(sigma, x)).square() * (x - self.mean)
        scale = self.output_scale(per_item(sigma, x))
        return self.mean + kept + scale * self.network.read(features)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError where signals of this shape, (channels, *size), do not fit."""
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
        """How strongly the network's output counts at sigma: the unit of the denoising error."""
        return sigma * self.std / (sigma.square() + self.std**2).sqrt()


def norm_groups(width: int) -> int:
    """Groups of a norm of so many channels: of 12 channels each where that divides them."""
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


_SAME = ("channels", "fold", "embedding", "dims")


@torch.no_grad()
def grow_unet(small: UNet, large: UNet) -> None:
    """Lays the weights of a small U-Net into a large one, which then computes the same.

    Args:
        small: The trained network; it is left as it is.
        large: A network at its first weights, at least as wide and deep at every level. More levels
            than the small one's are coarser ones.

    Raises:
        ValueError: The small network does not fit into the large one.
    """
    _check(small.config, large.config)
    widths = list(zip(small.config.widths, large.config.widths, strict=False))
    last = len(widths) - 1
    large.embed.load_state_dict(small.embed.state_dict())
    if small.told and large.told and small.config.classes == large.config.classes:
        large.told.load_state_dict(small.told.state_dict())
    first = _prefix(widths[0][0])
    _place(large.enter, small.enter, first, _prefix(small.enter.in_channels))
    _place_vector(large.norm, small.norm, first)
    _place(large.leave, small.leave, _prefix(small.leave.out_channels), first)
    for level, (old, new) in enumerate(widths):
        for mine, theirs in zip(
            _blocks(large.down, level), _blocks(small.down, level), strict=False
        ):
            _grow_block(mine, theirs, old, new)
        if level == last:
            continue
        up, known = _blocks(large.up, level), _blocks(small.up, level)
        # The last blocks are the known ones: states of the way down are taken in reverse.
        for mine, theirs in zip(up[len(up) - len(known) :], known, strict=True):
            _grow_block(mine, theirs, old, new)
        for mine in up[: len(up) - len(known)]:
            _pass_on(mine, new, 0)
        folded, below = _prefix(2**large.config.dims * old), _prefix(widths[level + 1][0])
        _place(large.shrink[level], small.shrink[level], below, folded)
        _place(large.grow[level], small.grow[level], folded, below)
    for level in range(last, len(large.up)):
        # The small network ends its way down here; what comes from below it is new.
        for number, mine in enumerate(_blocks(large.up, level)):
            width = large.config.widths[level]
            _pass_on(mine, width, 0 if number else width)


@torch.no_grad()
def grow_head(small: VarianceHead, large: VarianceHead) -> None:
    """The same for the variance heads of two such networks."""
    inner = _prefix(small.hidden.in_channels)
    _place_vector(large.norm, small.norm, inner)
    _place(large.hidden, small.hidden, inner, inner)
    _place(large.leave, small.leave, _prefix(small.leave.out_channels), inner)


def _check(small: UNetConfig, large: UNetConfig) -> None:
    for name in _SAME:
        if getattr(small, name) != getattr(large, name):
            raise ValueError(f"a network cannot grow in its {name}")
    pairs = list(zip(small.widths, large.widths, strict=False))
    blocks = zip(small.blocks, large.blocks, strict=False)
    if len(small.widths) > len(large.widths) or any(a > b for a, b in (*pairs, *blocks)):
        raise ValueError("a network grows from one that is no wider and no deeper at any level")
    if len(large.widths) - large.attention > len(small.widths) - small.attention:
        raise ValueError("a level with attention keeps it when a network grows")
    for old, new in pairs:
        if _group(old) != _group(new) or _group(2 * old) != _group(2 * new):
            raise ValueError(
                f"width {old} cannot grow to {new}: multiples of 12 keep the groups of the norms"
            )


def _group(width: int) -> int:
    """Channels of one group of a norm."""
    return width // norm_groups(width)


def _grow_block(mine: nn.Module, theirs: nn.Module, old: int, new: int) -> None:
    large, small = cast(Any, mine), cast(Any, theirs)
    same, doubled = _prefix(old), torch.cat([_prefix(old), new + _prefix(old)])
    if not isinstance(large.skip, nn.Identity):
        _place(large.skip, small.skip, same, doubled)
    _place_vector(large.norm0, small.norm0, same)
    _place(large.conv0, small.conv0, same, same)
    _place(large.conv1, small.conv1, same, same)
    _place(large.modulate, small.modulate, doubled, _prefix(small.modulate.in_features))
    if isinstance(small.attention, nn.Identity):
        return
    attention, known = large.attention, small.attention
    old_size, new_size = old // known.heads, new // attention.heads
    # Each old head lies in the first channels of a new one, which may be larger.
    inside = (torch.arange(known.heads)[:, None] * new_size + _prefix(old_size)).flatten()
    qkv = torch.cat([part * new + inside for part in range(3)])
    _place_vector(attention.norm, known.norm, same)
    # Keys added to a known head are zero at first, so that its products stay as they were.
    keys = slice(new, new + known.heads * new_size)
    attention.qkv.weight[keys] = 0
    attention.qkv.bias[keys] = 0
    _place(attention.qkv, known.qkv, qkv, same)
    # The larger heads divide by the root of their own size.
    attention.qkv.weight[inside] *= (new_size / old_size) ** 0.5
    attention.qkv.bias[inside] *= (new_size / old_size) ** 0.5
    _place(attention.out, known.out, same, inside)


def _pass_on(block: nn.Module, width: int, start: int) -> None:
    """Makes a new block on the way up hand on its input from channel `start`."""
    skip = cast(Any, block).skip
    skip.weight.zero_()
    skip.bias.zero_()
    skip.weight.flatten(1)[:, start : start + width] = torch.eye(width)


def _place(large: Any, small: Any, rows: Tensor, columns: Tensor) -> None:
    """Copies a layer's weights to these outputs and inputs; other inputs of the outputs get 0."""
    large.weight[rows] = 0
    large.weight[rows[:, None], columns] = small.weight
    large.bias[rows] = small.bias


def _place_vector(large: Any, small: Any, rows: Tensor) -> None:
    large.weight[rows], large.bias[rows] = small.weight, small.bias


def _prefix(count: int) -> Tensor:
    return torch.arange(count)


def _blocks(levels: nn.ModuleList, level: int) -> list[nn.Module]:
    return list(cast(nn.ModuleList, levels[level]))


@dataclass(frozen=True)
class UNetConfig:
    """Sizes of a `UNet`.

    `fold` is the side of the square of pixels (or the length of the piece of a signal) laid into
    channels before the first convolution, `widths` and `blocks` give channels and residual blocks
    per level (finest first; the blocks of every level but the last are built twice, going down and
    coming up), and the last `attention` levels carry self-attention. `dims` is the number of axes
    after the channels: 1 for signals, 2 for images, 3 for volumes. A network with `classes` may be
    told which of them a signal is of.
    """

    channels: int = size_field(1, "channels of the data", flag=False)
    fold: int = size_field(2, "pixels per side laid into channels", most=64)
    widths: tuple[int, ...] = size_field((48, 96), "channels per level")
    blocks: tuple[int, ...] = size_field((2, 4), "residual blocks per level")
    attention: int = size_field(1, "coarsest levels with attention", least=0)
    head_width: int = size_field(32, "channels of one attention head")
    embedding: int = size_field(128, "numbers that describe the noise level")
    dropout: float = size_field(0.0, "share dropped in training", at_least=0.0, at_most=0.99)
    dims: int = size_field(2, "axes after the channels", flag=False, most=3)
    classes: int = size_field(0, "classes that it may be told", flag=False, least=0)


def build_around(module: str, architecture: Mapping[str, Any]) -> Any:
    """A module of this reference around the U-Net that a card's `architecture` describes."""
    config = FAMILY.make_sizes(entry(architecture, "network"))
    head = refer("basis.nn:VarianceHead")(config) if architecture.get("variance") else None
    network = UNet(config)
    mean, std = number_entry(architecture, "mean"), number_entry(architecture, "std", positive=True)
    return refer(module)(network, mean, std, head)


def describe_around(module: Any) -> dict[str, Any]:
    """The `architecture` of a module around a U-Net, without its kind."""
    sizes = asdict(module.network.config)
    if not sizes["classes"]:
        del sizes["classes"]  # as cards and runs were written before there were any
    entry = {"network": sizes, "mean": module.mean, "std": module.std}
    return entry | ({"variance": True} if module.head is not None else {})


FAMILY = Family(
    kind="unet",
    title="score",
    sizes=UNetConfig,
    module="basis.nn:Denoiser",
    build=partial(build_around, "basis.nn:Denoiser"),
    describe=describe_around,
    # An energy is built on the same network, and says so by its density; experts are two.
    belongs=lambda module: (
        isinstance(module.network, UNet)
        and not hasattr(module, "log_prob")
        and not hasattr(module, "above")
    ),
)
