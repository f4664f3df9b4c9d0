import math

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis import BasisError, GaussianMixture, Plan, Round, separate
from basis.metrics import psnr, summarize
from basis.samplers import Basis, Gibbs
from basis.settings import METHODS

QUICK = Basis(steps=4, levels=4)


@pytest.fixture
def mixed():
    return torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(2)) * 2


@pytest.fixture
def patterns(toy_prior):
    return toy_prior.means.view(4, 1, 4, 4)


def test_result(tiny_prior, mixed):
    plan = Plan((Round(3, QUICK),), trajectory="all", judge=False)
    r = separate(mixed, tiny_prior, method=QUICK, samples=3, seed=4, estimate="sample")
    assert r.sources.shape == (5, 2, 1, 8, 8) and r.samples.shape == (5, 3, 2, 1, 8, 8)
    assert torch.equal(r.sources, r.samples[:, 0])
    assert not torch.equal(r.samples[:, 0], r.samples[:, 1])
    assert r.sources.min() >= 0 and r.sources.max() <= 1
    assert r.evaluations == 3 * 2 * (4 * 4 + 1)  # samples, sources, steps and the last denoising
    assert r.seed == 4 and r.settings["method"]["steps"] == 4 and r.seconds > 0
    assert r.settings["mixing"]["matrix"] == [[1.0, 1.0]]
    expected = (mixed - r.sources.sum(dim=1)).square().mean(dim=(1, 2, 3)).sqrt()
    assert torch.allclose(r.residual, expected, atol=1e-6)
    states = separate(mixed, tiny_prior, method=plan, seed=4).trajectory
    assert len(states) == 4 and all(x.shape == r.samples.shape for x in states.values())


def test_finish_projects_onto_the_observation(tiny_prior, mixed):
    assert (separate(mixed, tiny_prior, method=QUICK).residual < 1 / 255).all()
    plan = Plan((Round(1, QUICK, finish=False),))
    assert (separate(mixed, tiny_prior, method=plan).residual > 1 / 255).all()


@pytest.mark.parametrize("method", [QUICK, 700])
def test_an_item_has_the_same_result_in_any_batch(tiny_prior, mixed, method):
    arguments = {"method": method, "samples": 2, "seed": 1}
    whole = separate(mixed, tiny_prior, **arguments)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = separate(mixed[order], tiny_prior, batch_size=16, **arguments)
    alone = separate(mixed[2:3], tiny_prior, **arguments)
    for name in ("sources", "samples"):
        expected = getattr(whole, name)
        assert torch.allclose(getattr(shuffled, name), expected[order], atol=1e-3)
        assert torch.allclose(getattr(alone, name), expected[2:3], atol=1e-3)
    assert torch.equal(shuffled.item_evaluations, whole.item_evaluations[order])
    other = separate(mixed, tiny_prior, method=method, seed=2)
    assert not torch.equal(other.sources, whole.sources)


def test_repeated_items_are_sampled_independently(tiny_prior, mixed):
    r = separate(mixed[:1].expand(2, -1, -1, -1), tiny_prior, method=QUICK)
    assert not torch.allclose(r.sources[0], r.sources[1], atol=0.05)


@pytest.mark.parametrize("k", [1, 3, 4])
def test_any_number_of_sources(tiny_prior, mixed, k):
    r = separate(mixed / 2 * k, tiny_prior, sources=k, method=QUICK)
    assert r.sources.shape == (5, k, 1, 8, 8)
    assert (r.residual < 1 / 255).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_follows_the_observation(tiny_prior, mixed, dtype):
    assert separate(mixed.to(dtype), tiny_prior, method=QUICK).sources.dtype == dtype


def test_toy_problem_is_solved(toy_prior, patterns):
    """Most samples, and their mean, find any two of four patterns."""
    truth = torch.stack([patterns[[1, 2]], patterns[[3, 0]], patterns[[2, 3]]])
    m = truth[:, 0] + 0.8 * truth[:, 1]
    r = separate(m, toy_prior, (1.0, 0.8), samples=8)
    each = torch.stack([psnr(s, truth, permute=True) for s in r.samples.unbind(1)])
    assert ((each > 25).double().mean(dim=0) > 0.5).all()
    r = separate(truth.sum(dim=1), toy_prior, samples=8)
    assert summarize(psnr(r.mean, truth, permute=True)).mean > 15


