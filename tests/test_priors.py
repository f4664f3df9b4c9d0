import json
import math

import pytest
import torch

import basis
from basis.nn.kinds import KINDS, describe_module, find_kind
from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.card import Card
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.store.folder import read_card, save_prior
from basis.store.loading import list_priors, load_prior


@pytest.fixture
def mixture_prior():
    g = torch.Generator().manual_seed(0)
    root = torch.randn(3, 8, 8, generator=g, dtype=torch.float64) * 0.3
    means = torch.rand(3, 2, 2, 2, generator=g, dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 3.0])
    return GaussianMixture(means, root @ root.mT, weights)


@pytest.mark.parametrize("sigma", [0.05, 0.4, 3.0])
def test_gaussian_mixture_score_is_the_gradient_of_its_density(mixture_prior, sigma):
    x = torch.rand(5, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(mixture_prior.log_prob(x, sigma).sum(), x)
    assert torch.allclose(mixture_prior.score(x, sigma), gradient, atol=1e-8)


def test_gaussian_mixture_density_matches_torch_distributions(mixture_prior):
    from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

    p, sigma = mixture_prior, 0.3
    noisy = p.covariances + sigma**2 * torch.eye(8, dtype=torch.float64)
    oracle = MixtureSameFamily(Categorical(p.weights), MultivariateNormal(p.means, noisy))
    x = torch.rand(6, 2, 2, 2, dtype=torch.float64)
    assert torch.allclose(p.log_prob(x, sigma), oracle.log_prob(x.flatten(1)))


def test_gaussian_mixture_takes_a_sigma_per_item(mixture_prior):
    x = torch.rand(3, 2, 2, 2, dtype=torch.float64)
    sigmas = torch.tensor([0.1, 1.0, 5.0])
    together = mixture_prior.denoise(x, sigmas)
    alone = [mixture_prior.denoise(x[i : i + 1], s.item()) for i, s in enumerate(sigmas)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-6)


def test_gaussian_mixture_samples_have_its_moments(mixture_prior):
    g = torch.Generator().manual_seed(1)
    drawn = mixture_prior.exact_samples(20_000, g).flatten(1)
    mean = mixture_prior.weights @ mixture_prior.means
    error = drawn.std(dim=0) / 20_000**0.5
    assert ((drawn.mean(dim=0) - mean).abs() < 5 * error).all()


def test_untrained_denoiser_is_the_best_linear_one():
    """With a network that outputs zero, EDM's skip is the linear denoiser of data with that mean
    and deviation.
    """
    prior = DenoiserPrior(Denoiser(UNet(UNetConfig()), 0.13, 0.31), (1, 28, 28), 0.005, 10.0)
    oracle = GaussianMixture(torch.full((1, 1, 28, 28), 0.13), torch.tensor([0.31**2]))
    x = torch.rand(2, 1, 28, 28)
    for sigma in (0.01, 0.3, 5.0):
        assert torch.allclose(prior.denoise(x, sigma), oracle.denoise(x, sigma), atol=1e-5)
        assert torch.allclose(
            prior.score(x, sigma), (oracle.denoise(x, sigma) - x) / sigma**2, atol=0.1
        )


def test_chunks_do_not_change_the_answer(tiny_prior):
    x = torch.rand(7, 1, 8, 8)
    whole = tiny_prior.denoise(x, 0.3)
    tiny_prior.chunk = 3
    assert torch.allclose(tiny_prior.denoise(x, 0.3), whole, atol=1e-6)


def test_score_prior_has_no_likelihood_and_says_so(tiny_prior, mixture_prior):
    assert mixture_prior.has_likelihood and not tiny_prior.has_likelihood
    with pytest.raises(basis.BasisError, match="no likelihood"):
        tiny_prior.log_prob(torch.rand(1, 1, 8, 8), 0.1)


def _store(folder, module, shape):
    card = {
        "name": "kept",
        "architecture": describe_module(module),
        "shape": shape,
        "sigma_min": 0.01,
        "sigma_max": 1.0,
    }
    return save_prior(folder, dict(module.named_parameters()), card, dtype=torch.float32)


@pytest.mark.parametrize("kind", ["unet", "ncsn"])
def test_saved_prior_loads_and_answers_the_same(tmp_path, kind):
    torch.manual_seed(1)
    if kind == "unet":
        module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.2, 0.4)
        torch.nn.init.normal_(module.network.leave.weight)
    else:
        module = NCSNDenoiser(NCSN(NCSNConfig(size=8, width=4)))
    folder = _store(tmp_path / "p", module, [1, 8, 8])
    prior = load_prior(folder)
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        assert torch.allclose(prior.denoise(x, 0.1), module(x, torch.full((2,), 0.1)), atol=1e-5)
    assert (prior.shape, prior.sigma_min, prior.sigma_max) == ((1, 8, 8), 0.01, 1.0)
    assert prior.to(dtype=torch.float64).denoise(x.double(), 0.1).dtype == torch.float64


def test_priors_below_the_data_root_have_names(tmp_path):
    module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.2, 0.4)
    _store(tmp_path / "priors" / "mine", module, [1, 8, 8])
    assert "mine" in [e.name for e in list_priors(tmp_path)]
    assert load_prior("mine", root=tmp_path).name == "kept"


