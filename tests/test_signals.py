"""Signals of any shape and range: every sampler that claims to sample, against exact posteriors."""

import math

import pytest
import torch
from test_samplers import OneStream

import basis
from basis._separate import separate
from basis.errors import BasisError
from basis.priors.gaussian import GaussianMixture
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled
from basis.samplers import SAMPLERS
from basis.samplers.basis import Basis
from basis.samplers.gibbs import Gibbs
from basis.samplers.langevin import Langevin
from basis.samplers.problem import Problem

SHAPE = (2, 5)
CASES = [
    pytest.param(bounds, tau, id=f"{'in [-1, 1]' if bounds[0] else 'unbounded'}, noise {tau}")
    for bounds in ((None, None), (-1.0, 1.0))
    for tau in (0.0, 0.1)
]


def gaussians(bounds, *, correlated, seed=7):
    """Two Gaussian sources of shape (2, 5), well inside of [-1, 1]."""
    g = torch.Generator().manual_seed(seed)
    priors = []
    for _ in range(2):
        if correlated:
            root = 0.05 * torch.randn(10, 10, generator=g, dtype=torch.float64)
            covariance = root @ root.T + 0.003 * torch.eye(10, dtype=torch.float64)
        else:
            covariance = torch.rand(10, generator=g, dtype=torch.float64).mul(0.03).add(0.005)
            covariance = covariance.diag()
        mean = torch.rand(1, *SHAPE, generator=g, dtype=torch.float64) - 0.5
        low, high = bounds
        priors.append(GaussianMixture(mean, covariance[None], value_range=(low, high)))
    return priors


def mixing_of(kind):
    g = torch.Generator().manual_seed(1)
    if kind == "mixture":
        return basis.mixture((1.0, 0.5))
    if kind == "mixtures":
        return basis.mixtures([(1.0, 0.5), (0.3, -1.0)])
    if kind == "masked":
        return basis.mixture((1.0, 0.5)).replace(mask=torch.tensor([1.0, 0, 1, 1, 0]))
    if kind == "convolution":
        return basis.convolution(torch.randn(2, 3, generator=g))
    if kind == "downsample":
        return basis.downsample(5, (1.0, 0.5))
    weights = torch.randn(7, 20, generator=g, dtype=torch.float64)

    def forward(x):
        return x.flatten(1) @ weights.to(x).T

    def adjoint(m):
        return (m @ weights.to(m)).view(-1, 2, *SHAPE)

    return basis.linear(forward, adjoint, sources=2)


KINDS = ["mixture", "mixtures", "masked", "convolution", "downsample", "linear"]


def dense(mixing):
    """The whole operator as one matrix, by applying it to unit vectors."""
    eye = torch.eye(2 * math.prod(SHAPE), dtype=torch.float64).view(-1, 2, *SHAPE)
    return mixing(eye).flatten(1).T


def exact(priors, mixing, m, tau2, sigma=0.0):
    """Mean and covariance of N(means, covariances + sigma^2) given m = A x + noise of tau^2."""
    a = dense(mixing)
    eye = torch.eye(10, dtype=torch.float64)
    prior = torch.block_diag(*(p.covariances[0] + sigma**2 * eye for p in priors))
    means = torch.cat([p.means[0] for p in priors])
    gram = a @ prior @ a.T + tau2 * torch.eye(len(a), dtype=a.dtype)
    gain = prior @ a.T @ torch.linalg.pinv(gram, hermitian=True)
    return means + gain @ (m.flatten() - a @ means), prior - gain @ a @ prior


def draw(sampler, priors, mixing, m, chains):
    many = m.expand(chains, *m.shape[1:])
    problem = Problem(priors, mixing, many, OneStream(0))
    with torch.no_grad():
        return [state.x for state in sampler.run(problem)][-1].flatten(1)


def assert_gaussian(x, mean, covariance, *, mean_slack=0.0, covariance_slack=0.0):
    chains = len(x)
    deviation = covariance.diagonal().clamp_min(1e-12).sqrt()
    allowed = (5 / math.sqrt(chains) + mean_slack) * deviation
    assert ((x.mean(dim=0) - mean).abs() < allowed).all()
    error = (torch.cov(x.T) - covariance) / deviation[:, None] / deviation
    assert error.abs().max() < 5 * math.sqrt(2 / chains) + covariance_slack