def test_samples_have_exchangeable_sources_in_one_order(toy_prior, patterns):
    m = patterns[[1, 2]].sum(dim=0)[None]
    equal = separate(m, toy_prior, method="gibbs", samples=6)
    assert equal.exchangeable.all()
    chosen = equal.sources[:, None]
    near = (equal.samples - chosen).flatten(2).square().mean(dim=2)
    assert (near <= (equal.samples.flip(2) - chosen).flatten(2).square().mean(dim=2)).all()
    assert torch.equal(equal.mean, equal.samples.mean(dim=1))
    unequal = separate(m, toy_prior, (1.0, 0.9), method=Gibbs(steps=10))
    assert torch.equal(unequal.exchangeable, torch.eye(2, dtype=torch.bool))


def test_one_prior_per_source():
    """Each source follows its own prior, so the order is known."""
    dark = GaussianMixture(torch.full((1, 1, 4, 4), 0.1).double(), torch.tensor([1e-3]))
    bright = GaussianMixture(torch.full((1, 1, 4, 4), 0.8).double(), torch.tensor([1e-3]))
    dark.name, bright.name = "dark", "bright"
    m = torch.full((2, 1, 4, 4), 0.9, dtype=torch.float64)
    r = separate(m, [dark, bright])
    assert (r["dark"] < 0.3).all() and (r["bright"] > 0.6).all()
    assert torch.equal(r["dark"], r.sources[:, 0])
    with pytest.raises(BasisError, match="dark, bright"):
        r["voice"]
    three = separate(m + 0.1, [dark, bright, dark])
    assert three.names == ("dark-1", "bright", "dark-2")
    assert (three.sources.mean(dim=(0, 2, 3, 4)) - torch.tensor([0.1, 0.8, 0.1])).abs().max() < 0.1


def test_a_noisy_observation_is_not_matched_exactly(toy_prior, patterns):
    truth = patterns[[1, 2]][None]
    g = torch.Generator().manual_seed(0)
    m = truth.sum(dim=1) + 0.1 * torch.randn(1, 1, 4, 4, generator=g, dtype=torch.float64)
    r = separate(m, toy_prior, noise=0.1)
    assert 0.03 < r.residual.item() < 0.2
    assert psnr(r.sources, truth, permute=True).item() > 20


def test_a_mask_is_resized_like_the_observation(toy_prior, tmp_path):
    pixels = np.full((8, 12), 255, np.uint8)
    pixels[3, 4] = 0  # unknown, and part of four pixels of the resized observation
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    photo = basis.read(torch.rand(1, 8, 12), size=4)
    assert photo.original_size == (8, 12)
    found = separate(photo, toy_prior, (1,), mask=tmp_path / "mask.png", method=20)
    expected = torch.ones(1, 4, 4)
    expected[0, 1:3, 0:2] = 0
    assert torch.equal(found.mixing.mask, expected.double())
    same = separate(photo, toy_prior, (1,), mask=pixels / 255, method=20)
    assert torch.equal(same.sources, found.sources)
    with pytest.raises(BasisError, match="mask"):
        separate(photo, toy_prior, (1,), mask=torch.ones(5, 5), method=20)


def test_a_mask_of_a_picture_in_tiles(toy_prior):
    mask = torch.ones(6, 7)
    mask[2:4] = 0
    m = torch.rand(1, 1, 6, 7)
    found = separate(m, toy_prior, (1,), mask=mask, method=20)
    assert torch.allclose(found.sources[0] * mask, m * mask, atol=1e-4)


def test_masked_values_do_not_matter(toy_prior, patterns):
    m = patterns[[1, 2]].sum(dim=0)[None]
    mask = torch.ones(1, 4, 4)
    mask[:, 0, 0] = 0
    changed = m.clone()
    changed[..., 0, 0] += 0.7
    found = [separate(x, toy_prior, mask=mask, method=40).residual for x in (m, changed)]
    assert all(residual < 1 / 255 for residual in found)