@pytest.fixture
def folder(tmp_path):
    module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.2, 0.4)
    return _store(tmp_path / "p", module, [1, 8, 8])


def _damage(folder, how):
    weights, card = folder / "weights.safetensors", folder / "card.json"
    if how == "flipped byte":
        data = bytearray(weights.read_bytes())
        data[-3] ^= 1
        weights.write_bytes(bytes(data))
    elif how == "truncated":
        weights.write_bytes(weights.read_bytes()[:100])
    elif how == "no weights":
        weights.unlink()
    elif how == "card is text":
        card.write_text("hello")
    elif how == "card lacks fields":
        card.write_text("{}")
    elif how == "pickle with the right checksum":
        torch.save({"a": torch.zeros(1)}, weights)
        from basis.files import sha256

        card.write_text(json.dumps(read_card(folder).to_dict() | {"sha256": sha256(weights)}))
    elif how == "other architecture":
        changed = json.loads(card.read_text())
        changed["architecture"]["network"]["widths"] = [12, 24]
        card.write_text(json.dumps(changed))
    elif how == "unknown architecture":
        changed = json.loads(card.read_text())
        changed["architecture"]["kind"] = "glow9"
        card.write_text(json.dumps(changed))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("flipped byte", "checksum"),
        ("truncated", "checksum"),
        ("no weights", "holds no"),
        ("card is text", "card.json cannot be read"),
        ("card lacks fields", "lacks name"),
        ("pickle with the right checksum", "cannot be read as a safetensors"),
        ("other architecture", "does not fit"),
        ("unknown architecture", "known are unet"),
    ],
)
def test_damaged_priors_are_refused(folder, how, says):
    _damage(folder, how)
    with pytest.raises(basis.BasisError, match=says) as caught:
        load_prior(folder)
    assert "\n" not in str(caught.value)


def test_unknown_name_lists_the_known():
    with pytest.raises(basis.BasisError, match=r"unknown prior 'minst'.*mnist"):
        load_prior("minst")


CARD = {
    "name": "mine",
    "architecture": {"kind": "unet", "network": {}, "mean": 0.1, "std": 0.25},
    "shape": [1, 8, 8],
    "sigma_min": 0.01,
    "sigma_max": 1.0,
    "sha256": "0",
    "errors": {"0.1": 0.2, "1": 0.05},
    "author": "me",
}


def test_a_card_survives_json_with_entries_that_are_not_known():
    card = Card.from_dict(CARD)
    assert (card.value_range, card.center, card.std) == ((0.0, 1.0), None, None)
    assert card.errors == {0.1: 0.2, 1.0: 0.05} and card.shape == (1, 8, 8)
    assert card.more == {"author": "me"}
    assert Card.from_dict(json.loads(json.dumps(card.to_dict()))) == card


def test_previous_names_of_entries_are_read():
    old = CARD | {"low": 0.0, "high": None, "spread": 0.4, "licence": "MIT"}
    card = Card.from_dict(old)
    assert (card.value_range, card.std, card.license) == ((0.0, math.inf), 0.4, "MIT")
    assert card.to_dict()["value_range"] == [0.0, None] and "spread" not in card.to_dict()


@pytest.mark.parametrize("given", [None, [None, None], [0, 2], [None, 1.0]])
def test_ranges_stay_as_they_are(given):
    card = Card.from_dict(CARD | {"value_range": given, "shape": [2, 64], "center": 3.0})
    entries = json.loads(json.dumps(card.to_dict()))
    assert Card.from_dict(entries) == card
    assert entries["value_range"] == (None if given == [None, None] else given)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"sigma_min": "low"}, "sigma_min must be a number"),
        ({"sigma_max": True}, "sigma_max must be a number"),
        ({"value_range": [0, "white"]}, "value_range must be"),
        ({"shape": [1, 0]}, "shape must be"),
        ({"shape": 8}, "shape must be"),
        ({"name": 3}, "name must be"),
        ({"architecture": "unet"}, "architecture must be an object"),
        ({"errors": {"much": 1}}, "errors must be"),
        ({"errors": {"0.1": -1}}, "positive"),
        ({"quality": "good"}, "quality must be a list"),
        ({"parameters": "many"}, "parameters must be a whole number"),
    ],
)
def test_ill_typed_cards_are_refused_in_one_line(entry, says):
    with pytest.raises(basis.BasisError, match=says) as caught:
        Card.from_dict(CARD | entry, "my card")
    assert "\n" not in str(caught.value) and str(caught.value).startswith("my card")


def test_every_family_builds_what_it_describes():
    import dataclasses

    for kind, family in KINDS.items():
        if family.config is None or kind == "ladder":
            continue
        assert all(f.metadata["help"] for f in dataclasses.fields(family.config))
        one = {"network": {}, "mean": 0.1, "std": 0.3}
        two = {**one, "above": one, "sigma": 0.3}
        built = family.build_module(two if kind == "experts" else one)
        told = describe_module(built)
        assert told["kind"] == kind and describe_module(family.build_module(told)) == told
    with pytest.raises(basis.BasisError, match="'wide'; its settings are channels, fold"):
        find_kind("unet").new_module((1, 8, 8), 0.0, 1.0, {"wide": 3})
    with pytest.raises(basis.BasisError, match="'ladder'"):
        find_kind("ladder", trainable=True)