@pytest.mark.parametrize(("bounds", "tau"), CASES)
@pytest.mark.parametrize("kind", ["mixture", "masked", "convolution", "linear"])
def test_gibbs_is_exact_for_independent_values(bounds, tau, kind):
    priors, sigma = gaussians(bounds, correlated=False), 0.05
    mixing = mixing_of(kind).replace(noise=tau).fit(SHAPE)
    m = mixing(
        torch.stack([p.exact_samples(1, torch.Generator().manual_seed(2)) for p in priors], 1)
    )
    x = draw(Gibbs(steps=60, sigma_switch=sigma, gibbs_fraction=1.0), priors, mixing, m, 5000)
    mean, covariance = exact(priors, mixing, m, tau**2)
    covariance = covariance + sigma**2 * torch.eye(20, dtype=torch.float64)
    assert_gaussian(x, mean, covariance)


@pytest.mark.parametrize(("bounds", "tau"), CASES)
@pytest.mark.parametrize("kind", ["mixture", "convolution"])
def test_langevin_has_the_posterior_of_correlated_values(bounds, tau, kind):
    priors, sigma = gaussians(bounds, correlated=True), 0.1
    mixing = mixing_of(kind).replace(noise=tau).fit(SHAPE)
    m = mixing(
        torch.stack([p.exact_samples(1, torch.Generator().manual_seed(2)) for p in priors], 1)
    )
    sampler = Langevin(
        steps=400, sigma_switch=0.12, sigma_min=sigma, slow_fraction=0.5, rate=0.05, weight=2.0
    )
    x = draw(sampler, priors, mixing, m, 2000)
    gain = mixing.gain(torch.zeros(1, 2, *SHAPE, dtype=torch.float64))
    mean, covariance = exact(priors, mixing, m, (gain * sigma) ** 2 / 2 + tau**2, sigma)
    assert_gaussian(x, mean, covariance, mean_slack=0.05, covariance_slack=0.1)


@pytest.mark.parametrize(("bounds", "tau"), CASES)
def test_basis_has_the_posterior_of_correlated_values(bounds, tau):
    priors, sigma = gaussians(bounds, correlated=True), 0.1
    mixing = mixing_of("mixture").replace(noise=tau).fit(SHAPE)
    m = mixing(
        torch.stack([p.exact_samples(1, torch.Generator().manual_seed(2)) for p in priors], 1)
    )
    sampler = Basis(sigma_max=0.5, sigma_min=sigma, levels=4, steps=250, delta=0.04 * sigma**2)
    x = draw(sampler, priors, mixing, m, 2000)
    mean, covariance = exact(priors, mixing, m, sigma**2 + tau**2, sigma)
    assert_gaussian(x, mean, covariance, mean_slack=0.05, covariance_slack=0.1)


@pytest.mark.parametrize(("bounds", "tau"), CASES)
@pytest.mark.parametrize("kind", ["mixture", "linear"])
def test_gibbs_as_it_is_by_default_has_the_posterior_of_correlated_values(bounds, tau, kind):
    priors = gaussians(bounds, correlated=True)
    mixing = mixing_of(kind).replace(noise=tau)
    m = mixing(
        torch.stack([p.exact_samples(1, torch.Generator().manual_seed(2)) for p in priors], 1)
    )
    r = separate(m, priors, mixing=mixing, sampler="gibbs", steps=600, samples=1000, chunk=1000)
    x = r.samples[0].flatten(1)
    mean, covariance = exact(priors, mixing.fit(SHAPE), m, tau**2)
    deviation = covariance.diagonal().clamp_min(0).sqrt()
    # Directions that the mixture fixes have no spread to measure by.
    scale = deviation.clamp_min(0.1 * deviation.max())
    assert ((x.mean(dim=0) - mean).abs() < 0.25 * scale).all()
    assert abs(x.var(dim=0).sum() / covariance.trace() - 1) < 0.15


@pytest.mark.parametrize("sampler", list(SAMPLERS))
@pytest.mark.parametrize("bounds", [(None, None), (-1.0, 1.0), (None, 2.0)])
def test_every_sampler_separates_short_signals(sampler, bounds):
    priors = gaussians(bounds, correlated=True)
    truth = torch.stack(
        [p.exact_samples(3, torch.Generator().manual_seed(4)) for p in priors], dim=1
    )
    r = separate(truth.sum(dim=1), priors, sampler=sampler, steps=4)
    assert r.sources.shape == (3, 2, *SHAPE)
    assert (r.residual < 1e-3).all()
    low, high = bounds
    assert low is None or r.sources.min() >= low
    assert high is None or r.sources.max() <= high


@pytest.mark.parametrize("kind", KINDS)
def test_searches_take_every_mixing(kind):
    priors = gaussians((-1.0, 1.0), correlated=True)
    mixing = mixing_of(kind)
    truth = torch.stack(
        [p.exact_samples(3, torch.Generator().manual_seed(4)) for p in priors], dim=1
    )
    m = mixing(truth)
    r = separate(m, priors, mixing=mixing, effort="fast")
    assert r.sources.shape == truth.shape and (r.residual < 2e-3).all()
    noisy = separate(m, priors, mixing=mixing.replace(noise=0.05), effort="fast")
    assert (noisy.sources - truth).square().mean() < truth.square().mean()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [0.0, 0.2])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-8), (torch.float32, 1e-5)])
