"""Priors with a likelihood, by automatic differentiation."""

import math

import pytest
import torch

from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.metrics import psnr
from basis.mixings.matrix import mixture
from basis.nn.glow import Glow, GlowConfig
from basis.nn.kinds import describe_module
from basis.nn.ladder import Ladder
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import LikelihoodPrior
from basis.samplers.noise import Noise
from basis.samplers.problem import Problem
from basis.store.folder import save_prior
from basis.store.loading import load_prior


class Exact:
    """The toy prior's own density, as somebody else's model."""

    def __init__(self, mixture):
        self.mixture = mixture

    def log_prob(self, x, sigma):
        return self.mixture.log_prob(x, sigma)


class Level(torch.nn.Module):
    """A Gaussian of one noise level, which is not told the level."""

    noise_conditioned = False

    def __init__(self, sigma):
        super().__init__()
        self.variance = 0.04 + sigma**2

    def log_prob(self, x):
        square = (x - 0.5).flatten(1).square().sum(dim=1)
        return -0.5 * (
            square / self.variance + x[0].numel() * math.log(2 * math.pi * self.variance)
        )


def test_score_by_autograd_is_the_exact_score(toy_prior):
    prior = LikelihoodPrior(Exact(toy_prior), (1, 4, 4), 0.001, 10.0, chunk=2)
    x = torch.rand(5, 1, 4, 4, dtype=torch.float64)
    for sigma in (0.1, torch.linspace(0.1, 1, 5, dtype=torch.float64)):
        assert torch.allclose(prior.score(x, sigma), toy_prior.score(x, sigma), atol=1e-9)
        assert torch.allclose(prior.denoise(x, sigma), toy_prior.denoise(x, sigma), atol=1e-9)
        assert torch.allclose(prior.log_prob(x, sigma), toy_prior.log_prob(x, sigma))
    with torch.inference_mode():
        assert torch.allclose(prior.score(x, 0.1), toy_prior.score(x, 0.1), atol=1e-9)


def test_a_likelihood_separates_and_chooses(toy_prior):
    prior = LikelihoodPrior(Exact(toy_prior), (1, 4, 4), 0.001, 10.0)
    truth = toy_prior.means.view(4, 1, 4, 4)[[1, 2]][None]
    m = truth.sum(dim=1)
    r = separate(m, prior, sampler="gibbs", steps=20, samples=4, choose="likelihood", seed=1)
    assert psnr(r.sources, truth, permute=True).item() > 20
    best = r.energies.argmin(dim=1)
    summed = prior.log_prob(r.samples[0].flatten(0, 1), 0.001).view(4, 2).sum(dim=1)
    assert summed.argmax() == best[0]


def test_backward_passes_are_counted(toy_prior):
    prior = LikelihoodPrior(Exact(toy_prior), (1, 4, 4), 0.001, 10.0)
    problem = Problem([prior, toy_prior], mixture(), torch.zeros(1, 1, 4, 4), Noise([0]))
    problem.denoise(torch.rand(1, 2, 1, 4, 4), 0.1)
    assert problem.evaluations.max() == 3 + 1


def test_ladder_takes_the_nearest_level():
    ladder = LikelihoodPrior({s: Level(s) for s in (0.01, 0.1, 1.0)}, (1, 2, 2), 0.01, 1.0)
    x = torch.rand(4, 1, 2, 2)
    sigma = torch.tensor([0.01, 0.05, 0.2, 0.9])
    single = [Level(s).log_prob(x[i : i + 1]) for i, s in enumerate((0.01, 0.1, 0.1, 1.0))]
    assert torch.allclose(ladder.log_prob(x, sigma), torch.cat(single))
    assert torch.allclose(ladder.score(x, 0.1), -(x - 0.5) / (0.04 + 0.01))
    with pytest.raises(BasisError, match="positive noise level"):
        Ladder({0.0: Level(0.0)})
    with pytest.raises(BasisError, match="log_prob"):
        LikelihoodPrior(torch.nn.Identity(), (1, 2, 2), 0.01, 1.0)


def test_glow_trains_exports_and_separates(tmp_path, capsys):
    run = tmp_path / "glow"
    words = ["train", "--data", "sample", "--kind", "glow", "--out", run, "--images", 512]
    words += ["--batch-size", 32, "--width", 8, "--depth", 1, "--held-out", 16, "--sigma-max", 1.0]
    words += ["--warmup", 64, "--adam-lr", 1e-3]
    assert main([str(w) for w in words]) == 0
    prior = load_prior(run)
    assert isinstance(prior, LikelihoodPrior) and isinstance(prior.module, Glow)
    bits = prior.card.training["held_out_bits_per_dimension"]
    assert next(iter(bits)) == "0" and all(math.isfinite(b) for b in bits.values())
    x = torch.rand(2, 1, 28, 28)
    s = torch.full((2,), 0.1)
    assert torch.allclose(prior.module.decode(prior.module.encode(x, s), s), x, atol=1e-4)
    out = tmp_path / "out"
    words = ["separate", "sample", "--count", 1, "--prior", run, "--out", out]
    words += ["--sampler", "basis", "--steps", 2, "--levels", 2, "--samples", 2]
    words += ["--choose", "likelihood"]
    assert main([str(w) for w in words]) == 0
    assert (out / "panel.png").exists()