def test_grey_mixing_keeps_the_grey():
    color = torch.tensor([0.7, 0.4, 0.1]).view(1, 3, 1, 1).expand(1, 3, 2, 2).double()
    prior = GaussianMixture(color, torch.tensor([0.02]))
    m = torch.full((1, 1, 2, 2), 0.4, dtype=torch.float64)
    r = separate(m, prior, mixing=basis.grey())
    assert r.sources.shape == (1, 1, 3, 2, 2) and (r.residual < 1 / 255).all()
    assert r.sources[0, 0, 0].mean() > r.sources[0, 0, 2].mean()


def test_rows_of_alphas_are_several_observations_of_the_same_sources(toy_prior, patterns):
    truth = patterns[[1, 2]][None]
    rows = [(1.0, 0.5), (0.3, 1.0)]
    m = basis.mixtures(rows)(truth)
    stacked = separate(m, toy_prior, rows, method=40)
    assert (stacked.sources - truth).abs().max() < 0.1
    listed = separate(list(m.split(1, dim=1)), toy_prior, rows, method=40)
    assert torch.equal(listed.sources, stacked.sources)
    with pytest.raises(BasisError, match="3 observations for 2 rows"):
        separate(torch.rand(3, 1, 4, 4), toy_prior, rows)


def test_larger_pictures_are_tiled(tiny_prior):
    r = separate(torch.rand(1, 1, 8, 12), tiny_prior, method=QUICK)
    assert r.sources.shape == (1, 2, 1, 8, 12) and r.residual.item() < 1 / 255
    with pytest.raises(BasisError, match="size=8"):
        separate(torch.rand(1, 1, 6, 12), tiny_prior)


def test_progress_counts_every_step(tiny_prior, mixed, capsys):
    seen = []
    separate(mixed, tiny_prior, batch_size=2, method=QUICK, progress=seen.append)
    assert [p.done for p in seen] == list(range(1, 3 * 16 + 1))
    assert {p.total for p in seen} == {48}
    separate(mixed, tiny_prior, method=QUICK)
    assert capsys.readouterr().err == ""  # no bar unless on a terminal


def test_the_nearest_levels_are_kept(tiny_prior, mixed):
    plan = Plan((Round(1, Basis(levels=3, steps=2)),), trajectory=[0.9, 0.2])
    assert sorted(separate(mixed, tiny_prior, method=plan).trajectory) == pytest.approx([0.1, 1.0])


def test_a_mixture_file_is_separated_and_scored(toy_prior, patterns, tmp_path):
    basis.mix(patterns[None, [1, 2]], (1.0, 0.8)).save(tmp_path / "two.npz")
    r = separate(str(tmp_path / "two.npz"), toy_prior, method="fast")
    assert r.alphas.tolist() == [[1.0, pytest.approx(0.8)]] and r.truth is not None
    assert "SNR" in str(r) and r.item_names == ("two",)
    other = separate(tmp_path / "two.npz", toy_prior, (0.5, 0.5), method=40)
    assert "alphas 1 0.8, but 0.5 0.5 was given" in other.warnings[0]


