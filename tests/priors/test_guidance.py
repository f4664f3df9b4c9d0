"""Autoguided priors, and priors joined by noise level."""

from dataclasses import replace

import pytest
import torch

import basis
from basis.errors import BasisError
from basis.nn.experts import Experts
from basis.nn.kinds import describe_module
from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.guidance import Autoguided, join_by_noise
from basis.priors.prior import Prior
from basis.samplers.gibbs import Gibbs
from basis.tensors import dct


def gaussian(variance, sigma_max=10.0, shape=(1, 4, 4)):
    return GaussianMixture(
        torch.zeros(1, *shape),
        torch.tensor([variance]),
        torch.ones(1),
        sigma_min=0.01,
        sigma_max=sigma_max,
    )


def bounded():
    return DenoiserPrior(torch.nn.Identity(), (1, 4, 4), 0.01, 10.0)


def test_guiding_gaussians_is_a_product_of_powers():
    narrow, wide, w = gaussian(1.0), gaussian(4.0), 0.5
    guided = Autoguided(narrow, wide, w, above=0.0)
    x, sigma = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(0)), 0.7
    # The precisions of the noisy Gaussians, of which a product of powers has the sum.
    precision = (1 + w) / (1.0 + sigma**2) - w / (4.0 + sigma**2)
    torch.testing.assert_close(guided.score(x, sigma), -precision * x)
    mean, variance = guided.moments(x, sigma)
    torch.testing.assert_close(mean, guided.denoise(x, sigma))
    torch.testing.assert_close(variance, narrow.moments(x, sigma)[1])


def test_draws_are_narrower_than_the_prior():
    plain = basis.sample(gaussian(1.0), 400, steps=20)
    sharper = basis.sample(Autoguided(gaussian(1.0), gaussian(2.0), 1.0, above=0.0), 400, steps=20)
    assert plain.std().item() == pytest.approx(1.0, abs=0.04)
    assert sharper.std() < 0.9 * plain.std()


def test_only_large_noise_that_the_guide_knows_is_guided():
    narrow, wide = gaussian(1.0), gaussian(4.0, sigma_max=2.0)
    guided = Autoguided(narrow, wide, 1.0, above=0.5)
    x = torch.ones(4, 1, 4, 4)
    sigma = torch.tensor([0.4, 0.5, 2.0, 3.0])
    moved = (guided.denoise(x, sigma) - narrow.denoise(x, sigma)).abs().amax(dim=(1, 2, 3)) > 1e-6
    assert moved.tolist() == [False, True, True, False]
    between = Autoguided(narrow, wide, 1.0, below=1.0).denoise(x, sigma)
    moved = (between - narrow.denoise(x, sigma)).abs().amax(dim=(1, 2, 3)) > 1e-6
    assert moved.tolist() == [True, True, False, False]
    assert torch.equal(Autoguided(narrow, wide, 0.0).denoise(x, sigma), narrow.denoise(x, sigma))


def test_only_waves_that_are_short_enough_are_guided():
    """Long waves stay those of the prior; short ones are guided as without a limit."""
    narrow, wide = gaussian(1.0, shape=(2, 8, 8)), gaussian(4.0, shape=(2, 8, 8))
    x = torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    own, sharper = (dct(p.denoise(x, 0.7), 2) for p in (narrow, Autoguided(narrow, wide, 1.0)))
    some = Autoguided(narrow, wide, 1.0, finer=0.5)
    fine = dct(some.denoise(x, 0.7), 2)
    steps = torch.arange(8.0)  # half periods across a side
    short = (steps[:, None].square() + steps.square()).sqrt() >= 4  # half a side or shorter
    torch.testing.assert_close(fine[..., short], sharper[..., short])
    torch.testing.assert_close(fine[..., ~short], own[..., ~short])
    assert not torch.allclose(own[..., short], sharper[..., short])
    torch.testing.assert_close(some.moments(x, 0.7)[0], some.denoise(x, 0.7))


def test_the_base_prior_is_judged_and_evaluations_of_both_count():
    prior = gaussian(1.0)
    guided = Autoguided(prior, gaussian(4.0), 0.25)
    assert guided.base_prior is prior.base_prior is prior
    assert Autoguided(guided, gaussian(9.0)).base_prior is prior
    assert guided.evaluations == guided._tile_evaluations == 2
    assert guided.describe()["guide"]["strength"] == 0.25
    twice = Autoguided(guided, gaussian(9.0), 2.0).describe()["guide"]
    assert twice["strength"] == 2.0 and twice["inner"]["strength"] == 0.25
    m = torch.ones(1, 1, 4, 4)
    plain, both = (basis.separate(m, p, method=Gibbs(steps=5)) for p in (prior, guided))
    # Two networks at each of six calls for two sources; typical energies need the prior only.
    assert both.evaluations - plain.evaluations == 2 * 6


def test_autoguide_guides_the_detail_from_04_to_6_std():
    prior, weaker = gaussian(1.0), gaussian(4.0)
    guided = prior.autoguide(weaker)
    known = {"strength": 0.3, "above": 0.4, "below": 6.0, "finer": 0.5}
    assert guided.describe()["guide"] == {"name": weaker.name, **known}
    assert "finer" not in prior.autoguide(weaker, finer=None).describe()["guide"]


