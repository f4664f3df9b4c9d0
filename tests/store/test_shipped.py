"""The shipped priors: complete cards, the promised quality, ready for use."""

import pytest
import torch

import basis
from basis._mix import draw_pairs
from basis.metrics import psnr, summarize
from basis.priors.prior import Prior
from basis.signals.datasets import load_images
from basis.store.folder import read_card
from basis.store.loading import EMBEDDED

NAMES = sorted(path.name for path in EMBEDDED.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_every_card_is_complete_and_its_prior_ready_for_use(name):
    card = read_card(EMBEDDED / name)
    prior = Prior.from_pretrained(name)
    assert prior.name == card.name == name and not card.more
    assert card.title and card.data and "MIT" in card.license
    assert card.parameters == sum(p.numel() for p in prior.parameters())
    assert card.training["images_seen"] >= 10_000
    assert prior.value_range == (0.0, 1.0) and prior.std == card.std
    assert prior.errors[0.1] < 0.5
    assert not prior.training and not any(p.requires_grad for p in prior.parameters())
    assert all("command" in row for row in card.quality)
    if not prior.has_likelihood:
        convolutions = [p for p in prior.parameters() if p.ndim == 4]
        assert all(p.is_contiguous(memory_format=torch.channels_last) for p in convolutions)


@pytest.mark.parametrize(
    ("name", "data", "most"),
    [
        ("mnist", "sample", {0.05: 0.2, 0.2: 0.1, 0.8: 0.06}),
        ("mnist-classes", "sample", {0.05: 0.2, 0.2: 0.1, 0.8: 0.06}),
        ("mnist-energy", "sample", {0.05: 0.2, 0.2: 0.1, 0.8: 0.06}),
        ("mnist-glow", "sample", {0.2: 0.25, 0.8: 0.1}),
        ("cifar10", "sample-photos", {0.05: 0.3, 0.2: 0.12, 0.8: 0.04}),
        ("cifar10-small", "sample-photos", {0.05: 0.4, 0.2: 0.14, 0.8: 0.05}),
        ("cifar10-energy", "sample-photos", {0.2: 0.14, 0.8: 0.05}),
    ],
)
def test_it_denoises_far_better_than_a_linear_filter(name, data, most):
    prior = Prior.from_pretrained(name)
    clean = load_images(data).floats()[:32]
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    for sigma, bound in most.items():
        with torch.no_grad():
            answer = prior.denoise(clean + sigma * noise, sigma)
        error = (answer - clean).square().mean() / sigma**2
        assert error < bound and error < 0.5 * prior.std**2 / (prior.std**2 + sigma**2)


def test_samples_of_photos_are_smooth_and_varied():
    drawn = basis.sample(Prior.from_pretrained("cifar10"), 4, steps=8)
    assert drawn.std() > 0.12
    assert (drawn[..., 1:] - drawn[..., :-1]).square().mean().sqrt() < 0.6 * drawn.std()


@pytest.mark.parametrize(("name", "least"), [("mnist", 26), ("mnist-energy", 22)])
def test_digits_are_separated(name, least):
    """The trivial baseline has 15 dB."""
    pairs = draw_pairs(load_images("sample"), 4, seed=1)
    result = basis.separate(pairs.mix((1.0, 1.0)), Prior.from_pretrained(name), method="fast")
    assert summarize(psnr(result.sources, pairs.sources, permute=True)).mean > least
    assert (result.residual < 1 / 255).all()


def test_average_on_mnist_confirms_the_protocol(full_data):
    """The paper's "Average" row, class agnostic: 14.9 dB; 14.8 to 14.9 says that PSNR is theirs."""
    images = load_images("mnist", "test", root=full_data)
    pairs = draw_pairs(images, 5000, seed=0)
    average = pairs.mix((0.5, 0.5))[:, None].expand(pairs.sources.shape)
    assert 14.75 < summarize(psnr(average, pairs.sources, permute=True)).mean < 14.95