def test_posterior_means_agree_with_a_dense_solve(kind, tau, dtype, close, seed):
    mixing = mixing_of(kind).replace(noise=tau).fit(SHAPE)
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 2, *SHAPE, generator=g, dtype=torch.float64)
    v = torch.rand(x.shape, generator=g, dtype=torch.float64) + 0.2
    m = mixing(torch.randn(x.shape, generator=g, dtype=torch.float64))
    a = dense(mixing)
    wanted = []
    for xi, vi, mi in zip(x.flatten(1), v.flatten(1), m.flatten(1), strict=True):
        gram = (a * vi) @ a.T + tau**2 * torch.eye(len(a), dtype=a.dtype)
        solved = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10) @ (mi - a @ xi)
        wanted.append(xi + vi * (a.T @ solved))
    found = mixing.posterior_mean(x.to(dtype), m.to(dtype), v.to(dtype))
    error = (found.double().flatten(1) - torch.stack(wanted)).abs().max()
    assert error < close * torch.stack(wanted).abs().max()


@pytest.mark.parametrize("kind", KINDS)
def test_a_posterior_mean_does_not_depend_on_the_batch(kind):
    mixing = mixing_of(kind).fit(SHAPE)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(3, 2, *SHAPE, generator=g, dtype=torch.float64)
    x[1] *= 100
    m = mixing(torch.randn(x.shape, generator=g, dtype=torch.float64))
    alone = torch.cat([mixing.posterior_mean(x[i : i + 1], m[i : i + 1]) for i in range(3)])
    assert torch.allclose(mixing.posterior_mean(x, m), alone, rtol=1e-9, atol=1e-10)


