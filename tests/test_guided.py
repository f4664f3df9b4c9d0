"""Autoguided priors: what is sharpened, where, at what cost, and what is refused."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis.cli import main
from basis.plots.panels import pictures_panel
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.guidance import Autoguided
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
    led = basis.sample(Autoguided(gaussian(1.0), gaussian(2.0), 1.0, above=0.0), 400, steps=20)
    assert plain.std().item() == pytest.approx(1.0, abs=0.04)
    assert led.std() < 0.9 * plain.std()


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
    """Slow waves stay the prior's own, short ones are led as all are without a limit."""
    narrow, wide = gaussian(1.0, shape=(2, 8, 8)), gaussian(4.0, shape=(2, 8, 8))
    x = torch.randn(3, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    own, led = (dct(p.denoise(x, 0.7), 2) for p in (narrow, Autoguided(narrow, wide, 1.0)))
    some = Autoguided(narrow, wide, 1.0, finer=0.5)
    fine = dct(some.denoise(x, 0.7), 2)
    steps = torch.arange(8.0)  # half periods across a side
    short = (steps[:, None].square() + steps.square()).sqrt() >= 4  # half a side or shorter
    torch.testing.assert_close(fine[..., short], led[..., short])
    torch.testing.assert_close(fine[..., ~short], own[..., ~short])
    assert not torch.allclose(own[..., short], led[..., short])
    torch.testing.assert_close(some.moments(x, 0.7)[0], some.denoise(x, 0.7))


def test_what_is_led_is_judged_by_the_prior_itself():
    """Typical energies are of the prior; a led one would find its own answers less likely."""
    prior = gaussian(1.0)
    m = torch.ones(2, 1, 4, 4)
    led = Autoguided(Autoguided(prior, gaussian(9.0), 2.0), gaussian(4.0), 1.0)
    assert led.base_prior is prior and prior.base_prior is prior
    result = basis.separate(m, led, alphas=(1.0, 1.0), sampler="gibbs", steps=5, seed=0)
    at = [level * prior.std for level in (1 / 3, 2 / 3, 4 / 3)]
    generator, expected = torch.Generator().manual_seed(0), torch.zeros(2, 2)
    weights = torch.tensor([math.log(2)] * 3)
    for sigma, weight in zip(at, weights, strict=True):
        noise = torch.randn(prior.shape, generator=generator)
        x = result.sources.flatten(0, 1)
        error = (prior.denoise(x + sigma * noise, sigma) - x).square().flatten(1).sum(dim=1)
        expected += weight * error.view(2, 2) / sigma**2
    torch.testing.assert_close(result.source_energies.float(), expected)
    # 6 calls of three networks for each source, then 3 of the prior alone.
    assert result.evaluations == 2 * (3 * 6 + 3)


def test_it_counts_both_networks_and_says_who_guides():
    guided = Autoguided(gaussian(1.0), gaussian(4.0), 0.25)
    assert guided.cost == guided._tile_cost == 2
    assert guided.describe()["guide"]["strength"] == 0.25
    m = torch.ones(1, 1, 4, 4)
    result = basis.separate(m, guided, alphas=(1.0, 1.0), sampler="gibbs", steps=5, seed=0)
    # Networks, sources, steps and the last denoising; then three levels of the prior alone.
    assert result.evaluations == 2 * 2 * (5 + 1) + 2 * 3


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


def test_a_picture_of_every_class_names_them(tmp_path):
    out = tmp_path / "out"
    words = ["--each-class", "--count", "13", "--steps", "1", "--out", str(out)]
    assert main(["sample", "mnist-classes", *words]) == 0
    drawn = torch.from_numpy(np.load(out / "samples.npy")).float() / 255
    assert len(drawn) == 13
    named = pictures_panel(drawn[None, :10], [str(digit) for digit in range(10)], cell=64)
    with Image.open(out / "samples.png") as picture:
        assert np.array_equal(np.asarray(picture), np.asarray(named))


def test_the_command_draws_with_guidance(tmp_path, capsys):
    def draw(name, *words):
        out = str(tmp_path / "out")
        return main(["sample", name, "--count", "4", "--steps", "3", *words, "--out", out])

    record = tmp_path / "out/run.json"
    assert draw("mnist-classes", "--each-class", "--guidance", "2") == 0
    guide = json.loads(record.read_text())["prior"]["guide"]
    assert guide == {"name": "mnist-classes", "strength": 2.0, "above": 0.0, "below": 8.0}
    assert draw("mnist-classes:3,8", "--guidance", "1") == 0
    assert json.loads(record.read_text())["prior"]["name"] == "mnist-classes:3,8"
    words = ("--each-class", "--guidance", "2", "--away", "mnist", "--away-strength", "0.5")
    assert draw("mnist-classes", *words) == 0
    led = json.loads(record.read_text())["prior"]["guide"]
    levels = {"above": 0.4, "below": 6.0}
    assert led == {"name": "mnist", "strength": 0.5, **levels, "inner": guide}
    drawn = np.load(tmp_path / "out/samples.npy")
    told, untold = basis.load_prior("mnist-classes"), basis.load_prior("mnist")
    both = Autoguided(Autoguided(told, told, 2.0, below=8.0), untold, 0.5, **levels)
    expected = basis.sample(both, 4, steps=3, each_class=True).mul(255).round().byte()
    assert np.array_equal(drawn, expected.numpy())
    capsys.readouterr()
    assert draw("mnist-classes", "--guidance", "1") == 2
    assert "give mnist-classes:CLASS, or --each-class" in capsys.readouterr().err
    for words, says in (
        (("mnist-classes:3", "--each-class"), "is told its class: leave out :3, or --each-class"),
        (("mnist", "--guidance", "1"), "mnist-classes and cifar10 are"),
        (("mnist-classes:3", "--guidance", "-1"), "--guidance must be 0 or more, not -1"),
        (("mnist", "--away", "mnist", "--away-strength", "-1"), "--away-strength must be 0 or"),
        (("mnist", "--away", "cifar10-small"), "a guide must have the prior's shape"),
    ):
        assert draw(*words) == 2
        assert says in capsys.readouterr().err


def test_sources_are_led_in_their_detail_alone(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--prior", "mnist-classes", "--away", "mnist", "--effort", "80", "--choose", "draw"]
    assert main(["separate", "sample", "--count", "1", *words, "--out", str(out)]) == 0
    record = json.loads((out / "run.json").read_text())
    levels = {"strength": 0.3, "above": 0.4, "below": 6.0, "finer": 0.5}
    prior, _ = record["settings"]["priors"]
    assert prior["guide"] == {"name": "mnist", **levels}
    # 20 calls of both networks for two sources, of which a verdict takes three, of one network.
    assert record["evaluations_per_mixture"] == 2 * (2 * 17 + 3)
    capsys.readouterr()
    many = ["--count", "40", "--job", "--out", str(tmp_path / "job")]
    assert main(["separate", "sample", *words, *many]) == 2
    assert "--away goes with fewer mixtures" in capsys.readouterr().err
