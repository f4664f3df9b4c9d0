"""S-D: separation by the latents of a GAN (Kong et al., arXiv:1906.07552)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis.lab.baseline import Baseline, FitOptions, fit_each_group, require_fit, require_pictures


class Generator(nn.Module):
    """Latents to images: a linear map to a coarse picture, then two doublings."""

    def __init__(self, channels: int, side: int, latent: int, width: int) -> None:
        super().__init__()
        self.coarse = (2 * width, side // 4, side // 4)
        self.first = nn.Linear(latent, 2 * width * (side // 4) ** 2)
        self.norm0 = nn.BatchNorm2d(2 * width)
        self.conv1 = nn.Conv2d(2 * width, 4 * width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 4 * channels, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        h = F.relu(self.norm0(self.first(z).unflatten(1, self.coarse)))
        h = F.relu(self.norm1(F.pixel_shuffle(self.conv1(h), 2)))
        return torch.sigmoid(F.pixel_shuffle(self.conv2(h), 2))


class Critic(nn.Module):
    """Images to one number."""

    def __init__(self, channels: int, side: int, width: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(4 * channels, width, 3, padding=1)
        self.conv1 = nn.Conv2d(4 * width, 2 * width, 3, padding=1)
        self.last = nn.Linear(2 * width * (side // 4) ** 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.leaky_relu(self.conv0(F.pixel_unshuffle(x, 2)), 0.2)
        h = F.leaky_relu(self.conv1(F.pixel_unshuffle(h, 2)), 0.2)
        return self.last(h.flatten(1))[:, 0]


class SD(Baseline):
    """A generator per source, then for each mixture the latents whose images add up to it.

    Trained with the non-saturating loss and a gradient penalty on real images. The latents are
    found by Adam from several random starts, the best of which is kept; the answer is what the
    generators make of them.

    Args:
        latent, width: Sizes of the networks.
        images: Real images seen per generator, at size 1.
        starts: Random starts per mixture.
        steps: Steps of the search for latents.
    """

    title = "S-D (GAN)"
    reference = "Kong et al., arXiv:1906.07552"
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

    def fit(self, groups: Sequence[Tensor], options: FitOptions) -> None:
        self.generators = nn.ModuleList(fit_each_group(groups, options, self._learn))

    def _learn(self, images: Tensor, options: FitOptions) -> Generator:
        require_pictures(self, images)
        torch.manual_seed(options.seed)
        generator = torch.Generator().manual_seed(options.seed)
        _, channels, side, _ = images.shape
        maker = Generator(channels, side, self.latent, self.width)
        critic = Critic(channels, side, self.width)
        make = torch.optim.Adam(maker.parameters(), 4e-4, betas=(0.5, 0.99))
        judge = torch.optim.Adam(critic.parameters(), 4e-4, betas=(0.5, 0.99))
        steps = options.steps(self.images, self.batch)
        for step in range(steps):
            real = images[torch.randint(len(images), (self.batch,), generator=generator)]
            z = torch.randn(self.batch, self.latent, generator=generator)
            with torch.no_grad():
                fake = maker(z)
            point = real.clone().requires_grad_()
            score = critic(point)
            loss = F.softplus(-score).mean() + F.softplus(critic(fake)).mean()
            if step % 4 == 0:
                (gradient,) = torch.autograd.grad(score.sum(), point, create_graph=True)
                loss = loss + 4 * 0.5 * gradient.square().flatten(1).sum(dim=1).mean()
            judge.zero_grad()
            loss.backward()
            judge.step()
            cost = F.softplus(-critic(maker(z))).mean()
            make.zero_grad()
            cost.backward()
            make.step()
            options.on_progress((step + 1) / steps)
        return maker.eval().requires_grad_(False)

    def separate(self, mixture: Tensor, *, seed: int = 0) -> Tensor:
        require_fit(self, len(self.generators))
        generator = torch.Generator().manual_seed(seed)
        return torch.cat([self._search(m, generator) for m in mixture.split(64)])

    def _search(self, mixture: Tensor, generator: torch.Generator) -> Tensor:
        count, k = len(mixture) * self.starts, len(self.generators)
        z = torch.randn(k, count, self.latent, generator=generator).requires_grad_()
        target = mixture.repeat_interleave(self.starts, dim=0)
        optimizer = torch.optim.Adam([z], 0.1)
        for step in range(self.steps):
            optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / self.steps)
            error = self._error(z, target)[1]
            optimizer.zero_grad()
            # Latents far out make no images that were trained for.
            (error.sum() + 1e-3 * z.square().sum()).backward()
            optimizer.step()
        with torch.no_grad():
            sources, error = self._error(z, target)
            best = error.view(-1, self.starts).argmin(dim=1)
            return sources.unflatten(0, (-1, self.starts))[torch.arange(len(mixture)), best]

    def _error(self, z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        sources = torch.stack([g(one) for g, one in zip(self.generators, z, strict=True)], dim=1)
        return sources, (sources.sum(dim=1) - target).square().flatten(1).sum(dim=1)
