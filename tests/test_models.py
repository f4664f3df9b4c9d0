"""The autoregressive model and the autoencoder: what makes a likelihood of them."""

import math

import pytest
import torch

from basis.cli import main
from basis.priors.likelihood import LikelihoodPrior
from basis.store.loading import load_prior


def shaken(module):
    torch.manual_seed(1)
    with torch.no_grad():
        for p in module.parameters():
            if p.requires_grad:
                p.add_(0.1 * torch.randn(p.shape, dtype=p.dtype))
    return module.eval()


def test_pixels_see_only_those_before_them():
    """The conditional density of a pixel must not change with any later pixel."""
    model = shaken(PixelCNN(PixelCNNConfig(channels=1, width=8, blocks=2))).double()
    x = torch.rand(1, 1, 5, 5, dtype=torch.float64)
    sigma = torch.full((1,), 0.1, dtype=torch.float64)
    base = model.log_prob(x, sigma)
    # Change the last pixel: only its own conditional may differ, so a second change of it adds
    # exactly.
    for place in ((4, 4), (2, 2)):
        y = x.clone()
        y[..., place[0], place[1]] += 0.3
        assert not torch.allclose(model.log_prob(y, sigma), base)
    jacobian = torch.autograd.functional.jacobian(
        lambda y: _conditionals(model, y, sigma), x
    ).reshape(25, 25)
    later = torch.triu(torch.ones(25, 25, dtype=torch.bool), diagonal=1)
    assert jacobian[later].abs().max() == 0
    assert jacobian.diagonal().abs().min() > 0


def _conditionals(model, x, sigma):
    """log p of each pixel given those before it, by telling apart what each adds to the sum."""
    seen = []
    original = torch.Tensor.sum

    def spy(self, *args, **kwargs):
        if self.ndim == 2 and self.shape[1] == 25:
            seen.append(self)
        return original(self, *args, **kwargs)

    torch.Tensor.sum = spy
    try:
        model.log_prob(x, sigma)
    finally:
        torch.Tensor.sum = original
    return seen[-1]


def test_pixelcnn_is_a_density():
    """One pixel: the density integrates to one, at any noise level."""
    model = shaken(PixelCNN(PixelCNNConfig(channels=1, width=8, blocks=1))).double()
    # Logistics have long tails, so the integral runs far out.
    grid = torch.linspace(-200, 200, 800_001, dtype=torch.float64).view(-1, 1, 1, 1)
    for sigma in (0.0, 0.5):
        with torch.no_grad():
            density = torch.cat(
                [
                    model.log_prob(part, torch.full((len(part),), sigma, dtype=torch.float64)).exp()
                    for part in grid.split(100_000)
                ]
            )
        assert density.sum().item() * (400 / 800_000) == pytest.approx(1.0, abs=0.01)


def test_the_bound_is_below_the_likelihood():
    """A VAE's bound is at most its own log p, estimated by importance sampling."""
    model = shaken(VAE(VAEConfig(size=8, width=4, latent=3, draws=64))).double()
    x = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    sigma = torch.full((2,), 0.2, dtype=torch.float64)
    bound = model.log_prob(x, sigma)
    assert torch.equal(bound, model.log_prob(x, sigma))  # no hidden randomness
    c = model.config
    spread = (sigma.view(-1, 1, 1, 1).square() + c.std**2).sqrt()
    u, emb = (x - c.mean) / spread, model.embed(sigma)
    mean, log_std = model._encode(u, emb)
    g = torch.Generator().manual_seed(0)
    count = 4000
    noise = torch.randn(count, 2, 3, generator=g, dtype=torch.float64)
    z = mean + log_std.exp() * noise
    centre, scale = model._decode(z.flatten(0, 1), emb.repeat(count, 1))
    centre, scale = (t.unflatten(0, (count, 2)) for t in (centre, scale))
    white = (u - centre) * (-scale).exp()
    fit = -0.5 * (white.square() + 2 * scale + math.log(2 * math.pi)).flatten(2).sum(dim=2)
    ratio = (0.5 * noise.square() - 0.5 * z.square() + log_std).sum(dim=2)
    exact = (fit + ratio).logsumexp(dim=0) - math.log(count) - 64 * spread.flatten().log()
    assert (bound < exact + 0.05).all()
    assert (exact - bound < 60).all()


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["pixelcnn", "vae"])
def test_they_train_and_separate(tmp_path, architecture):
    run, out = tmp_path / architecture, tmp_path / "out"
    words = ["train", "--data", "sample", "--architecture", architecture, "--out", run]
    words += ["--images", 256, "--batch", 32, "--width", 8, "--held-out", 16, "--sigma-max", 1.0]
    words += ["--warmup", 64, "--adam-lr", 1e-3]
    assert main([str(w) for w in words]) == 0
    prior = load_prior(run)
    assert isinstance(prior, LikelihoodPrior) and prior.has_likelihood
    x = torch.rand(2, 1, 28, 28)
    assert (
        torch.isfinite(prior.score(x, 0.1)).all() and torch.isfinite(prior.score(3 * x, 1.0)).all()
    )
    words = ["separate", "sample", "--count", 1, "--prior", run, "--out", out]
    words += ["--sampler", "gibbs", "--steps", 2]
    assert main([str(w) for w in words]) == 0
    assert (out / "panel.png").exists()
