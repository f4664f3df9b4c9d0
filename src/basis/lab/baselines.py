"""Other separation methods: factorizations, latents of a GAN, and networks trained on mixtures."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis import metrics
from basis._mix import GROUPS, Protocol
from basis.errors import BasisError
from basis.lab.baseline import Average, Baseline, FitOptions, fit_each_group
from basis.lab.cache import CachedResult
from basis.lab.context import Context, Separated
from basis.nn.unet import UNet, UNetConfig
from basis.signals.datasets import load_images
from basis.training.muon import Muon

_TINY = 1e-8


class NMF(Baseline):
    """NMF (Lee and Seung, Nature 401, 1999): a dictionary per source, learned by scikit-learn.

    What each dictionary explains of a mixture is scaled so that the sources add up to it. With the
    same dictionary for all sources (a class-agnostic task) only the random start distinguishes
    them. Signals may have any shape.

    Args:
        parts: Columns of a dictionary.
        steps: Multiplicative updates per mixture.
    """

    title = "NMF"
    pictures = False
    non_negative = True

    def __init__(self, parts: int = 100, steps: int = 300) -> None:
        super().__init__()
        self.parts, self.steps = parts, steps
        self.dictionaries = nn.ParameterList()

    def _fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        learned = fit_each_group(groups, options, self._learn)
        self.dictionaries = nn.ParameterList(nn.Parameter(d, requires_grad=False) for d in learned)

    def _learn(self, images: Tensor, options: FitOptions) -> Tensor:
        try:
            from sklearn.decomposition import MiniBatchNMF
            from sklearn.exceptions import ConvergenceWarning
        except ImportError as error:
            raise BasisError(
                "the baseline NMF needs scikit-learn: pip install 'basis-separation[baselines]'"
            ) from error

        count = max(self.parts, int(len(images) * min(1.0, options.size)))
        rounds = max(2, int(20 * options.size))
        model = MiniBatchNMF(
            self.parts, batch_size=1024, max_iter=rounds, random_state=options.seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the length is chosen here
            model.fit(images[:count].flatten(1).double().numpy())
        return torch.from_numpy(model.components_).float()

    def _separate(self, mixture: Tensor, seed: int) -> Tensor:
        parts = torch.cat(list(self.dictionaries))  # (all parts, values of a signal)
        flat = mixture.flatten(1)
        generator = torch.Generator().manual_seed(seed)
        weights = torch.rand(len(flat), len(parts), generator=generator).to(flat) + 0.1
        target, gram = flat @ parts.T, parts @ parts.T
        for _ in range(self.steps):
            weights = weights * target / (weights @ gram + _TINY)
        split = weights.split([len(d) for d in self.dictionaries], dim=1)
        both = zip(split, self.dictionaries, strict=True)
        explained = torch.stack([w @ d for w, d in both], dim=1) + _TINY
        shares = explained / explained.sum(dim=1, keepdim=True)
        return (shares * flat[:, None]).unflatten(2, mixture.shape[1:])


class SD(Baseline):
    """S-D (Kong et al., arXiv:1906.07552): a GAN per source, and latents whose images add up.

    Trained with the non-saturating loss and a gradient penalty on real images. The latents are
    found by Adam from several random starts, of which the best is kept.

    Args:
        latent, width: Sizes of the networks.
        images: Real images seen per generator, at size 1.
        starts: Random starts per mixture.
        steps: Steps of the search for latents.
    """

    title = "S-D (GAN)"
    measured = 128  # its search is slow

    def __init__(
        self,
        latent: int = 64,
        width: int = 48,
        images: int = 64_000,
        batch: int = 64,
        starts: int = 3,
        steps: int = 200,
    ) -> None:
        super().__init__()
        self.latent, self.width, self.images, self.batch = latent, width, images, batch
        self.starts, self.steps = starts, steps
        self.generators = nn.ModuleList()

    def _fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        self.generators = nn.ModuleList(fit_each_group(groups, options, self._learn))

    def _learn(self, images: Tensor, options: FitOptions) -> nn.Module:
        torch.manual_seed(options.seed)
        generator = torch.Generator().manual_seed(options.seed)
        _, channels, side, _ = images.shape
        network = _generator(channels, side, self.latent, self.width)
        critic = _critic(channels, side, self.width)
        adam = torch.optim.Adam(network.parameters(), 4e-4, betas=(0.5, 0.99))
        critic_adam = torch.optim.Adam(critic.parameters(), 4e-4, betas=(0.5, 0.99))
        steps = options.steps(self.images, self.batch)
        for step in range(steps):
            real = images[torch.randint(len(images), (self.batch,), generator=generator)]
            z = torch.randn(self.batch, self.latent, generator=generator)
            with torch.no_grad():
                fake = network(z)
            point = real.clone().requires_grad_()
            score = critic(point)
            loss = F.softplus(-score).mean() + F.softplus(critic(fake)).mean()
            if step % 4 == 0:
                (gradient,) = torch.autograd.grad(score.sum(), point, create_graph=True)
                loss = loss + 4 * 0.5 * gradient.square().flatten(1).sum(dim=1).mean()
            critic_adam.zero_grad()
            loss.backward()
            critic_adam.step()
            cost = F.softplus(-critic(network(z))).mean()
            adam.zero_grad()
            cost.backward()
            adam.step()
            options.on_progress((step + 1) / steps)
        return network.eval().requires_grad_(False)

    def _separate(self, mixture: Tensor, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.cat([self._search(m, generator) for m in mixture.split(64)])

    @torch.enable_grad()
    def _search(self, mixture: Tensor, generator: torch.Generator) -> Tensor:
        count, k = len(mixture) * self.starts, len(self.generators)
        z = torch.randn(k, count, self.latent, generator=generator).requires_grad_()
        target = mixture.repeat_interleave(self.starts, dim=0)
        optimizer = torch.optim.Adam([z], 0.1)
        for step in range(self.steps):
            optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / self.steps)
            error = self._error(z, target)[1]
            optimizer.zero_grad()
            # Latents far from zero give images that the generator was not trained for.
            (error.sum() + 1e-3 * z.square().sum()).backward()
            optimizer.step()
        with torch.no_grad():
            sources, error = self._error(z, target)
            best = error.view(-1, self.starts).argmin(dim=1)
            return sources.unflatten(0, (-1, self.starts))[torch.arange(len(mixture)), best]

    def _error(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        sources = torch.stack([g(one) for g, one in zip(self.generators, z, strict=True)], dim=1)
        return sources, (sources.sum(dim=1) - target).square().flatten(1).sum(dim=1)


def _generator(channels: int, side: int, latent: int, width: int) -> nn.Module:
    """Latents to images: a linear map to a coarse image, then two doublings."""
    coarse = (2 * width, side // 4, side // 4)
    return nn.Sequential(
        nn.Linear(latent, 2 * width * (side // 4) ** 2),
        nn.Unflatten(1, coarse),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.PixelShuffle(2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 4 * channels, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Sigmoid(),
    )


def _critic(channels: int, side: int, width: int) -> nn.Module:
    """Images to one number."""
    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(4 * channels, width, 3, padding=1),
        nn.LeakyReLU(0.2),
        nn.PixelUnshuffle(2),
        nn.Conv2d(4 * width, 2 * width, 3, padding=1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * width * (side // 4) ** 2, 1),
        nn.Flatten(0),
    )


class Separator(nn.Module):
    """A U-Net from a mixture to masks: each source's share of every pixel.

    Args:
        channels: Of an image.
        k: Sources.
    """

    def __init__(self, channels: int, k: int) -> None:
        super().__init__()
        self.channels, self.k = channels, k
        self.network = UNet(UNetConfig(channels=channels * k, widths=(32, 64), blocks=(1, 2)))
        # Equal outputs for all sources would stay equal under a loss that ignores their order.
        nn.init.normal_(self.network.leave.weight, std=0.02)

    def forward(self, mixture: Tensor) -> Tensor:
        """Sources that add up to the mixture.

        Shapes:
            mixture: (batch, channels, height, width).
            returns: (batch, k, channels, height, width).
        """
        x = (mixture / self.k - 0.5).repeat(1, self.k, 1, 1)
        logits = self.network(x, torch.zeros(len(x), device=x.device))
        shares = logits.unflatten(1, (self.k, self.channels)).softmax(dim=1)
        return shares * mixture[:, None]


class _TrainedOnMixtures(Baseline):
    """A baseline that is a `Separator`."""

    batch: int

    def __init__(self) -> None:
        super().__init__()
        self.network: Separator | None = None

    def _train(
        self,
        network: Separator,
        groups: Sequence[Tensor],
        steps: int,
        generator: torch.Generator,
        options: FitOptions,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """Trains a network on random mixtures of the groups."""
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        parameters = list(network.parameters())
        optimizer = Muon(parameters, lr=0.03, adam_lr=0.003)
        network.train()
        for step in range(steps):
            sources = draw_sources(groups, self.batch, generator)
            value = loss(network(sources.sum(dim=1)), sources)
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            # Rises over the first twentieth and falls to zero over the second half.
            optimizer.set_factor(min(1.0, 20 * (step + 1) / steps, 2 * (steps - step) / steps))
            optimizer.step()
            options.on_progress((step + 1) / steps)
        self.network = network.eval().requires_grad_(False)

    @torch.no_grad()
    def _separate(self, mixture: Tensor, seed: int = 0) -> Tensor:
        assert self.network is not None
        return torch.cat([self.network(m) for m in mixture.split(256)])


class Regression(_TrainedOnMixtures):
    """A U-Net with permutation-invariant training on mixtures (Yu et al., arXiv:1607.00325).

    Args:
        images: Mixtures seen at size 1.
        batch: Mixtures per step.
    """

    title = "Supervised U-Net"

    def __init__(self, images: int = 40_000, batch: int = 128) -> None:
        super().__init__()
        self.images, self.batch = images, batch

    def _fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        torch.manual_seed(options.seed)
        network = Separator(groups[0].shape[1], len(groups))
        generator = torch.Generator().manual_seed(options.seed)
        steps = options.steps(self.images, self.batch)
        self._train(network, groups, steps, generator, options, invariant_error)


class NES(_TrainedOnMixtures):
    """Neural egg separation (Halperin, Ephrat and Hoshen, arXiv:1811.12739).

    The first source is known from samples, the other only from mixtures. Starting from half of each
    mixture as the estimate of the unknown source, a network is trained on sums of known sources and
    estimates, then gives better estimates for the training mixtures, and so on. The supervised form
    knows samples of both and is trained once: an upper bound.

    Args:
        supervised: Which of the two.
        rounds: Iterations of the semi-supervised form.
        images: Mixtures seen in total, at size 1: by default 40,000 for the supervised form, else
            120,000, divided among the rounds.
        batch: Mixtures per step.
        mixtures: Training mixtures of the semi-supervised form.
    """

    title = "NES"

    def __init__(
        self,
        supervised: bool = False,
        rounds: int = 10,
        images: int | None = None,
        batch: int = 128,
        mixtures: int = 5_000,
    ) -> None:
        super().__init__()
        self.rounds, self.mixtures, self.batch = rounds, mixtures, batch
        self.images = images or (40_000 if supervised else 120_000)
        self.knows_both = supervised
        self.title = "NES, supervised" if supervised else "NES"

    def _fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        known, unknown = groups
        torch.manual_seed(options.seed)
        generator = torch.Generator().manual_seed(options.seed)
        if self.knows_both:
            steps = options.steps(self.images, self.batch)
            self._train_round((known, unknown), steps, generator, options)
            return
        # The second group is only used to make mixtures.
        count = max(self.batch, int(options.size * self.mixtures))
        mixtures = draw_sources(groups, count, generator).sum(dim=1)
        estimate = mixtures / 2
        steps = options.steps(self.images, self.batch * self.rounds)
        for number in range(self.rounds):
            part = options.part(number, self.rounds)
            self._train_round((known, estimate), steps, generator, part)
            estimate = self._separate(mixtures)[:, 1]

    def _train_round(
        self,
        groups: Sequence[Tensor],
        steps: int,
        generator: torch.Generator,
        options: FitOptions,
    ) -> None:
        network = Separator(groups[0].shape[1], 2)
        if self.network is not None:
            network.load_state_dict(self.network.state_dict())
        self._train(network, groups, steps, generator, options, F.mse_loss)


def draw_sources(groups: Sequence[Tensor], count: int, generator: torch.Generator) -> Tensor:
    """Random sources, one of each group, (count, k, ...)."""
    drawn = [g[torch.randint(len(g), (count,), generator=generator)] for g in groups]
    return torch.stack(drawn, dim=1)


def invariant_error(estimate: Tensor, truth: Tensor) -> Tensor:
    """Mean squared error under each item's best order of the sources."""
    errors = (estimate[:, :, None] - truth[:, None]).square().flatten(3).mean(dim=3)
    k = errors.shape[1]
    orders = torch.tensor(list(itertools.permutations(range(k))), device=errors.device)
    totals = errors[:, torch.arange(k, device=errors.device), orders].mean(dim=2)
    return totals.amin(dim=1).mean()


