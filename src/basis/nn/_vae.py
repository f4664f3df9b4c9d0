"""A variational autoencoder whose evidence bound stands for log p.

Kingma & Welling 2013 (arXiv:1312.6114). The bound is estimated with draws that are fixed once, so
that it is a deterministic, differentiable function of the image.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from basis._tensors import per_item
from basis.families import VAEConfig
from basis.nn._levels import LevelEmbedding

__all__ = ["VAE"]


class VAE(nn.Module):
    """A lower bound of log p_sigma(x), for images of any range and any sigma."""

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        if config.size % 4:
            raise ValueError(f"the side must be divisible by 4, not {config.size}")
        self.config = config
        w, side = config.width, config.size // 4
        self.embed = LevelEmbedding(config.embedding)
        self.down = nn.ModuleList(
            [
                nn.Conv2d(config.channels, w, 3, padding=1),
                nn.Conv2d(w, 2 * w, 4, stride=2, padding=1),
                nn.Conv2d(2 * w, 2 * w, 4, stride=2, padding=1),
            ]
        )
        self.to_latent = nn.Linear(2 * w * side * side + config.embedding, 2 * config.latent)
        self.from_latent = nn.Linear(config.latent + config.embedding, 2 * w * side * side)
        self.up = nn.ModuleList(
            [
                nn.ConvTranspose2d(2 * w, 2 * w, 4, stride=2, padding=1),
                nn.ConvTranspose2d(2 * w, w, 4, stride=2, padding=1),
            ]
        )
        self.leave = nn.Conv2d(w, 2 * config.channels, 3, padding=1)
        generator = torch.Generator().manual_seed(0)
        # Kept with the weights: another set of draws would be another function.
        draws = torch.randn(config.draws, config.latent, generator=generator)
        self.noise = nn.Parameter(draws, requires_grad=False)

    def log_prob(self, x: Tensor, sigma: Tensor) -> Tensor:
        """The evidence bound in nats, (batch,): training draws afresh, evaluation does not."""
        c = self.config
        spread = (per_item(sigma, x).square() + c.std**2).sqrt()
        u = (x - c.mean) / spread
        emb = self.embed(sigma)
        mean, log_std = self._encode(u, emb)
        if self.training:
            noise = torch.randn(1, *mean.shape, dtype=x.dtype, device=x.device)
        else:
            noise = self.noise[:, None].expand(-1, *mean.shape)
        z = mean + log_std.exp() * noise
        centre, scale = self._decode(z.flatten(0, 1), emb.repeat(len(noise), 1))
        centre, scale = (t.unflatten(0, noise.shape[:2]) for t in (centre, scale))
        white = (u - centre) * (-scale).exp()
        fit = -0.5 * (white.square() + 2 * scale + math.log(2 * math.pi)).flatten(2).sum(dim=2)
        kl = 0.5 * (mean.square() + (2 * log_std).exp() - 1 - 2 * log_std).sum(dim=1)
        return fit.mean(dim=0) - kl - x[0].numel() * spread.flatten().log()

    def _encode(self, u: Tensor, emb: Tensor) -> tuple[Tensor, Tensor]:
        h = u
        for conv in self.down:
            h = F.silu(conv(h))
        mean, log_std = self.to_latent(torch.cat([h.flatten(1), emb], dim=1)).chunk(2, dim=1)
        return mean, log_std.clamp(-7.0, 3.0)

    def _decode(self, z: Tensor, emb: Tensor) -> tuple[Tensor, Tensor]:
        side = self.config.size // 4
        h = F.silu(self.from_latent(torch.cat([z, emb], dim=1)))
        h = h.view(len(z), -1, side, side)
        for conv in self.up:
            h = F.silu(conv(h))
        centre, scale = self.leave(h).chunk(2, dim=1)
        return centre, scale.clamp(-7.0, 3.0)
