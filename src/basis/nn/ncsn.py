"""NCSN: the noise-conditional score network of Song and Ermon 2019 (arXiv:1907.05600).

A RefineNet (Lin et al. 2017, arXiv:1611.06612) with dilated convolutions in its coarse stages,
conditioned on the noise level by instance normalization. Modules have the names of the authors'
network, so that published weights load as they are.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis.nn.kind import NetworkKind, read_config, size_setting
from basis.settings import check_settings, setting
from basis.tensors import per_item


class _ConditionalNorm(nn.Module):
    """Conditional instance normalization++ (in the paper's appendix on architectures).

    Instance normalization loses each channel's mean, hence overall brightness. The ++ gives it
    back: the means, normalized over channels, are added with a learned weight. Gain, weight of the
    means and shift are looked up by noise level.

    Shapes:
        x: (batch, channels, height, width).
        labels: (batch,), int64.
    """

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(levels, 3 * width)
        nn.init.normal_(self.embed.weight[:, : 2 * width], 1.0, 0.02)
        nn.init.zeros_(self.embed.weight[:, 2 * width :])

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        gain, weight, shift = self.embed(labels).chunk(3, dim=1)
        variance, means = torch.var_mean(x, dim=(2, 3), correction=0)
        # As published: the biased variance over pixels, but the unbiased one over channels.
        variation, center = torch.var_mean(means, dim=1, keepdim=True)
        recovered = weight * (means - center) * (variation + 1e-5).rsqrt()
        # All that is constant over an image is gathered first: one pass over the pixels is left.
        scale = gain * (variance + 1e-5).rsqrt()
        shift = shift + gain * recovered - scale * means
        return torch.addcmul(shift[:, :, None, None], scale[:, :, None, None], x)


class _ConvMeanPool(nn.Module):
    """A convolution, then the mean of every two by two pixels."""

    def __init__(self, width_in: int, width: int, kernel: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width_in, width, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(self.conv(x), 2)


class _ResidualBlock(nn.Module):
    """Two normalized convolutions and a shortcut.

    A block that goes `down` a stage halves the image if it is not dilated. With dilation it keeps
    the size (dilation widens the view instead), yet its shortcut is still a convolution.
    """

    def __init__(
        self, width_in: int, width: int, levels: int, dilation: int = 1, down: bool = False
    ) -> None:
        super().__init__()

        def conv(width: int, kernel: int = 3, pool: bool = down and dilation == 1) -> nn.Module:
            if pool:
                return _ConvMeanPool(width_in, width, kernel)
            return nn.Conv2d(width_in, width, 3, padding=dilation, dilation=dilation)

        self.conv1 = conv(width_in, pool=False)
        self.normalize2 = _ConditionalNorm(width_in, levels)
        self.conv2 = conv(width)
        self.shortcut = conv(width, kernel=1) if down else nn.Identity()
        self.normalize1 = _ConditionalNorm(width_in, levels)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        h = self.conv1(F.elu(self.normalize1(x, labels)))
        h = self.conv2(F.elu(self.normalize2(h, labels)))
        out: Tensor = self.shortcut(x) + h
        return out


class _ResidualUnits(nn.Module):
    """RefineNet's residual convolution units, `units` of two convolutions each."""

    def __init__(self, width: int, units: int, levels: int) -> None:
        super().__init__()
        self.units = units
        for unit in range(1, units + 1):
            for stage in (1, 2):
                self.add_module(f"{unit}_{stage}_norm", _ConditionalNorm(width, levels))
                self.add_module(f"{unit}_{stage}_conv", _plain(width, width))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        for unit in range(1, self.units + 1):
            h = x
            for stage in (1, 2):
                h = F.elu(getattr(self, f"{unit}_{stage}_norm")(h, labels))
                h = getattr(self, f"{unit}_{stage}_conv")(h)
            x = x + h
        return x


class _Fusion(nn.Module):
    """RefineNet's multi-resolution fusion: inputs convolved, brought to one size, summed."""

    def __init__(self, widths_in: tuple[int, ...], width: int, levels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(w, width, 3, padding=1) for w in widths_in)
        self.norms = nn.ModuleList(_ConditionalNorm(w, levels) for w in widths_in)

    def forward(self, xs: tuple[Tensor, ...], labels: Tensor) -> Tensor:
        size = xs[0].shape[2:]
        total = torch.zeros((), dtype=xs[0].dtype, device=xs[0].device)
        for x, conv, norm in zip(xs, self.convs, self.norms, strict=True):
            h = conv(norm(x, labels))
            if h.shape[2:] != size:
                h = F.interpolate(h, size=size, mode="bilinear", align_corners=True)
            total = total + h
        return total


class _ChainedPooling(nn.Module):
    """RefineNet's chained residual pooling, with means in place of maxima as NCSN has it."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_plain(width, width) for _ in range(2))
        self.norms = nn.ModuleList(_ConditionalNorm(width, levels) for _ in range(2))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        total = path = F.elu(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            path = conv(F.avg_pool2d(norm(path, labels), 5, stride=1, padding=2))
            total = total + path
        return total


class _RefineBlock(nn.Module):
    """Merges a stage's features with the coarser block's output, at the stage's resolution."""

    def __init__(
        self, widths_in: tuple[int, ...], width: int, levels: int, units_out: int = 1
    ) -> None:
        super().__init__()
        self.adapt_convs = nn.ModuleList(_ResidualUnits(w, 2, levels) for w in widths_in)
        self.output_convs = _ResidualUnits(width, units_out, levels)
        self.msf = _Fusion(widths_in, width, levels) if len(widths_in) > 1 else None
        self.crp = _ChainedPooling(width, levels)

    def forward(self, xs: tuple[Tensor, ...], labels: Tensor) -> Tensor:
        hs = tuple(adapt(x, labels) for adapt, x in zip(self.adapt_convs, xs, strict=True))
        h = hs[0] if self.msf is None else self.msf(hs, labels)
        out: Tensor = self.output_convs(self.crp(h, labels), labels)
        return out


class NCSN(nn.Module):
    """The score of images in [0, 1] at one of a few noise levels.

    The state dict has the names and shapes of the published `CondRefineNetDilated`
    (https://github.com/ermongroup/ncsn). Published checkpoints were saved from a `DataParallel` and
    need their `module.` prefix removed. (For 28x28 images the published code has another padding,
    which its dilated blocks do not use: the network is the same for every size.)

    Args:
        config: The configuration.
    """

    def __init__(self, config: NCSNConfig) -> None:
        super().__init__()
        if config.size % 2:
            raise ValueError(f"image sides must be even, not {config.size}")
        self.config = config
        fine, coarse, levels = config.width, 2 * config.width, config.levels
        self.begin_conv = nn.Conv2d(config.channels, fine, 3, padding=1)
        self.normalizer = _ConditionalNorm(fine, levels)
        self.end_conv = nn.Conv2d(fine, config.channels, 3, padding=1)

        def stage(width_in: int, width: int, dilation: int = 1, down: bool = True) -> nn.ModuleList:
            first = _ResidualBlock(width_in, width, levels, dilation, down)
            return nn.ModuleList([first, _ResidualBlock(width, width, levels, dilation)])

        self.res1 = stage(fine, fine, down=False)
        self.res2 = stage(fine, coarse)
        self.res3 = stage(coarse, coarse, dilation=2)
        self.res4 = stage(coarse, coarse, dilation=4)
        self.refine1 = _RefineBlock((coarse,), coarse, levels)
        self.refine2 = _RefineBlock((coarse, coarse), coarse, levels)
        self.refine3 = _RefineBlock((coarse, coarse), fine, levels)
        self.refine4 = _RefineBlock((fine, fine), fine, levels, units_out=3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Grad log p_sigma(x), with respect to x itself.

        Shapes:
            x: (batch, channels, height, width), even sides, pixels in [0, 1] before noise.
            labels: (batch,), int64, the index of the noise level, 0 for the largest sigma.
            returns: (batch, channels, height, width).
        """
        h = self.begin_conv(2 * x - 1)
        kept = []
        for stage in (self.res1, self.res2, self.res3, self.res4):
            for block in stage:
                h = block(h, labels)
            kept.append(h)
        h = self.refine1((kept[3],), labels)
        h = self.refine2((kept[2], h), labels)
        h = self.refine3((kept[1], h), labels)
        h = self.refine4((kept[0], h), labels)
        score: Tensor = self.end_conv(F.elu(self.normalizer(h, labels)))
        return score


class NCSNDenoiser(nn.Module):
    """An NCSN as a denoiser, E[x | x + sigma n] = x + sigma^2 score, for images in [0, 1].

    The network is trained for its own `levels` only. Any other sigma uses the level sigma_i nearest
    in log sigma, with the score multiplied by sigma_i / sigma: a score is -E[n | x] / sigma, and
    the expected noise n changes little from one level to the next. Outside the range of the levels
    this is a rough approximation.

    Args:
        network: The score network.
    """

    levels: Tensor

    def __init__(self, network: NCSN) -> None:
        super().__init__()
        self.network = network
        config = network.config
        high, low = math.log(config.sigma_max), math.log(config.sigma_min)
        levels = torch.linspace(high, low, config.levels, dtype=torch.float64).exp()
        self.register_buffer("levels", levels.to(torch.get_default_dtype()), persistent=False)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (batch, channels, height, width); sigma: (batch,). Returns the denoised image."""
        labels = (sigma.log()[:, None] - self.levels.log()).abs().argmin(dim=1)
        # sigma^2, and the rescaling of the score by sigma_i / sigma.
        step = sigma * self.levels[labels]
        score: Tensor = self.network(x, labels)
        return x + per_item(step, x) * score

    def output_scale(self, sigma: Tensor) -> Tensor:
        """The unit of the denoising error at sigma.

        Squared errors in units of sigma are the paper's objective, denoising score matching
        weighted by sigma^2, up to its factor 1/2.
        """
        return sigma


def _plain(width_in: int, width: int) -> nn.Conv2d:
    """A convolution without bias."""
    return nn.Conv2d(width_in, width, 3, padding=1, bias=False)


@dataclass(frozen=True)
class NCSNConfig:
    """Configuration of an `NCSN`; the defaults are those published for MNIST.

    `width` is the channels of the finest stage (64 for MNIST, 128 for CIFAR-10), every other stage
    having twice as many. The `levels` noise levels run geometrically from `sigma_max` down to
    `sigma_min`. `size` is the side of the images trained on; no weight depends on it.
    """

    channels: int = size_setting(1, "channels of the data", flag=False)
    size: int = size_setting(28, "side of the images", flag=False)
    width: int = size_setting(64, "channels of the finest stage")
    levels: int = size_setting(10, "noise levels")
    sigma_max: float = setting(1.0, "largest noise level", flag=False, above=0.0)
    sigma_min: float = setting(0.01, "smallest noise level", flag=False, above=0.0)

    def __post_init__(self) -> None:
        check_settings(self)


KIND = NetworkKind(
    name="ncsn",
    title="score",
    module=NCSNDenoiser,
    config=NCSNConfig,
    noise="discrete",
    unit_range=True,  # the network itself maps [0, 1] to [-1, 1]
    build=lambda architecture: NCSNDenoiser(NCSN(read_config(NCSNConfig, architecture))),
    describe=lambda module: {"network": asdict(module.network.config)},
)