@pytest.mark.parametrize(
    ("guide", "settings", "said"),
    [
        (gaussian(4.0, shape=(1, 2, 2)), {}, "shape"),
        (bounded(), {}, "value_range"),
        (gaussian(4.0), {"strength": -1.0}, "strength must be a number of 0 or more"),
        (gaussian(4.0), {"above": float("nan")}, "above must be a number of 0 or more"),
        (
            gaussian(4.0),
            {"above": 2.0, "below": 2.0},
            r"below must be more than above \(2\), not 2",
        ),
        (gaussian(4.0), {"finer": 0.0}, "finer must be"),
        (gaussian(4.0), {"below": float("nan")}, r"below must be more than above \(0\), not nan"),
    ],
)
def test_what_does_not_fit_is_refused(guide, settings, said):
    with pytest.raises(basis.BasisError, match=said):
        Autoguided(gaussian(1.0), guide, **settings)


SIZES = UNetConfig(channels=1, widths=(12, 24), blocks=(1, 1), embedding=16, classes=2)


def denoiser(seed, sizes=SIZES, head=True):
    torch.manual_seed(seed)
    network = UNet(sizes)
    for parameter in network.parameters():  # nothing at zero, which would make all outputs equal
        torch.nn.init.normal_(parameter, std=0.1)
    return Denoiser(network, 0.3, 0.25, VarianceHead(sizes) if head else None)


def network(seed, name="digits", sizes=SIZES, head=True, sigma_min=0.01, **more):
    return DenoiserPrior(denoiser(seed, sizes, head), (1, 8, 8), sigma_min, 5.0, name=name, **more)


def test_each_network_is_used_for_its_own_noise(tmp_path):
    small = network(0, errors={0.1: 0.2, 1.0: 0.1})
    large = network(1, sizes=replace(SIZES, blocks=(1, 2)), sigma_min=0.2, errors={1.0: 0.05})
    x = torch.rand(4, 1, 8, 8)
    mixed = torch.tensor([0.1, 0.5, 1.0, 0.29])
    expected = torch.cat(
        [
            (small if sigma < 0.3 else large).denoise(x[i : i + 1], sigma)
            for i, sigma in enumerate(mixed.tolist())
        ]
    )
    variance = torch.cat(
        [
            (small if sigma < 0.3 else large).moments(x[i : i + 1], sigma)[1]
            for i, sigma in enumerate(mixed.tolist())
        ]
    )
    both = join_by_noise(small, large, 0.3)
    assert both.errors == {0.1: 0.2, 1.0: 0.05}
    conditional = small.condition(1).denoise(x, 0.1), large.condition(1).denoise(x, 1.0)
    with torch.no_grad():
        assert torch.allclose(both.denoise(x, mixed), expected, atol=1e-6)
        assert torch.allclose(both.moments(x, mixed)[1], variance, atol=1e-6)
        for sigma, one in ((0.1, small), (1.0, large)):
            assert torch.equal(both.denoise(x, sigma), one.denoise(x, sigma))
        assert torch.equal(both.condition(1).denoise(x, 0.1), conditional[0])
        assert torch.equal(both.condition(1).denoise(x, 1.0), conditional[1])
        assert describe_module(both.module)["kind"] == "experts"
        both.save(tmp_path / "both")
        again = Prior.from_pretrained(tmp_path / "both")
        assert isinstance(again.module, Experts)
        assert torch.allclose(again.denoise(x, mixed), expected, atol=1e-6)


def test_what_cannot_be_joined_is_refused():
    small = network(0)
    for other, says in (
        (network(1, head=False), "only one has a variance head"),
        (network(1, value_range=(-1.0, 1.0)), "differ in their value_range"),
        (network(1, sizes=replace(SIZES, classes=3)), "differ in their classes"),
        (network(1, sigma_min=0.5), "sigma must be a noise level of both priors, from 0.5"),
        (Prior.from_pretrained("mnist-energy"), "'mnist-energy' is not one"),
        (join_by_noise(network(1), network(2), 1.0), "both priors, from 1 to"),
    ):
        with pytest.raises(BasisError, match=says):
            join_by_noise(small, other, 0.3)


def test_a_joined_prior_gives_its_networks_to_the_next():
    small, both = network(0), join_by_noise(network(0), network(1), 0.3)
    newer, x = network(2, sigma_min=0.2), torch.rand(2, 1, 8, 8)
    replaced, moved = join_by_noise(both, newer, 0.3), join_by_noise(small, both, 0.4)
    assert torch.allclose(replaced.denoise(x, 1.0), newer.denoise(x, 1.0))
    assert torch.allclose(replaced.denoise(x, 0.1), both.denoise(x, 0.1))
    assert torch.allclose(moved.denoise(x, 0.35), small.denoise(x, 0.35))
    assert torch.allclose(moved.denoise(x, 1.0), both.denoise(x, 1.0))