BASELINES: dict[str, Callable[[], Baseline]] = {
    "average": Average,
    "nmf": NMF,
    "s-d": SD,
    "nes": NES,
    "nes-supervised": lambda: NES(supervised=True),
    "regression": Regression,
}
"""Every baseline by name."""


def baseline_result(
    ctx: Context, name: str, protocol: Protocol, data: str | None = None
) -> tuple[str, Separated]:
    """Fits a baseline and separates the test mixtures of a protocol: its title and the result."""
    method = BASELINES[name]()
    data = data or ctx.data
    truth = ctx.pairs(ctx.count(method.measured), protocol=protocol, data=data).sources
    # A fit of a few percent would not test a method: fits shrink by the root of the size only.
    size = math.sqrt(min(1.0, ctx.size))
    images = load_images(data, "train", root=ctx.root)

    def compute() -> CachedResult:
        floats = images.floats()
        groups: Sequence[Tensor] = (floats, floats)
        if protocol == "split":
            groups = [images.only(g).floats() for g in GROUPS[data]]
        label = f"fitting {method.title}"
        options = FitOptions(size, ctx.seed, lambda fraction: ctx.on_progress(label, fraction))
        method.fit(groups, options)
        found = method.separate(truth.sum(dim=1), seed=ctx.seed)
        return CachedResult(
            {"sources": found.half(), "psnr": metrics.psnr(found, truth, permute=True)}
        )

    key = {"baseline": method, "fit": size, "protocol": protocol, "truth": truth}
    key |= {"images": ctx.hash_of(images.images)}
    found = ctx.cached(f"baseline-{name}", key, compute)
    sources, psnr = found.tensors["sources"].float(), found.tensors["psnr"]
    none = torch.zeros(len(psnr))  # a baseline evaluates no prior
    return method.title, Separated(sources, psnr, none, none, torch.empty(0), found.seconds)