def test_names_of_methods(tiny_prior, mixed):
    assert METHODS["fast"] * 2 <= 200 and METHODS["best"] * 2 <= 2000
    assert separate(mixed[:1], tiny_prior, method=30).evaluations <= 30
    named = separate(mixed[:1], tiny_prior, method="gibbs", seed=3)
    assert torch.equal(
        named.sources, separate(mixed[:1], tiny_prior, method=Gibbs(), seed=3).sources
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"observation": torch.rand(8, 9, 3, 2)}, "(9, 3, 2)"),
        ({"observation": torch.rand(1, 3, 8, 8)}, "grey=True"),
        ({"observation": torch.rand(0, 1, 8, 8)}, "empty"),
        ({"observation": torch.full((1, 1, 8, 8), math.nan)}, "NaN"),
        ({"observation": torch.zeros(1, 1, 8, 8, dtype=torch.int64)}, "int64"),
        ({"observation": torch.full((1, 1, 8, 8), 255.0)}, "255"),
        ({"method": "gibs"}, "gibs"),
        ({"method": 3.5}, "3.5"),
        ({"method": 3}, "at least 8"),
        ({"samples": 0}, "samples"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"alphas": (1.0, 1.0), "mixing": basis.mixture()}, "not both"),
        ({"alphas": (1.0, 1.0), "sources": 3}, "2 alphas for 3 sources"),
        ({"alphas": "unkown"}, "unkown"),
        ({"sources": "two"}, "two"),
        ({"mixing": "grey"}, "grey"),
        ({"mixing": basis.grey()}, "3"),
        ({"noise": -1.0}, "-1"),
        ({"noise": "high"}, "high"),
        ({"prior": []}, "[]"),
        ({"prior": 7}, "7"),
        ({"estimate": "best"}, "best"),
        ({"seed": -1}, "-1"),
        ({"seed": 1.5}, "1.5"),
    ],
)
def test_bad_arguments_are_named(tiny_prior, change, named):
    arguments = {"observation": torch.rand(1, 1, 8, 8), "prior": tiny_prior, **change}
    with pytest.raises(BasisError) as caught:
        separate(**arguments)
    assert named in str(caught.value) and "\n" not in str(caught.value)


def test_the_number_of_priors_must_fit(tiny_prior, mixed):
    with pytest.raises(BasisError, match="2 priors for 3 sources"):
        separate(mixed, [tiny_prior, tiny_prior], (1.0, 1.0, 1.0))


def test_result_is_saved_shown_and_printed(tiny_prior, mixed, tmp_path):
    r = separate(mixed[:2], tiny_prior, method=QUICK, samples=3)
    text = str(r)
    assert text.splitlines()[0].startswith("2 observations, 2 sources (tiny-1, tiny-2)")
    assert "plausibility unknown" in text and "Result(sources 2x2x1x8x8" in repr(r)
    out = r.save(tmp_path / "out", command="a test")
    names = {p.name for p in out.iterdir()}
    assert {"01-source1.png", "02-sample03-source2.png", "panel.png", "samples.png"} <= names
    with np.load(out / "sources.npz") as arrays:
        assert np.array_equal(arrays["sources"], r.sources.numpy())
        assert arrays["samples"].shape == (2, 3, 2, 1, 8, 8)
    record = basis.files.read_json(out / "run.json", "a record")
    assert record["command"] == "a test" and len(record["items"]) == 2
    assert sum(mode["weight"] for mode in record["items"][0]["modes"]) == pytest.approx(1)
    separate(mixed[:1], tiny_prior, method=QUICK).save(tmp_path / "out")
    assert not (out / "02-source1.png").exists() and not (out / "samples.png").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(BasisError, match="file"):
        r.save(tmp_path / "file")
    assert r._repr_png_().startswith(b"\x89PNG")


def test_what_went_wrong_is_named(toy_prior, patterns, tiny_prior):
    wide = GaussianMixture(torch.zeros(1, 1, 4, 4), torch.tensor([1.0]))
    m = 100 * torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert "std" in separate(m, wide, method=40).warnings[0]
    assert not separate(m / 100, wide, method=40).warnings[0]
    mask = np.full((1, 8, 8), 255, np.uint8)
    one = torch.rand(1, 1, 8, 8)
    assert "alphas (1,)" in separate(one, tiny_prior, mask=mask, method=QUICK).warnings[0]
    assert "alphas" not in separate(one, tiny_prior, (1.0,), mask=mask, method=QUICK).warnings[0]
    two = separate(one, tiny_prior, np.array([1.0, 0.5]), mask=mask, method=QUICK)
    assert two.sources.shape[1] == 2
    # A flat picture of a prior whose other picture holds everything.
    empty = separate(patterns[[0, 1]].sum(dim=0)[None], toy_prior, method="fast")
    assert "uniform" in empty.warnings[0]
    assert "uniform" not in separate(patterns[[2, 3]].sum(0)[None], toy_prior).warnings[0]


def test_the_trivial_baseline_is_printed(toy_prior, patterns):
    mixed = basis.mix(patterns[None, [1, 2]].float())
    assert "trivial baseline" in str(separate(mixed, toy_prior, method=40))
