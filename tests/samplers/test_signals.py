"""Separation of signals of any shape and range, by every sampler and with every mixing."""

import pytest
import torch
from posteriors import F64, MIXINGS, SHAPE, check_gaussian, exact_posterior, gaussians

import basis
from basis.errors import BasisError
from basis.priors.gaussian import GaussianMixture
from basis.priors.prior import Prior
from basis.samplers import SAMPLERS, Basis, Dirac, Gibbs


def sources(priors, count, seed=4):
    g = torch.Generator().manual_seed(seed)
    return torch.stack([p.exact_samples(count, g) for p in priors], dim=1)


@pytest.mark.parametrize("kind", ["mixture", "linear"])
def test_the_default_gibbs_has_the_posterior_of_correlated_values(kind):
    priors = gaussians(SHAPE, correlated=True, value_range=(-1.0, 1.0))
    mixing = MIXINGS[kind].replace(noise=0.1).fit(SHAPE)
    m = mixing(sources(priors, 1))
    r = basis.separate(m, priors, mixing=mixing, method=Gibbs(400), samples=300, batch_size=300)
    mean, covariance = exact_posterior(priors, mixing, m, 0.01)
    check_gaussian(r.samples[0], mean, covariance, mean_slack=0.2, covariance_slack=0.25)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("value_range", [None, (-1.0, 1.0), (None, 2.0)])
def test_every_sampler_separates_short_signals(name, value_range):
    priors = gaussians(SHAPE, correlated=True, value_range=value_range)
    m = sources(priors, 3).sum(dim=1)
    r = basis.separate(m, priors, method=SAMPLERS[name](steps=4))
    assert r.sources.shape == (3, 2, *SHAPE)
    assert (r.residual < 1e-3).all()
    low, high = value_range or (None, None)
    assert low is None or r.sources.min() >= low
    assert high is None or r.sources.max() <= high


@pytest.mark.parametrize("kind", MIXINGS)
def test_searches_take_every_mixing(kind):
    priors = gaussians(SHAPE, correlated=True, value_range=(-1.0, 1.0))
    truth = sources(priors, 3)
    m = MIXINGS[kind](truth)
    r = basis.separate(m, priors, mixing=MIXINGS[kind], method="fast")
    assert r.sources.shape == truth.shape and (r.residual < 2e-3).all()
    noisy = basis.separate(m, priors, mixing=MIXINGS[kind], noise=0.05, method="fast")
    assert (noisy.sources - truth).square().mean() < truth.square().mean()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixing": basis.downsample(2, (1, 1))}, "multiples of 2"),
        ({"mixing": basis.convolution(torch.ones(2, 3, 3))}, "do not fit sources"),
        ({"mask": torch.ones(4)}, "mask has shape"),
    ],
)
def test_wrong_shapes_get_one_clear_line(arguments, message):
    priors = gaussians(SHAPE, correlated=False)
    with pytest.raises(BasisError, match=message) as caught:
        basis.separate(torch.zeros(1, *SHAPE, dtype=F64), priors, **arguments)
    assert "\n" not in str(caught.value)


def test_bounds_of_each_source_are_kept():
    low = GaussianMixture(torch.full((1, 1, 6), -0.9), torch.tensor([0.2]), value_range=(-1.0, 0.0))
    high = GaussianMixture(torch.full((1, 1, 6), 2.0), torch.tensor([1.0]), value_range=(0.0, None))
    r = basis.separate(torch.rand(4, 1, 6) * 2, [low, high], method="fast")
    assert r.sources[:, 0].max() <= 0 and r.sources[:, 0].min() >= -1
    assert r.sources[:, 1].min() >= 0 and (r.residual < 1e-3).all()


@pytest.mark.parametrize(("sigma_min", "sigma_max"), [(0.01, 0.5), (0.1, 5.0)])
def test_methods_take_priors_of_any_noise_levels(sigma_min, sigma_max):
    exact = GaussianMixture(torch.zeros(1, 1, 64), torch.tensor([0.04]))
    prior = Prior.from_denoiser(
        exact.denoise, (1, 64), sigma_min, sigma_max, value_range=(-1.0, 1.0), std=0.2
    )
    m = sources([exact, exact], 2).sum(dim=1)
    for method in ("balanced", "fast", Basis(steps=2), Dirac()):
        r = basis.separate(m, prior, method=method)
        assert r.sources.shape == (2, 2, 1, 64) and (r.residual < 1e-3).all()
