"""Correlated values: spectra, measured and stored, and samples drawn with them."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from posteriors import check_draws, run

import basis
from basis.errors import BasisError
from basis.mixings.matrix import grey, mixture, mixtures
from basis.priors.gaussian import GaussianMixture
from basis.priors.guidance import Autoguided
from basis.priors.prior import Prior
from basis.priors.spectrum import Spectrum, measure_spectrum
from basis.priors.tiled import Tiled
from basis.samplers.ancestral import Ancestral
from basis.samplers.gibbs import Gibbs
from basis.samplers.problem import Noise, Problem
from basis.samplers.sampler import sample_clean
from basis.store.folder import read_card
from basis.store.loading import EMBEDDED
from basis.tensors import cosine_frequencies, dct, dct_matrix, idct

SIZE = (2, 2)


def waves(variances, mean=0.0, shape=(1, *SIZE)):
    """A Gaussian whose frequencies are independent, of these variances, (channels, *size)."""
    values = torch.as_tensor(variances, dtype=torch.float64).reshape(shape)
    eye = torch.eye(values.numel(), dtype=torch.float64).view(-1, *shape)
    columns = idct(values.sqrt() * eye, len(shape)).flatten(1)
    return GaussianMixture(
        torch.full((1, *shape), mean, dtype=torch.float64), (columns.T @ columns)[None]
    )


def exact_spectrum(prior, variances, levels=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)):
    """The spectrum of a Gaussian of waves whose variance depends on the frequency's length."""
    shape = prior.shape
    values = torch.as_tensor(variances, dtype=torch.float64).reshape(shape)
    lengths = cosine_frequencies(shape[1:])
    frequencies = sorted(set(lengths.flatten().tolist()))
    rows = []
    for level in levels:
        noise = (level * prior.std) ** 2
        kept = values * noise / (values + noise)
        kept = kept / kept.mean()
        rows.append(
            tuple(tuple(row[lengths == f].mean().item() for f in frequencies) for row in kept)
        )
    return Spectrum(levels, tuple(frequencies), tuple(rows))


