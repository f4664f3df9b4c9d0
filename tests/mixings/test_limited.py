"""Clipped and rounded mixtures against exact posteriors of small problems."""

import math

import numpy as np
import pytest
import torch
from posteriors import F64, run
from scipy import stats

import basis
from basis.errors import BasisError
from basis.mixings.conditioning import truncated_mean, truncated_sample
from basis.mixings.limited import Limited
from basis.mixings.matrix import mixture
from basis.priors.gaussian import GaussianMixture
from basis.samplers import Ascent, Basis, Gibbs, Langevin


def values(*numbers):
    return torch.tensor(numbers, dtype=F64)


@pytest.mark.parametrize(
    ("mean", "std", "lower", "upper"),
    [
        (0.0, 1.0, 0.5, math.inf),
        (0.0, 1.0, -math.inf, -2.0),
        (3.0, 0.5, 1.0, 2.0),
        (-1.0, 2.0, -1.5, 4.0),
        (0.0, 1.0, 9.0, math.inf),
        (0.0, 1.0, -math.inf, math.inf),
        (0.2, 0.3, 0.25, 0.26),
    ],
)
def test_truncated_gaussians_are_those_of_scipy(mean, std, lower, upper):
    ends = (lower - mean) / std, (upper - mean) / std
    exact = stats.truncnorm(*ends, loc=mean, scale=std)
    mean_found = truncated_mean(values(mean), values(std), values(lower), values(upper)).item()
    assert mean_found == pytest.approx(exact.mean(), rel=1e-6, abs=1e-9)
    quantiles = np.array([0.001, 0.2, 0.5, 0.9, 0.999])
    normal = torch.from_numpy(stats.norm.ppf(quantiles))
    drawn = truncated_sample(values(mean), values(std), values(lower), values(upper), normal)
    assert np.allclose(drawn, exact.ppf(quantiles), rtol=1e-6, atol=1e-9)


def test_far_tails_stay_finite_and_inside():
    lower, upper = values(100.0, -math.inf, 5.0, 0.3), values(math.inf, -100.0, 5.0, 0.30001)
    zero, one = torch.zeros(4, dtype=F64), torch.ones(4, dtype=F64) * 0.1
    for found in (
        truncated_mean(zero, one, lower, upper),
        truncated_sample(zero, one, lower, upper, values(-9.0, 9.0, 0.0, 50.0)),
    ):
        assert found.isfinite().all() and (found >= lower).all() and (found <= upper).all()
    assert found[:3].tolist() == [100.0, -100.0, 5.0]


def test_observations_are_clipped_and_rounded():
    x = torch.tensor([0.1, 0.4, 0.7, 1.0]).view(1, 1, 1, 1, 4).expand(1, 2, 1, 1, 4)
    assert mixture().clipped()(x).flatten().tolist() == pytest.approx([0.2, 0.8, 1.0, 1.0])
    assert mixture().rounded(0.5)(x).flatten().tolist() == [0.0, 1.0, 1.5, 2.0]
    both = mixture().clipped().rounded()
    steps = both(x) * 255
    assert torch.allclose(steps, steps.round(), atol=1e-4) and both(x).max() == 1
    assert repr(both) == (
        "MatrixMixing(2 sources, alphas 1 1), clipped to ..1, rounded to steps of 0.00392"
    )
    assert both.describe()["clipped"] == [None, 1.0] and both.interchangeable.all()
    masked = both.replace(noise=0.1, mask=torch.tensor([[1.0, 0.0, 1.0, 0.0]]))
    assert isinstance(masked, Limited) and masked.noise == masked.unlimited.noise == 0.1
    assert masked(x).flatten()[[1, 3]].tolist() == [0.0, 0.0]
    assert isinstance(masked.fit((3, 1, 4)), Limited)
    assert isinstance(masked.select(slice(0, 1)), Limited)
    negative = mixture((1.0, -1.0)).clipped(low=0.0)
    lower, upper = negative.bounds(torch.tensor([0.0, 0.5, 1.0]))
    assert lower.tolist() == [-math.inf, 0.5, 1.0] and upper.tolist() == [0.0, 0.5, math.inf]


@pytest.mark.parametrize("linear", [basis.mixture((1.0, 0.5)), basis.downsample(2, (1.0, 1.0))])
def test_projections_meet_the_limits(linear):
    g = torch.Generator().manual_seed(0)
    limited = linear.clipped().rounded(0.1)
    x = torch.rand(3, 2, 1, 4, 4, generator=g, dtype=F64)
    m = limited(x)
    assert (m == 1).any() and (m < 1).any()
    assert limited.residual(x, m).abs().max() < 1e-12
    assert torch.allclose(limited.project(x, m), x)
    start = torch.rand(x.shape, generator=g, dtype=F64)
    near = limited.project(start, m)
    assert limited.residual(near, m).abs().max() < 1e-9
    inside = limited.project_box(start, m, 0.0, 1.0)
    assert inside.min() >= 0 and inside.max() <= 1
    assert limited.residual(inside, m).square().mean().sqrt() < 1e-3


