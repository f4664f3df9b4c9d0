"""Results that are computed once, and computed again when anything they depend on changed."""

import pytest
import torch

from basis.lab import cache as cache_module
from basis.lab.baselines import NMF
from basis.lab.cache import CachedResult, ResultCache, fingerprint
from basis.lab.context import Context
from basis.priors.denoiser import DenoiserPrior
from basis.samplers import Gibbs


def test_a_result_is_computed_once(tmp_path):
    made = []

    def compute():
        made.append(1)
        return CachedResult({"x": torch.arange(3)}, {"n": len(made)})

    first = ResultCache(tmp_path).get("a", {"seed": 0}, compute)
    again = ResultCache(tmp_path).get("a", {"seed": 0}, compute)
    assert len(made) == 1 and again.values == {"n": 1}
    assert torch.equal(first.tensors["x"], again.tensors["x"])
    assert again.seconds == pytest.approx(first.seconds)
    ResultCache(tmp_path).get("a", {"seed": 1}, compute)
    assert len(made) == 2


def test_fresh_results_ignore_earlier_files(tmp_path):
    make = lambda n: lambda: CachedResult(values={"n": n})  # noqa: E731
    ResultCache(tmp_path).get("a", {}, make(1))
    fresh = ResultCache(tmp_path, fresh=True)
    assert fresh.get("a", {}, make(2)).values == {"n": 2}
    assert fresh.get("a", {}, make(3)).values == {"n": 2}


def test_another_version_computes_again(tmp_path, monkeypatch):
    ResultCache(tmp_path).get("a", {}, lambda: CachedResult(values={"n": 1}))
    monkeypatch.setattr(cache_module, "__version__", "99")
    again = ResultCache(tmp_path).get("a", {}, lambda: CachedResult(values={"n": 2}))
    assert again.values == {"n": 2}


@pytest.mark.parametrize("damage", ["cut", "bits"])
def test_a_damaged_result_is_computed_again(tmp_path, damage):
    cache = ResultCache(tmp_path)
    cache.get("a", {}, lambda: CachedResult({"x": torch.arange(3)}, {"n": 1}))
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "bits":
        data[-1] ^= 1  # in the tensor: the file can be read, and is wrong
    path.write_bytes(data[:40] if damage == "cut" else data)
    again = cache.get("a", {}, lambda: CachedResult({"x": torch.arange(3)}, {"n": 2}))
    assert again.values == {"n": 2}
    assert cache.get("a", {}, lambda: pytest.fail("it was written")).values == {"n": 2}


def test_fingerprints_depend_on_what_changes_a_result(tiny_prior):
    assert fingerprint(Gibbs()) == fingerprint(Gibbs()) != fingerprint(Gibbs(steps=97))
    x = torch.rand(3, 4)
    assert fingerprint(x) == fingerprint(x.clone()) != fingerprint(x.view(4, 3))
    assert fingerprint(NMF(parts=3)) != fingerprint(NMF(parts=4))
    before = fingerprint(tiny_prior)
    assert before == fingerprint(tiny_prior.eval()) == fingerprint(tiny_prior.train())
    tiny_prior.sigma_max = 5.0
    assert fingerprint(tiny_prior) != before
    tiny_prior.sigma_max = 10.0
    with torch.no_grad():
        next(tiny_prior.module.parameters()).flatten()[0] += 1e-3
    assert fingerprint(tiny_prior) != before


def test_separations_depend_on_settings_seed_and_weights(tmp_path, tiny_prior):
    # The same network for images of 28x28 pixels.
    prior = DenoiserPrior(tiny_prior.module, (1, 28, 28), 0.005, 10.0, value_range=(0, 1))

    def computed(*, seed=0, **settings):
        before = set(tmp_path.glob("*"))
        ctx = Context(ResultCache(tmp_path), seed=seed, data="sample")
        ctx.separate_pairs(prior, 2, **settings)
        return len(set(tmp_path.glob("*")) - before)

    usual = {"method": Gibbs(steps=2)}
    assert [computed(**usual), computed(**usual)] == [1, 0]
    assert computed(**usual, seed=1) == 1
    assert computed(method=Gibbs(steps=3)) == 1
    assert computed(method=20) == 1
    assert computed(method=20, estimate="mean") == 1
    with torch.no_grad():
        next(prior.module.parameters()).mul_(1.01)
    assert computed(**usual) == 1
