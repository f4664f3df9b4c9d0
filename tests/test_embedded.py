"""The priors and the images that ship with the package."""

import torch

import basis
from basis._mix import draw_pairs
from basis.metrics import psnr, summarize
from basis.signals.datasets import load_images
from basis.store.folder import read_card
from basis.store.loading import find_prior


def test_card_is_complete():
    card = read_card(find_prior("mnist"))
    wanted = {"name", "title", "architecture", "shape", "sigma_min", "sigma_max", "value_range",
              "std", "errors", "data", "training", "quality", "license", "sha256",
              "parameters"}  # fmt: skip
    assert wanted <= card.to_dict().keys()
    assert card.training["images_seen"] > 100_000
    assert all({"command", "pairs", "seed", "mean"} <= row.keys() for row in card.quality)


def test_embedded_priors_know_their_range_and_are_ready_for_use():
    stds = {"mnist": 0.3, "mnist-glow": 0.3, "mnist-energy": 0.3}
    stds |= {"cifar10": 0.25, "cifar10-glow": 0.25}
    for name, std in stds.items():
        prior = basis.load_prior(name)
        assert prior.value_range == (0.0, 1.0)
        assert abs(prior.std - std) < 0.01
        assert prior.card.training["held_out_error_over_sigma2"]["0.1"] == prior.errors[0.1]
        assert not prior.training and not any(p.requires_grad for p in prior.parameters())
    convolutions = [p for p in basis.load_prior("mnist").parameters() if p.ndim == 4]
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in convolutions)


def test_it_denoises_far_better_than_a_linear_filter():
    prior = basis.load_prior("mnist")
    assert prior.shape == (1, 28, 28) and prior.sigma_min <= 0.01 and prior.sigma_max >= 5
    clean = load_images("sample").floats()[:64]
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    for sigma, at_most in ((0.05, 0.2), (0.2, 0.1), (0.8, 0.06)):
        error = (prior.denoise(clean + sigma * noise, sigma) - clean).square().mean() / sigma**2
        assert error < at_most
        linear = 0.31**2 / (0.31**2 + sigma**2)
        assert error < 0.5 * linear


def test_it_separates_digits():
    """Paper's sampler on a few mixtures: far above the 15 dB of returning the average."""
    pairs = draw_pairs(load_images("sample"), 6, seed=1)
    result = basis.separate(
        pairs.mix((1.0, 1.0)), basis.load_prior("mnist"), sampler="basis", steps=60
    )
    assert summarize(psnr(result.sources, pairs.sources, permute=True)).mean > 18
    assert (result.residual < 1 / 255).all()
    assert result.evaluations == 2 * (10 * 60 + 1 + 3)  # three of each for the verdict


def test_average_on_mnist_confirms_the_protocol(full_data):
    """The paper's "Average" row, class agnostic: 14.9 dB; 14.8 to 14.9 says that PSNR is theirs."""
    images = load_images("mnist", "test", root=full_data)
    pairs = draw_pairs(images, 5000, seed=0)
    average = pairs.mix((0.5, 0.5))[:, None].expand(pairs.sources.shape)
    assert 14.75 < summarize(psnr(average, pairs.sources, permute=True)).mean < 14.95


def test_pairs_are_prefixes_of_longer_draws_and_follow_their_protocol():
    images = load_images("sample")
    short, long = draw_pairs(images, 5, seed=3), draw_pairs(images, 9, seed=3)
    assert torch.equal(short.indices, long.indices[:5])
    split = draw_pairs(images, 20, protocol="split", seed=0)
    labels = images.labels[split.indices]
    assert (labels[:, 0] < 5).all() and (labels[:, 1] >= 5).all()
    four = draw_pairs(images, 20, k=4)
    assert all(len(set(row)) == 4 for row in four.indices.tolist())
    assert torch.allclose(four.mix((1, 1, 1, 1)), four.sources.sum(dim=1))


def test_the_prior_of_photos_denoises_and_draws():
    card = read_card(find_prior("cifar10"))
    assert card.training["images_seen"] > 100_000
    assert any("distance" in row for row in card.quality)
    prior = basis.load_prior("cifar10")
    assert prior.shape == (3, 32, 32)
    clean = load_images("sample-photos").floats()[:32]
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    for sigma, at_most in ((0.05, 0.3), (0.2, 0.12), (0.8, 0.04)):
        error = (prior.denoise(clean + sigma * noise, sigma) - clean).square().mean() / sigma**2
        assert error < at_most
    drawn = basis.sample(prior, 8, steps=12)
    # Smooth over neighbours and spread over the range, as photos are and noise is not.
    assert drawn.std() > 0.12
    assert (drawn[..., 1:] - drawn[..., :-1]).square().mean().sqrt() < 0.6 * drawn.std()


def test_photos_are_separated_and_coloured():
    prior = basis.load_prior("cifar10")
    pairs = draw_pairs(load_images("sample-photos"), 4, seed=2)
    result = basis.separate(pairs.mix((0.5, 0.5)), prior, alphas=(0.5, 0.5), effort=40)
    assert (result.residual < 1 / 255).all()
    # Two different pictures, neither of them the average.
    apart = (result.sources[:, 0] - result.sources[:, 1]).square().mean().sqrt()
    assert apart > 0.08
    photos = load_images("sample-photos").floats()[[4, 13]]
    grey = photos.mean(dim=1, keepdim=True)
    coloured, _ = basis.colorize(grey, prior, samples=2, seed=1)
    assert (coloured.mean(dim=2) - grey).abs().max() < 1 / 255
    colours = coloured - grey[:, None]
    assert colours.square().mean().sqrt() > 0.02
    assert (coloured[:, 0] - coloured[:, 1]).square().mean().sqrt() > 0.02
