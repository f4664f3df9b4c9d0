"""Score priors: networks, chunks and classes."""

import pytest
import torch

import basis
from basis.errors import BasisError
from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead, class_weights
from basis.priors.card import Card
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.guidance import Autoguided

SHADES = torch.tensor([0.1, 0.5, 0.9])
CLASSES = ("dark", "grey", "bright")


def test_untrained_denoiser_is_the_best_linear_one():
    """With a network that outputs zero, EDM's skip is the linear denoiser of data with that mean
    and deviation.
    """
    prior = DenoiserPrior(Denoiser(UNet(UNetConfig()), 0.13, 0.31), (1, 28, 28), 0.005, 10.0)
    oracle = GaussianMixture(torch.full((1, 1, 28, 28), 0.13), torch.tensor([0.31**2]))
    x = torch.rand(2, 1, 28, 28)
    for sigma in (0.01, 0.3, 5.0):
        assert torch.allclose(prior.denoise(x, sigma), oracle.denoise(x, sigma), atol=1e-5)
        assert torch.allclose(
            prior.score(x, sigma), (oracle.denoise(x, sigma) - x) / sigma**2, atol=0.1
        )


def test_chunks_do_not_change_the_answer(tiny_prior):
    x = torch.rand(7, 1, 8, 8)
    whole = tiny_prior.denoise(x, 0.3)
    tiny_prior.chunk = 3
    assert torch.allclose(tiny_prior.denoise(x, 0.3), whole, atol=1e-6)


@pytest.fixture(scope="module")
def shades():
    """A prior of dark, grey and bright images, trained with their classes for a second."""
    torch.manual_seed(0)
    config = UNetConfig(widths=(12,), blocks=(1,), attention=0, embedding=16, classes=3)
    denoiser = Denoiser(UNet(config), 0.5, 0.33, VarianceHead(config))
    optimizer = torch.optim.Adam(denoiser.parameters(), 1e-2)
    for step in range(200):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / 200)
        labels = torch.arange(48) % 3
        clean = SHADES[labels].view(-1, 1, 1, 1).expand(48, 1, 8, 8)
        sigma = (2 * torch.rand(48) - 1).exp()
        member = torch.eye(3).bool()[labels]
        member |= torch.rand(48, 3) < 0.5  # often only a set of classes is given
        noisy = clean + sigma.view(-1, 1, 1, 1) * torch.randn(clean.shape)
        features, mean = denoiser.features_and_mean(noisy, sigma, class_weights(member))
        unit = denoiser.output_scale(sigma).view(-1, 1, 1, 1)
        error = ((mean - clean) / unit).square()
        log_variance = denoiser.head(features)
        loss = (error + 0.1 * (log_variance + error.detach() / log_variance.exp())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    card = Card("shades", {}, (1, 8, 8), 0.01, 10.0, "", classes=CLASSES)
    return DenoiserPrior(denoiser, (1, 8, 8), 0.01, 10.0, name="shades", card=card).eval()


def level(prior, sigma=2.0):
    """The mean of what is denoised from noise that says nothing about the level."""
    noise = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return prior.denoise(0.5 + sigma * (noise - noise.mean((1, 2, 3), True)), sigma).mean()


def test_the_condition_decides_what_is_denoised(shades):
    assert shades.classes == CLASSES
    assert level(shades.condition("dark")) == pytest.approx(0.1, abs=0.1)
    assert level(shades.condition("bright")) == pytest.approx(0.9, abs=0.1)
    assert level(shades) == pytest.approx(0.5, abs=0.1)
    # Either of two classes is possible, and the best answer is between them.
    assert level(shades) < level(shades.condition("grey", "bright")) < 0.8
    assert level(shades.condition(1, 2)) == level(shades.condition("bright", "grey"))
    assert shades.condition(*CLASSES) is shades


def test_the_variance_is_that_of_the_condition(shades):
    x = 0.5 + 2 * torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        one, all_ = (p.moments(x, 2.0)[1].mean() for p in (shades.condition("dark"), shades))
    assert one < all_


def test_sources_with_their_own_classes_are_separated(shades):
    priors = [shades.condition("dark"), shades.condition("bright")]
    mixture = torch.full((1, 1, 8, 8), 0.5)
    found = basis.separate(mixture, priors, (0.5, 0.5), method=60).sources
    assert found[0, 0].mean() < 0.2 and found[0, 1].mean() > 0.8


def test_samples_of_each_class_in_turn(shades):
    drawn = basis.sample(shades, 6, steps=8, each_class=True).mean((1, 2, 3))
    assert drawn.view(2, 3).sub(SHADES).abs().max() < 0.15
    guided = Autoguided(shades, shades, 0.5)
    assert guided.classes == CLASSES
    assert level(guided.condition("dark")) < level(shades.condition("dark")) + 1e-3


def test_a_network_begins_as_an_unconditional_one():
    torch.manual_seed(0)
    config = UNetConfig(widths=(12, 24), blocks=(1, 1), embedding=16, classes=4)
    denoiser = Denoiser(UNet(config), 0.5, 0.3)
    x, sigma = torch.rand(4, 1, 8, 8), torch.full((4,), 0.5)
    assert torch.equal(denoiser(x, sigma, class_weights(torch.eye(4).bool())), denoiser(x, sigma))
    assert class_weights(torch.ones(4).bool()).abs().max() == 0


def test_unknown_classes_are_named(shades):
    for classes, says in (
        (("pink",), "'pink'; its classes are dark, grey, bright"),
        ((3,), "no class 3"),
        ((), "its classes are dark"),
    ):
        with pytest.raises(BasisError, match=says):
            shades.condition(*classes)