def test_the_likelihood_residual_is_a_gradient():
    """Of log P(m | A x), the probability of a clipped and rounded pixel."""
    limited = mixture((1.0, 0.5)).clipped().rounded(0.2)
    m = values(0.4, 1.0, 0.0, 1.0).view(1, 1, 1, 4)
    x = values(0.3, 0.2, 0.5, 0.9, 0.1, 0.4, 0.2, 0.6).view(1, 2, 1, 1, 4).requires_grad_()
    std = 0.15
    made, (lower, upper) = limited.unlimited(x), limited.bounds(m)
    normal = torch.distributions.Normal(0.0, 1.0)
    chance = normal.cdf((upper - made) / std) - normal.cdf((lower - made) / std)
    (gradient,) = torch.autograd.grad(chance.log().sum(), x)
    found = limited.adjoint(limited.likelihood_residual(x.detach(), m, std)) / std**2
    assert torch.allclose(found, gradient, rtol=1e-5)


def exact_moments(mixing, m, prior_mean, prior_std, tau):
    """Mean and deviation of two scalar sources given an observation, by summing over a grid."""
    line = torch.linspace(-3, 4, 1401, dtype=F64)
    a, b = torch.meshgrid(line, line, indexing="ij")
    log = -((a - prior_mean[0]) ** 2 + (b - prior_mean[1]) ** 2) / (2 * prior_std**2)
    lower, upper = mixing.bounds(values(m))
    made = mixing.unlimited.matrix[0, 0] * a + mixing.unlimited.matrix[0, 1] * b
    normal = torch.distributions.Normal(0.0, 1.0)
    chance = normal.cdf((upper - made) / tau) - normal.cdf((lower - made) / tau)
    weight = log.exp() * chance
    weight = weight / weight.sum()
    means = torch.stack([(weight * a).sum(), (weight * b).sum()])
    deviations = torch.stack([(weight * t**2).sum() for t in (a, b)]) - means**2
    return means, deviations.sqrt()


PRIOR_MEAN, PRIOR_STD = (0.3, 0.5), 0.3


def two_priors():
    return [
        GaussianMixture(torch.full((1, 1, 1, 1), mean, dtype=F64), values(PRIOR_STD**2))
        for mean in PRIOR_MEAN
    ]


@pytest.mark.parametrize("m", [1.0, 0.6])
@pytest.mark.parametrize(
    "sampler",
    [
        Gibbs(steps=150, gibbs_fraction=1.0, sigma_switch=0.02),
        Gibbs(steps=120),
        Langevin(steps=500, rate=0.3, sigma_min=0.01),
        Basis(levels=12, steps=60, sigma_min=0.02),
    ],
    ids=["gibbs", "gibbs with langevin", "langevin", "basis"],
)
def test_samplers_have_the_exact_posterior(sampler, m):
    """For a saturated pixel (m = 1) and a rounded one, with noise before the limits."""
    tau = 0.1
    mixing = mixture((1.0, 0.8)).replace(noise=tau).clipped().rounded(0.2)
    mean, std = exact_moments(mixing, m, PRIOR_MEAN, PRIOR_STD, tau)
    x, _ = run(sampler, two_priors(), mixing, torch.full((1, 1, 1, 1), m, dtype=F64), 1500)
    # The last noise level and the size of the steps remain in the samples.
    assert torch.allclose(x.flatten(1).mean(0), mean, atol=0.03)
    assert torch.allclose(x.flatten(1).std(0), std, rtol=0.12)


def test_posterior_mean_is_the_exact_mean():
    """The mean of a Gaussian given a clipped sum, against a sum over a grid."""
    tau = 0.1
    for m in (1.0, 0.4):
        mixing = mixture((1.0, 0.8)).replace(noise=tau).clipped().rounded(0.2)
        mean, _ = exact_moments(mixing, m, PRIOR_MEAN, PRIOR_STD, tau)
        x = values(*PRIOR_MEAN).view(1, 2, 1, 1, 1)
        found = mixing.posterior_mean(x, torch.full((1, 1, 1, 1), m, dtype=F64), PRIOR_STD**2)
        assert torch.allclose(found.flatten(), mean, atol=1e-4)


@pytest.mark.parametrize("method", ["fast", 600, Ascent()], ids=str)
def test_clipped_sums_are_separated(toy_prior, method):
    """Two patterns that overlap: where both are bright, the sum 2 is stored as 1."""
    patterns = toy_prior.means.view(4, 1, 4, 4)
    truth = torch.stack([patterns[[1, 2]], patterns[[2, 3]]])
    mixing = mixture((1.0, 1.0)).clipped()
    m = mixing(truth)
    assert m.max() == 1 and truth.sum(1).max() == 2
    result = basis.separate(m, toy_prior, mixing=mixing, seed=1, method=method)
    assert (result.residual < 1 / 255).all()
    psnr = basis.metrics.psnr(result.sources, truth, permute=True)
    assert psnr.max() > 25 if isinstance(method, Ascent) else (psnr > 25).all()


def test_own_linear_maps_can_be_clipped():
    own = basis.linear(lambda x: x.sum(1))
    x = torch.rand(2, 2, 1, 3, 3, dtype=F64)
    m = own.clipped()(x)
    found = own.clipped().posterior_mean(x * 0.8, m, 0.3, noise=0.2)
    exact = mixture().clipped().posterior_mean(x * 0.8, m, 0.3, noise=0.2)
    assert torch.allclose(found, exact, atol=0.1)  # the variance of its output is estimated


def test_limits_are_checked():
    for make, message in (
        (lambda: mixture().clipped(1.0, 0.0), "lower limit must be less"),
        (lambda: mixture().clipped(high=math.nan), "finite"),
        (lambda: mixture().rounded(-1.0), "step must be"),
    ):
        with pytest.raises(BasisError, match=message):
            make()