def test_cosine_transforms_are_orthonormal_and_inverted():
    x = torch.randn(3, 5, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for axes in (1, 2, 3):
        there = dct(x, axes)
        assert torch.allclose(idct(there, axes), x)
        assert torch.allclose(there.square().sum(), x.square().sum())
    one = dct_matrix(6, x)
    assert torch.allclose(one @ one.T, torch.eye(6, dtype=torch.float64))
    constant = dct(torch.ones(4, 6, dtype=torch.float64), 2)
    assert constant[0, 0].item() == pytest.approx(math.sqrt(24))
    assert constant.flatten()[1:].abs().max() < 1e-12


@pytest.mark.parametrize(("make", "tau"), [(Gibbs, 0.1), (Ancestral, 0.0)])
def test_draws_are_exact_for_correlated_gaussians(make, tau):
    """For correlated values, drawing them independently is wrong."""
    of_first, of_second = [0.2, 0.02, 0.02, 0.002], [0.05, 0.01, 0.01, 0.03]
    priors = [waves(of_first, 0.3), waves(of_second, 0.6)]
    for prior, variances in zip(priors, (of_first, of_second), strict=True):
        prior.spectrum = exact_spectrum(prior, variances)
    alphas, sigma, chains = (1.0, 0.5), 0.05, 8_000
    g = torch.Generator().manual_seed(5)
    m = torch.rand(1, 1, *SIZE, generator=g, dtype=torch.float64) * 1.5
    a = torch.cat([alpha * torch.eye(4, dtype=torch.float64) for alpha in alphas], dim=1)
    prior = torch.block_diag(*(p.covariances[0] for p in priors))
    gain = (
        prior @ a.T @ torch.linalg.inv(a @ prior @ a.T + tau**2 * torch.eye(4, dtype=torch.float64))
    )
    means = torch.cat([p.means[0].flatten() for p in priors])
    mean, covariance = means + gain @ (m.flatten() - a @ means), prior - gain @ a @ prior
    settings = {"steps": 60, "sigma_max": 10.0, "sigma_min": sigma}
    # Levels between those of the spectrum are interpolated: a schedule through them is exact.
    mixing = mixture(alphas).replace(noise=tau)
    x, _ = run(make(**settings), priors, mixing, m, chains)
    check_draws(x, mean, covariance, sigma)
    alone, _ = run(make(**settings, correlated=False), priors, mixing, m, chains)
    with pytest.raises(AssertionError):
        check_draws(alone, mean, covariance, sigma)


@pytest.mark.parametrize(
    "mixing",
    [mixture((1.0, 0.5), 3), grey(channels=3), mixtures([[1.0, 0.5], [0.3, 1.0]], 3)],
    ids=["sum", "grey", "two sums"],
)
def test_means_given_a_mixture_are_those_of_the_whole_covariance(mixing):
    g = torch.Generator().manual_seed(1)
    k, shape = mixing.sources, (3, 4, 4)
    frequencies = torch.rand(k, *shape, generator=g, dtype=torch.float64) + 0.05
    std = torch.rand(2, k, *shape, generator=g, dtype=torch.float64) + 0.5
    x = torch.randn(2, k, *shape, generator=g, dtype=torch.float64)
    m = mixing(torch.randn(2, k, *shape, generator=g, dtype=torch.float64))
    joint = mixing.correlated(std, frequencies)
    found = joint.posterior_mean(x, m)
    assert torch.allclose(mixing(found), m, atol=1e-9)
    d = k * math.prod(shape)
    eye = torch.eye(d, dtype=torch.float64).view(d, k, *shape)
    matrix = mixing(eye).flatten(1).T
    for item in range(2):
        one = mixing.correlated(std[item].expand(d, *std.shape[1:]), frequencies)
        covariance = one.apply(eye).flatten(1)
        assert torch.allclose(covariance, covariance.T)
        gram = torch.linalg.pinv(matrix @ covariance @ matrix.T)
        residual = m[item].flatten() - matrix @ x[item].flatten()
        exact = x[item].flatten() + covariance @ matrix.T @ gram @ residual
        off = (found[item].flatten() - exact).norm() / (exact - x[item].flatten()).norm()
        assert off < 0.02


def test_a_mask_makes_values_independent():
    std, frequencies = torch.ones(1, 2, 1, 2, 2), torch.ones(2, 1, 2, 2)
    assert mixture((1.0, 1.0)).correlated(std, frequencies) is not None
    masked = mixture((1.0, 1.0)).replace(mask=torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    assert masked.correlated(std, frequencies) is None


def test_a_measured_spectrum_is_the_exact_one():
    # The first and third cosine of four values are equal, so that all values have one variance.
    variances = torch.tensor([0.3, 0.02, 0.001, 0.02], dtype=torch.float64)
    prior = waves(variances, shape=(1, 4))
    x = prior.exact_samples(20_000, generator=torch.Generator().manual_seed(0))
    found = measure_spectrum(prior, x, seed=1)
    assert prior.spectrum is found
    for level in (0.2, 1.0, 10.0):
        noise = (level * prior.std) ** 2
        kept = variances * noise / (variances + noise)
        expected = kept / kept.mean()
        assert found.at(level, (1, 4))[0].tolist() == pytest.approx(expected.tolist(), rel=0.05)
    larger = found.at(1.0, (1, 8))[0]
    # The same frequencies, in cycles per place, stand in the same proportion.
    same = found.at(1.0, (1, 4))[0]
    assert (larger[4] / larger[2]).item() == pytest.approx((same[2] / same[1]).item(), rel=1e-6)


def test_a_spectrum_is_kept_by_cards_and_derived_priors():
    photos = Prior.from_pretrained("cifar10")
    assert isinstance(photos.spectrum, Spectrum)
    assert Spectrum.from_dict(photos.spectrum.to_dict()) == photos.spectrum
    assert photos.condition("cat").spectrum is photos.spectrum
    assert Autoguided(photos.condition("cat"), photos).spectrum is photos.spectrum
    tiled = Tiled(photos, 48, 32)
    assert tiled.spectrum.at(2.0, tiled.shape).shape == (3, 48, 32)
    assert Prior.from_pretrained("mnist").spectrum is None


def test_an_item_is_drawn_the_same_in_any_batch():
    photos = Prior.from_pretrained("cifar10")
    m = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    sampler = Gibbs(steps=3)

    def drawn(rows):
        problem = Problem([photos] * 2, mixture((0.5, 0.5), 3), m[rows], Noise(rows))
        return list(sampler.run(problem))[-1].x

    assert torch.allclose(drawn([0, 1, 2])[1:2], drawn([1]), atol=1e-3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"levels": (1.0, 0.5)}, "levels of a spectrum must be rising"),
        ({"frequencies": ()}, "frequencies of a spectrum must be rising"),
        ({"values": (((1.0,),),)}, "a number for every level"),
        ({"values": (((1.0, 0.0),), ((1.0, 1.0),))}, "finite and above 0"),
    ],
)
def test_a_spectrum_that_cannot_be_is_refused(change, says):
    good = Spectrum((0.5, 1.0), (0.1, 0.2), (((1.0, 2.0),), ((1.0, 2.0),)))
    with pytest.raises(BasisError, match=says):
        replace(good, **change)
    with pytest.raises(BasisError, match="its spectrum cannot be read"):
        Spectrum.from_dict({"levels": 3})


