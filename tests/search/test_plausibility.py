import json
from dataclasses import replace

import pytest
import torch

from basis._check import measure_energies
from basis._separate import separate
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.priors.card import LIKELY, Energies, quantiles
from basis.priors.gaussian import GaussianMixture
from basis.priors.tiled import Tiled
from basis.samplers.problem import Noise, Problem
from basis.search.plan import plan_for
from basis.search.plausibility import LEVELS, energy, judge, looks_clipped
from basis.store.folder import read_card, write_prior
from basis.store.loading import load_prior


@pytest.fixture
def shapes():
    """A prior of four pictures that are nearly black or white, drawn exactly."""
    g = torch.Generator().manual_seed(0)
    pictures = torch.rand(4, 1, 4, 4, generator=g).round() * 0.8 + 0.1
    return GaussianMixture(pictures, torch.full((4,), 0.002), value_range=(0.0, 1.0))


def drawn(prior, count):
    return prior.exact_samples(count, torch.Generator().manual_seed(5))


def test_wrong_mixtures_have_a_low_plausibility(shapes):
    # Two of one picture have any weights; these are of different ones.
    pictures = shapes.means.view(4, 1, 4, 4)[torch.arange(32) % 4]
    sources = pictures + 0.04 * torch.randn(32, 1, 4, 4, generator=torch.Generator().manual_seed(5))
    sources = sources.view(16, 2, 1, 4, 4)
    right = separate(sources.sum(dim=1), shapes, method="fast")
    assert right.plausibility.shape == (16,) and not hasattr(right, "plausible")
    assert ((right.plausibility >= 0) & (right.plausibility <= 1)).all()
    likely = right.plausibility >= LIKELY
    assert likely.float().mean() >= 0.9
    assert all(bool(line) != ok for line, ok in zip(right.warnings, likely, strict=True))
    text = str(right).lower()
    assert "plausibility 0." in text and "not whether the split is right" in text
    assert "plausible" not in text
    wrong = {
        "weights": (0.7 * sources[:, 0] + 0.3 * sources[:, 1], (0.5, 0.5)),
        "inverted": (2 - sources.sum(dim=1), (1.0, 1.0)),
        "noise": (2 * torch.rand(16, 1, 4, 4), (1.0, 1.0)),
        "range": (2 * sources.sum(dim=1) - 2, (1.0, 1.0)),
    }
    for name, (m, alphas) in wrong.items():
        r = separate(m, shapes, alphas=alphas, method="fast")
        assert (r.plausibility >= LIKELY).float().mean() <= 0.2, name
        told = [line for line in r.warnings if line]
        assert all("check" in line and "\n" not in line for line in told)
        assert "warning: 01: unlikely sources (plausibility" in str(r)


def test_the_warning_says_what_to_check_first(shapes):
    m = drawn(shapes, 2) - 1.5  # no sources in [0, 1] make values below 0
    r = separate(m, shapes, method="fast")
    assert (r.plausibility < LIKELY).all() and "value range" in r.warnings[0]
    r = separate(2 - drawn(shapes, 4).view(2, 2, 1, 4, 4).sum(dim=1), shapes, method="fast")
    assert (r.plausibility < LIKELY).all() and "alphas" in r.warnings[0]
    assert "clipped" in r.warnings[0]
    cut = mixture().clipped(high=2.5)
    r = separate(2 * torch.rand(2, 1, 4, 4), shapes, mixing=cut, method="fast")
    assert (r.plausibility < LIKELY).all() and "clipped" not in r.warnings[
        0
    ]  # which the mixing has said


def test_clipped_sums_are_seen():
    prior = GaussianMixture(torch.full((1, 1, 8, 8), 0.5), torch.tensor([0.05]), value_range=(0, 1))
    g = torch.Generator().manual_seed(1)
    sums = torch.rand(3, 2, 1, 8, 8, generator=g).sum(dim=1)
    clipped = sums.clamp(max=1.0)

    def found(m, mixing):
        return looks_clipped(Problem([prior] * 2, mixing, m, Noise([0] * len(m)))).tolist()

    assert found(torch.cat([sums, clipped]), mixture()) == [False] * 3 + [True] * 3
    # At the end of what the weights reach nothing was cut off; noise is never equal.
    assert found(clipped, mixture((0.5, 0.5))) == [False] * 3
    assert found(clipped, mixture().replace(noise=0.1)) == [False] * 3


