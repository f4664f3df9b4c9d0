"""One test per row of the README's results, on a few built-in signals and with a margin."""

import pytest

from basis import metrics
from basis._colorize import colorize
from basis._mix import draw_pairs
from basis._separate import separate
from basis.samplers import Basis
from basis.signals.datasets import load_images
from basis.store.loading import load_prior


def psnr(data, prior, k, count, alpha, **settings):
    """Mean PSNR of the trivial baseline and of a separation of built-in mixtures."""
    pairs = draw_pairs(load_images(data, "test"), count, k=k, seed=0)
    alphas = (alpha,) * k
    found = separate(pairs.mix(alphas), prior, alphas, progress=False, **settings)
    return tuple(
        metrics.psnr(x, pairs.sources, permute=True).mean().item()
        for x in (pairs.average(), found.sources)
    )


@pytest.mark.parametrize(
    ("k", "count", "method", "measured"),
    [
        (2, 8, "fast", 32.2),
        (2, 4, "balanced", 32.9),
        (2, 4, Basis(steps=25), 22.2),  # the paper's sampler with fewer of its steps
        (3, 2, 300, 20.0),  # the search for three digits with fewer evaluations
    ],
    ids=["fast", "balanced", "basis", "three"],
)
def test_digits(k, count, method, measured):
    trivial, ours = psnr("sample", "mnist", k, count, 1.0, method=method)
    assert ours > measured - 2 > trivial + 3


def test_photos_with_estimate_mean():
    trivial, ours = psnr(
        "sample-photos", "cifar10", 2, 6, 0.5, method="fast", estimate="mean"
    )  # fmt: skip
    assert ours > trivial + 1.0  # measured: 1.6 dB


def detail(images):
    """Mean absolute difference of neighboring pixels."""
    return (images[..., 1:] - images[..., :-1]).abs().mean().item()


def test_samples_of_photos_have_the_detail_of_photos():
    """In place of the Fréchet ratio, which needs thousands of images."""
    pairs = draw_pairs(load_images("sample-photos", "test"), 6, seed=0)
    prior = load_prior("cifar10").autoguide(load_prior("cifar10-small"))
    m = pairs.mix((0.5, 0.5))
    result = separate(m, prior, (0.5, 0.5), method=100, estimate="sample", progress=False)
    photos, ours, trivial = map(detail, (pairs.sources, result.sources, m))
    assert 0.87 < ours / photos < 1.1 and trivial / photos < 0.83  # measured: 0.92 and 0.81


def test_colors_are_as_strong_as_those_of_photos():
    photos = load_images("sample-photos", "test").floats(slice(6))
    grey = photos.mean(dim=1, keepdim=True)
    colored = colorize(grey, "cifar10", size=32, progress=False).sources[:, 0]

    def saturation(images):
        return (images - images.mean(dim=1, keepdim=True)).abs().mean().item()

    assert (colored.mean(dim=1, keepdim=True) - grey).abs().max() < 0.01
    assert 0.5 < saturation(colored) / saturation(photos) < 1.3  # measured: 0.74