def test_the_card_of_another_number_of_channels_is_refused(tmp_path):
    shutil.copytree(EMBEDDED / "mnist", tmp_path / "one")
    card = json.loads((tmp_path / "one" / "card.json").read_text())
    card["spectrum"] = read_card(EMBEDDED / "cifar10").spectrum
    (tmp_path / "one" / "card.json").write_text(json.dumps(card))
    with pytest.raises(BasisError, match="spectrum has 3 channels, its signals have 1"):
        Prior.from_pretrained(tmp_path / "one")


def test_independent_values_are_followed_by_langevin_steps():
    prior = waves([0.2, 0.02, 0.02, 0.002])
    prior.spectrum = exact_spectrum(prior, [0.2, 0.02, 0.02, 0.002])
    m = torch.rand(1, 1, *SIZE, dtype=torch.float64)
    seen = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    plain = mixture((1.0, 1.0))

    def turn(mixing, **settings):
        problem = Problem([prior] * 2, mixing, m, Noise([0]))
        return Gibbs(**settings)._levels(problem, None, 3.0)[1]

    assert turn(plain.replace(mask=seen)) == turn(plain.clipped()) == turn(plain, correlated=False)
    assert turn(plain) < turn(plain, correlated=False)


def test_shrunk_variances_share_the_residual_evenly():
    """One variance is small and the other large; with shrinkage both sources change."""
    priors = [waves([1e-4] * 4, 0.5), waves([0.1] * 4, 0.5)]
    m = torch.full((1, 1, *SIZE), 0.9, dtype=torch.float64)

    def mean(even):
        problem = Problem(priors, mixture((0.5, 0.5)), m, Noise([0]))
        x = problem.center()
        return (
            sample_clean(problem, x, 1.0, 0.0, variance_shrinkage=even).mean(dim=(0, 2, 3, 4)) - 0.5
        )

    sure, unsure = mean(0.0).tolist()
    assert sure < 0.01 < 0.7 < unsure  # 0.8 in all, by variance
    sure, between = mean(0.5).tolist()
    assert 0.01 < sure < 0.1 and sure + between == pytest.approx(0.8)
    assert mean(1.0).tolist() == pytest.approx([0.4, 0.4])


def test_shrinkage_does_not_change_a_single_source():
    prior = waves([0.2, 0.02, 0.02, 0.002], 0.3)
    m = torch.full((1, 1, *SIZE), 0.4, dtype=torch.float64)
    results = [
        basis.separate(
            m, prior, alphas=(1.0,), method=Gibbs(steps=6, variance_shrinkage=even)
        ).sources
        for even in (0.0, 1.0)
    ]
    assert torch.allclose(*results)
    with pytest.raises(BasisError, match="variance_shrinkage"):
        Gibbs(variance_shrinkage=1.5)