def test_shares_of_a_known_distribution():
    """Energies of 0 to 100 in equal steps: the share is the part that is as far out."""
    flat = quantiles([float(i) for i in range(101)])
    both = Energies(LEVELS, 16, flat, flat)
    assert both.share(50) == pytest.approx(1.0)
    assert both.share(97.5) == pytest.approx(0.05) == pytest.approx(both.share(2.5))
    assert 0 < both.share(150) < both.share(101) < both.share(99) < 0.03
    assert 0 < both.share(-50) < both.share(-1) < 0.03
    # Without separated sources only large energies count.
    images = Energies(LEVELS, 16, flat)
    assert images.share(-50) == 1 and images.share(75) == pytest.approx(0.25)
    shares = [images.share(e) for e in range(-10, 200, 3)]
    assert shares == sorted(shares, reverse=True)


def test_plausibility_of_right_sources_is_spread_evenly():
    """Under the right hypothesis a share below p comes with probability p, for any k."""
    prior = GaussianMixture(torch.zeros(1, 1, 3, 3), torch.tensor([1.0]))
    for k in (1, 3):
        x = drawn(prior, 3000).view(-1, k, 1, 3, 3)
        problem = Problem([prior] * k, mixture((1.0,) * k), x.sum(dim=1), Noise([0] * len(x)))
        p = judge(problem, x).values
        for level in (0.05, 0.3, 0.7):
            assert (p < level).float().mean().item() == pytest.approx(level, abs=0.06)
        assert problem.evaluations.max() == k * len(LEVELS)


def test_its_cost_is_within_the_method(shapes):
    m = drawn(shapes, 2)
    r = separate(m, shapes, method="fast")
    assert r.item_evaluations.max() <= 200 and r.settings["method"]["name"] == "search"
    quiet = separate(m, shapes, method=replace(plan_for("fast"), judge=False))
    assert (quiet.item_evaluations == r.item_evaluations - 2 * len(LEVELS)).all()
    assert quiet.plausibility is None and not any(quiet.warnings)
    tiny = separate(m, shapes, method=8)  # nothing is left for it
    assert tiny.item_evaluations.max() <= 8 and tiny.plausibility is None


def test_the_verdict_does_not_depend_on_the_batch(shapes):
    m = drawn(shapes, 6).view(3, 2, 1, 4, 4).sum(dim=1)
    whole = separate(m, shapes, method="fast").plausibility
    assert torch.allclose(separate(m[1:2], shapes, method="fast").plausibility, whole[1:2])


def test_a_prior_without_energies_says_so_until_measured(tiny_prior):
    m = torch.rand(2, 1, 8, 8)
    assert separate(m, tiny_prior, method=20).plausibility is None
    images = torch.rand(16, 1, 8, 8)
    found = measure_energies(tiny_prior, images, pairs=6, method=20)
    assert tiny_prior.energies is found and found.about["pairs"] == 6
    expected = sorted(energy(tiny_prior, images).tolist())
    assert found.images[0] == pytest.approx(expected[0], rel=1e-5)
    assert found.images[-1] == pytest.approx(expected[-1], rel=1e-5)
    assert separate(m, tiny_prior, method=20).plausibility.shape == (2,)
    own = measure_energies(tiny_prior, samples=8, pairs=0)
    assert own.about["origin"] == "its own samples" and own.separated == ()
    with pytest.raises(BasisError, match="8 signals of shape"):
        measure_energies(tiny_prior, images[:3])


def test_tiles_are_judged_by_their_mean(shapes):
    tiled = Tiled(shapes, 8, 8, overlap=0)
    x = drawn(shapes, 4)
    whole = torch.cat([torch.cat([x[0], x[1]], -1), torch.cat([x[2], x[3]], -1)], -2)[None, None]
    separate(x[:1], shapes, method="fast")  # measures the prior
    assert Tiled(shapes, 8, 8).energies is shapes.energies
    problem = Problem([tiled], mixture((1.0,)), whole[:, 0], Noise([0]))
    tiled.energies = shapes.energies
    assert judge(problem, whole).values.item() > LIKELY
    assert judge(problem, torch.rand(1, 1, 1, 8, 8)).values.item() < LIKELY


def test_cards_keep_energies(tiny_prior, tmp_path):
    measure_energies(tiny_prior, torch.rand(16, 1, 8, 8), pairs=0)
    write_prior(tiny_prior, tmp_path)
    again = load_prior(tmp_path).energies
    assert again.images == pytest.approx(tiny_prior.energies.images, rel=1e-4)
    assert read_card(tmp_path).name == tiny_prior.name
    card = json.loads((tmp_path / "card.json").read_text())
    card["energies"]["images"] = [3.0, 1.0]
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(BasisError, match="ascending order"):
        load_prior(tmp_path)
