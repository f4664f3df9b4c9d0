"""Growing: a large U-Net that computes what a smaller, trained one does."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from basis.nn.unet import UNet, UNetConfig, VarianceHead, norm_groups

_SAME = ("channels", "fold", "embedding", "dims")


@torch.no_grad()
def grow_unet(small: UNet, large: UNet) -> None:
    """Copies the weights of a small U-Net into a large one, which then computes the same.

    Args:
        small: The trained network; it is not changed.
        large: An untrained network, at least as wide and deep at every level. Additional levels are
            coarser ones.

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
            raise ValueError(f"the {name} of both networks must be equal")
    pairs = list(zip(small.widths, large.widths, strict=False))
    blocks = zip(small.blocks, large.blocks, strict=False)
    if len(small.widths) > len(large.widths) or any(a > b for a, b in (*pairs, *blocks)):
        raise ValueError("the small network must not be wider or deeper at any level")
    if len(large.widths) - large.attention > len(small.widths) - small.attention:
        raise ValueError("a level with attention must keep it")
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
