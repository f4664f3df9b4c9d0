import pytest
import torch

import basis
from basis._check import check_prior, gaussian_errors, value_scale
from basis.errors import BasisError
from basis.priors.functions import FunctionPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior
from basis.signals.datasets import load_images
from basis.store.loading import load_prior
from basis.tensors import per_item


@pytest.fixture(scope="module")
def digits():
    return load_images("sample").floats()[:128]


@pytest.fixture(scope="module")
def mnist():
    return load_prior("mnist")


def broken(mnist, function):
    return Prior.from_denoiser(
        function, mnist.shape, mnist.sigma_min, mnist.sigma_max, name="broken"
    )


def faults(prior, images):
    return {f.name for f in check_prior(prior, images) if not f.passed}


def test_the_embedded_prior_is_sound(mnist, digits):
    findings = check_prior(mnist, digits)
    assert all(f.passed for f in findings), findings
    assert {"quantity", "range", "sigma", "curve"} <= {f.name for f in findings}


def test_the_embedded_flow_is_sound(digits):
    findings = check_prior(load_prior("mnist-glow"), digits[:32])
    assert all(f.passed for f in findings), findings
    assert {"gradient", "inverse"} <= {f.name for f in findings}


def test_a_range_that_is_not_converted(mnist, digits):
    """A model of [-1, 1] that is fed and believed in [0, 1]."""
    prior = broken(mnist, lambda x, s: 2 * mnist.denoise((x + 1) / 2, s / 2) - 1)
    assert "range" in faults(prior, digits)
    assert "[-1, 1]" in str(basis.check(prior, digits))
    mended = FunctionPrior(
        prior.function, "denoiser", prior.shape, 0.01, 5.0, model_range=(-1.0, 1.0)
    )
    assert not faults(mended, digits)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_noise_levels_off_by_two(mnist, digits, factor):
    prior = broken(mnist, lambda x, s: mnist.denoise(x, s * factor))
    assert "sigma" in faults(prior, digits)
    assert f"factor of {1 / factor:g}" in str(basis.check(prior, digits))


def test_the_noise_instead_of_the_image(mnist, digits):
    def noise(x, s):
        return (x - mnist.denoise(x, s)) / per_item(s, x)

    assert faults(broken(mnist, noise), digits) == {"function"}
    assert "returns the noise" in str(basis.check(broken(mnist, noise), digits))
    # Noise that is not of unit size is found on signals.
    prior = broken(mnist, lambda x, s: -0.5 * noise(x, s))
    assert "quantity" in faults(prior, digits)
    assert "prediction type" in str(basis.check(prior, digits))


def test_an_untrained_model_and_nan(mnist, digits):
    assert "curve" in faults(broken(mnist, lambda x, s: 0.9 * x), digits)
    nan = check_prior(broken(mnist, lambda x, s: x * torch.nan), digits)
    assert [f.name for f in nan] == ["function"] and "NaN" in nan[0].text
    with pytest.raises(BasisError, match=r"\(1, 28, 14\)|\(1, 14, 28\)"):
        check_prior(mnist, digits[:, :, :14])


def test_a_score_that_is_not_the_gradient():
    g = torch.Generator().manual_seed(0)
    prior = GaussianMixture(torch.full((1, 1, 4, 4), 0.5), torch.tensor([0.05]))
    images = prior.exact_samples(64, g)
    assert "gradient" not in faults(prior, images)

    class Liar(LikelihoodPrior):
        def log_prob(self, x, sigma):
            return 2 * prior.log_prob(x, sigma)

    liar = Liar(prior, (1, 4, 4), 0.01, 2.0)
    assert "gradient" in faults(liar, images)


def test_gaussian_errors_are_those_of_the_exact_prior():
    g = torch.Generator().manual_seed(0)
    prior = GaussianMixture(
        torch.full((1, 1, 2, 2), 0.5, dtype=torch.float64), torch.tensor([0.04])
    )
    images = prior.exact_samples(20_000, g)
    for sigma, found in zip((0.1, 0.5), gaussian_errors(images, (0.1, 0.5)), strict=True):
        assert found == pytest.approx(0.04 / (0.04 + sigma**2), rel=0.02)


def sound(scale=30.0, mean=10.0, factor=1.0, offset=0.0):
    """A prior of correlated signals, two channels of five steps, far from [0, 1]; and its draws.

    It is told `factor` times the true noise, and answers with `offset` too much.
    """
    g = torch.Generator().manual_seed(0)
    root = torch.eye(10, dtype=torch.float64) + torch.ones(10, 10, dtype=torch.float64) / 2
    root = scale * root / root.square().sum(dim=1).sqrt()[:, None]
    covariance = root @ root.T
    signals = mean + (torch.randn(400, 10, generator=g).double() @ root.T).view(400, 2, 5)

    def denoise(x, sigma):
        s = factor * torch.as_tensor(sigma).flatten()[0].item()
        gain = covariance @ torch.linalg.inv(covariance + s**2 * torch.eye(10).double())
        return ((x.flatten(1).double() - mean) @ gain.T + mean + offset).view(x.shape).to(x)

    prior = Prior.from_denoiser(denoise, (2, 5), 0.1, 100.0, name="sound")
    prior.value_range, prior.std = None, scale
    return prior, signals


def test_signals_of_any_shape_and_range():
    prior, signals = sound()
    assert value_scale(prior) == pytest.approx(100)
    assert not faults(prior, signals)
    assert "sigma" in faults(*sound(factor=0.5))
    assert "range" in faults(*sound(offset=10.0))
    # An offset that would spoil pictures is nothing beside signals of this size.
    assert "range" not in faults(*sound(offset=0.5))
    prior.value_range = (-1.0, 1.0)
    assert value_scale(prior) == 2


def test_the_default_data():
    report = basis.check("mnist", count=64)
    assert report.passed and "suitable" in str(report)
    with pytest.raises(BasisError, match="no data of shape"):
        basis.check(sound()[0])
    with pytest.raises(BasisError, match="at least 8"):
        basis.check("mnist", count=4)