def test_long_kernels_by_fourier_are_short_ones_with_zeros():
    kernels = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    long = torch.zeros(2, 301, dtype=torch.float64)
    long[:, 149:152] = kernels
    x = torch.randn(2, 2, 1, 500, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    short, padded = basis.convolution(kernels), basis.convolution(long)
    assert torch.allclose(short(x), padded(x))
    m = short(x)
    assert torch.allclose(short.adjoint(m), padded.adjoint(m))
    # An impulse comes out as the impulse response.
    impulse = torch.zeros(1, 2, 1, 7, dtype=torch.float64)
    impulse[0, 0, 0, 3] = 1
    assert torch.allclose(short(impulse)[0, 0, 2:5], kernels[0])


def test_wrong_operators_are_named():
    def forward(x):
        return x.sum(dim=1)

    def back(m):
        return m[:, None].expand(-1, 2, *m.shape[1:])

    prior = gaussians((None, None), correlated=False)[0]
    m = torch.zeros(1, *SHAPE, dtype=torch.float64)
    cases = [
        (forward, lambda m: 1.01 * back(m), "adjoint is not the adjoint of forward"),
        (forward, lambda m: m, r"adjoint answered \(2, 2, 5\)"),
        (lambda x: forward(x) + 1, back, "forward is not linear"),
        (forward, lambda m: m.nonsense, "adjoint failed on .* AttributeError"),
        (lambda x: x.sum(dim=1).numpy(), back, "forward must answer with a tensor, not ndarray"),
    ]
    for a, at, says in cases:
        with pytest.raises(BasisError, match=says):
            separate(m, prior, mixing=basis.linear(a, at, sources=2))
    for make, says in [
        (lambda: basis.convolution(torch.ones(2, 4)), "odd sizes"),
        (lambda: basis.convolution(torch.ones(3)), "one to three dimensions"),
        (lambda: basis.downsample(0), "factor must be a whole number"),
        (lambda: basis.linear(forward, 3, sources=2), "two functions"),
        (lambda: basis.linear(forward, back, sources=0), "sources must be"),
        (lambda: basis.mixture(("a", 1)), "alphas must be"),
    ]:
        with pytest.raises(BasisError, match=says):
            make()


def test_wrong_shapes_get_one_clear_line():
    priors = gaussians((None, None), correlated=False)
    m = torch.zeros(1, *SHAPE, dtype=torch.float64)
    cases = [
        (m[..., :4], {}, r"shape \(1, 2, 4\); prior .* take \(batch, 2, 5\)"),
        (m[0, 0], {}, r"shape \(5,\)"),
        (m, {"mixing": basis.downsample(2, (1, 1))}, "multiple"),
        (m, {"mixing": basis.convolution(torch.ones(2, 3, 3))}, "do not fit sources"),
        (m, {"mixing": basis.mixture().replace(mask=torch.ones(4))}, "the mask has shape"),
        (m, {"mixing": 3}, "mixing must be a Mixing"),
    ]
    for observed, settings, says in cases:
        with pytest.raises(BasisError, match=says) as caught:
            separate(observed, priors, **settings)
        assert "\n" not in str(caught.value)
    with pytest.raises(BasisError, match=r"\(batch, 2, channels"):
        basis.mixture()(torch.zeros(1, 3, *SHAPE))


def test_bounds_of_each_source_are_kept():
    low = GaussianMixture(torch.full((1, 1, 6), -0.9), torch.tensor([0.2]), value_range=(-1.0, 0.0))
    high = GaussianMixture(torch.full((1, 1, 6), 2.0), torch.tensor([1.0]), value_range=(0.0, None))
    m = torch.rand(4, 1, 6) * 2
    r = separate(m, [low, high], effort="fast")
    assert r.sources[:, 0].max() <= 0 and r.sources[:, 0].min() >= -1
    assert r.sources[:, 1].min() >= 0 and (r.residual < 1e-3).all()


@pytest.mark.parametrize(("low", "high"), [(0.01, 0.5), (0.1, 5.0)])
def test_efforts_take_priors_of_other_noise_levels(low, high):
    """Sound in [-1, 1]: the default refuses no range of noise levels."""
    exact_prior = GaussianMixture(torch.zeros(1, 1, 64), torch.tensor([0.04]))
    prior = Prior.from_denoiser(
        exact_prior.denoise, (1, 64), low, high, value_range=(-1.0, 1.0), std=0.2, name="sound"
    )
    g = torch.Generator().manual_seed(0)
    m = 0.2 * torch.randn(2, 2, 1, 64, generator=g).sum(dim=1)
    for settings in (
        {},
        {"effort": "fast"},
        {"sampler": "basis", "steps": 2},
        {"sampler": "dirac"},
    ):
        r = separate(m, prior, **settings)
        assert r.sources.shape == (2, 2, 1, 64) and (r.residual < 1e-3).all()


def test_scores_and_draws_have_the_shape_of_signals():
    prior = gaussians((None, None), correlated=True)[0]
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    assert prior.score(x, torch.tensor([0.1, 0.2, 0.3])).shape == x.shape
    scored = Prior.from_score(prior.score, SHAPE, 0.01, 10.0, value_range=None)
    assert torch.allclose(scored.denoise(x, 0.3), prior.denoise(x, 0.3))
    assert scored.moments(x, 0.3)[1].shape == x.shape
    drawn = basis.sample(prior, 500, steps=20)
    assert drawn.shape == (500, *SHAPE)
    assert (drawn.mean(dim=0).flatten() - prior.means[0]).abs().max() < 0.05


def test_tiles_in_one_dimension():
    tile = GaussianMixture(torch.zeros(1, 1, 8, dtype=torch.float64), torch.tensor([0.5]))
    prior = Tiled(tile, 30)
    assert prior.shape == (1, 30)
    x = torch.randn(2, 1, 30, dtype=torch.float64)
    whole = GaussianMixture(torch.zeros(1, 1, 30, dtype=torch.float64), torch.tensor([0.5]))
    assert torch.allclose(prior.denoise(x, 0.3), whole.denoise(x, 0.3))
    r = separate(x, prior, effort="fast")
    assert r.sources.shape == (2, 2, 1, 30)
    with pytest.raises(BasisError, match="have 1 sides, not 2"):
        Tiled(tile, 30, 30)


def test_a_prior_is_a_module_and_takes_a_module_as_it_is(tiny_prior):
    network = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Dropout(0.5))

    class Denoiser(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x, sigma):
            return self.network(x)

    prior = basis.DenoiserPrior(Denoiser().train(), SHAPE, 0.01, 10.0, low=None, high=None)
    assert all(p.requires_grad for p in network.parameters()) and network.training
    m = torch.zeros(1, *SHAPE)
    again = [separate(m, prior, sampler="gibbs", steps=3).sources for _ in range(2)]
    assert torch.equal(*again), "dropout is off while separating"
    assert network.training and all(p.requires_grad for p in network.parameters())
    assert len(list(prior.parameters())) == 2 and prior.state_dict()
    assert prior.to(torch.float64).denoise(m, 0.1).dtype == torch.float32
    gaussian = GaussianMixture(torch.zeros(1, 2, 5), torch.tensor([1.0])).to(torch.float64)
    assert gaussian.means.dtype == torch.float64 and gaussian.device == torch.device("cpu")
    assert "2x5" in repr(gaussian) and "-inf" in repr(gaussian)