@pytest.mark.slow
def test_glow_survives_much_noise():
    """Steps at sigma = 1 with large learning rates: no NaN, and still invertible."""
    from basis.training.config import TrainConfig
    from basis.training.objectives import Likelihood, one_sigma
    from basis.training.trainer import Trainer

    torch.manual_seed(0)
    images = (torch.rand(64, 1, 8, 8) < 0.2).to(torch.uint8) * 255
    glow = Glow(GlowConfig(size=8, depth=2, width=16, mean=0.2, std=0.4))
    config = TrainConfig(
        images=1000 * 16, batch_size=16, sigma_min=1.0, sigma_max=1.0, adam_lr=3e-3, warmup=100
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            glow, images, folder, config, sigmas=one_sigma(1.0), objective=Likelihood()
        )
        losses = [trainer.train_step() for _ in range(1000)]
    assert all(math.isfinite(loss) for loss in losses)
    # Noise of spread 1 and pictures of spread 0.4: the entropy of the noise alone is 10.04 bits.
    assert 9.9 < sum(losses[-50:]) / 50 < 10.4
    x = torch.randn(8, 1, 8, 8) * 3
    s = torch.ones(8)
    assert (glow.decode(glow.encode(x, s), s) - x).abs().max() < 1e-4


def test_ladder_saves_and_loads(tmp_path):

    torch.manual_seed(0)
    config = GlowConfig(size=4, levels=1, depth=1, width=4)
    ladder = Ladder({s: Glow(config) for s in (0.1, 1.0)})
    card = {"name": "l", "architecture": describe_module(ladder), "shape": [1, 4, 4]}
    card |= {"sigma_min": 0.1, "sigma_max": 1.0}
    save_prior(tmp_path / "l", dict(ladder.named_parameters()), card, dtype=torch.float32)
    prior = load_prior(tmp_path / "l")
    x = torch.rand(3, 1, 4, 4)
    s = torch.tensor([0.1, 1.0, 0.9])
    assert torch.equal(prior.log_prob(x, s), ladder.log_prob(x, s))


def test_exact_prior_has_a_gaussian_oracle():
    """A conditioned flow with no couplings left would be Gaussian; here the whole chain on a known
    density.
    """
    exact = GaussianMixture(torch.full((1, 1, 2, 2), 0.5), torch.tensor([0.04]))
    model = LikelihoodPrior({0.1: Level(0.1)}, (1, 2, 2), 0.1, 0.1)
    x = torch.rand(3, 1, 2, 2)
    assert torch.allclose(model.log_prob(x, 0.1), exact.log_prob(x, 0.1), atol=1e-4)
    assert torch.allclose(model.denoise(x, 0.1), exact.denoise(x, 0.1), atol=1e-5)


def test_the_ladder_trains_resumes_and_separates(tmp_path, capsys):
    out = tmp_path / "ladder"
    words = [
        "lab",
        "ladder",
        "--data",
        "sample",
        "--out",
        out,
        "--first",
        64,
        "--each",
        32,
        "--batch-size",
        16,
    ]
    words += ["--width", 4, "--depth", 1, "--held-out", 16]
    assert main([str(w) for w in words]) == 0
    assert capsys.readouterr().out.count("bits per dimension") == 11
    first = (out / "weights.safetensors").read_bytes()
    prior = load_prior(out)
    assert isinstance(prior.model, Ladder) and len(prior.model.rungs) == 10
    assert prior.sigma_min == pytest.approx(0.01) and prior.sigma_max == pytest.approx(1.0)
    assert (out / "bits.png").exists()
    # Finished levels are not trained again, and the result is the same.
    assert main([str(w) for w in words]) == 0
    assert (out / "weights.safetensors").read_bytes() == first
    # Each level starts from the one below: with no training at all they would be equal.
    r = separate(torch.rand(1, 1, 28, 28), prior, sampler="basis", steps=1)
    assert torch.isfinite(r.sources).all() and r.evaluations == 2 * 3 * (10 + 1)
    assert main([str(w) for w in [*words, "--levels", 3]]) == 2
    assert "divisible by 8" in capsys.readouterr().err
