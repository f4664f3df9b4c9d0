"""The interface of priors: made from functions, trained by `loss`, saved, described."""

import math

import pytest
import torch

import basis
from basis.errors import BasisError
from basis.nn.kinds import KINDS
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture
from basis.priors.prior import Prior
from basis.search.plausibility import typical_energies

RANGE = {"shape": (1, 4, 4), "sigma_min": 0.01, "sigma_max": 10.0}
TRAINABLE = [kind.name for kind in KINDS.values() if kind.trainable]


def shifted(function, scale_answer):
    """The same function of values in [-1, 1]."""

    def other(y, sigma):
        return scale_answer(function((y + 1) / 2, sigma / 2))

    return other


@pytest.mark.parametrize("model_range", [None, (-1.0, 1.0)])
def test_all_three_are_the_same_prior(toy_prior, model_range):
    if model_range:
        denoise = shifted(toy_prior.denoise, lambda d: 2 * d - 1)
        score = shifted(toy_prior.score, lambda s: s / 2)
        half = torch.tensor(0.5).log() * 16
        log_prob = shifted(toy_prior.log_prob, lambda p: p + half)
    else:
        denoise, score, log_prob = toy_prior.denoise, toy_prior.score, toy_prior.log_prob
    # Noise levels are those of the model.
    scale = 2 if model_range else 1
    levels = {"shape": (1, 4, 4), "sigma_min": 0.01 * scale, "sigma_max": 10.0 * scale}
    priors = [
        Prior.from_denoiser(denoise, **levels, model_range=model_range),
        Prior.from_score(score, **levels, model_range=model_range),
        Prior.from_log_prob(log_prob, **levels, model_range=model_range),
    ]
    x = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    sigma = torch.tensor([0.05, 0.3, 2.0], dtype=torch.float64)
    for prior in priors:
        assert (prior.sigma_min, prior.sigma_max) == (0.01, 10.0)
        assert torch.allclose(prior.denoise(x, sigma), toy_prior.denoise(x, sigma), atol=1e-8)
        assert torch.allclose(prior.score(x, sigma), toy_prior.score(x, sigma), atol=1e-5)
    assert torch.allclose(priors[2].log_prob(x, sigma), toy_prior.log_prob(x, sigma), atol=1e-6)


def test_functions_that_cannot_be_used():
    with pytest.raises(BasisError, match="model_range"):
        Prior.from_denoiser(lambda x, s: x, **RANGE, model_range=(1.0, 0.0))
    with pytest.raises(BasisError, match="sigma_min"):
        Prior.from_score(lambda x, s: x, (1, 4, 4), 0.0, 1.0)
    wrong = Prior.from_denoiser(lambda x, s: x[:, :, :2], **RANGE, name="mine")
    with pytest.raises(BasisError, match=r"'mine'.*shape"):
        wrong.denoise(torch.rand(1, 1, 4, 4), 0.1)


@pytest.mark.parametrize(
    ("kind", "function", "says"),
    [
        ("denoiser", 3, r"a function of \(x, sigma\)"),
        ("denoiser", lambda x: x, r"called with \(x, sigma\), .* takes \(x\)"),
        ("denoiser", torch.nn.Identity(), r"called with \(x, sigma\)"),
        ("log_prob", lambda x: x, r"called with \(x, sigma\)"),
        ("denoiser", lambda x, s: x - s * x, r"'mine' .* sigma\.view\(-1, 1, 1, 1\)"),
        ("denoiser", lambda x, s: x.nonsense, "AttributeError"),
        ("denoiser", lambda x, s: None, r"tensor of shape \(3, 1, 4, 6\).*NoneType"),
        ("denoiser", lambda x, s: x.numpy(), "ndarray"),
        ("denoiser", lambda x, s: x.mean(), r"not \(\)"),
        ("denoiser", lambda x, s: x.long(), "int64"),
        ("denoiser", lambda x, s: x / 0, "NaN or infinite values at sigma 10"),
        ("denoiser", lambda x, s: x / (s.min() > 1), "NaN or infinite values at sigma 0.1"),
        ("score", lambda x, s: x[:1], r"'mine' must return"),
        ("log_prob", lambda x, s: x.sum(), r"tensor of shape \(3,\).*not \(\)"),
        ("log_prob", lambda x, s: 1.0, "float"),
        ("log_prob", lambda x, s: x.flatten(1).sum(1).detach(), "cannot be differentiated"),
        ("log_prob", lambda x, s: x.flatten(1).sum(1) * torch.nan, "NaN"),
        ("log_prob", lambda x, s: x.nonsense, "AttributeError"),
    ],
)
def test_what_is_wrong_with_a_function_is_one_line(kind, function, says):
    def use():
        prior = getattr(Prior, f"from_{kind}")(function, (1, 4, 6), 0.01, 10.0, name="mine")
        prior.denoise(torch.rand(3, 1, 4, 6), 0.1)

    with pytest.raises(BasisError, match=says) as caught:
        use()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["denoiser", "score", "log_prob"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sigma_min": "a"}, "sigma_min"),
        ({"sigma_min": None}, "sigma_min"),
        ({"sigma_max": math.inf}, "sigma_max"),
        ({"sigma_max": 0.001}, "sigma_max"),
        ({"shape": None}, "shape"),
        ({"shape": 8}, "shape"),
        ({"model_range": 3}, "model_range"),
        ({"model_range": (0, 1, 2)}, "model_range"),
        ({"model_range": (None, 1)}, "model_range"),
        ({"model_range": (-1, 1), "value_range": None}, "model_range"),
        ({"stdd": 3}, "'stdd'; accepted: model_range, .*std"),
    ],
)
def test_wrong_settings_of_functions_are_named(kind, settings, says):
    with pytest.raises(BasisError, match=says):
        getattr(Prior, f"from_{kind}")(lambda x, s: x, **RANGE | settings)


def test_inputs_without_a_batch_are_named(tiny_prior):
    x = torch.rand(1, 8, 8)
    density = Prior.from_log_prob(lambda x, s: -x.flatten(1).sum(1), (1, 8, 8), 0.01, 10.0)
    function = Prior.from_denoiser(lambda x, s: 0 * x, (1, 8, 8), 0.01, 10.0)
    for prior in (tiny_prior, density, function):
        for wrong in (x, x[0], x.numpy(), None):
            with pytest.raises(BasisError, match=r"\(batch, 1, 8, 8\)"):
                prior.denoise(wrong, 0.1)


def test_priors_and_mixings_that_are_plain_functions_are_named(tiny_prior):
    x = torch.rand(1, 1, 8, 8)
    for wrong in (lambda x, s: x, torch.nn.Identity(), [tiny_prior, lambda x, s: x]):
        with pytest.raises(BasisError, match="from_denoiser"):
            basis.separate(x, wrong)
    with pytest.raises(BasisError, match=r"basis\.linear"):
        basis.separate(x, tiny_prior, mixing=lambda x: x.sum(1))
    with pytest.raises(BasisError, match="alphas must be a list"):
        basis.separate(x, tiny_prior, object())
    for wrong in (None, 3):
        with pytest.raises(BasisError, match="a name or a folder"):
            Prior.from_pretrained(wrong)
    with pytest.raises(BasisError, match="from_denoiser takes any function"):
        DenoiserPrior(lambda x, s: x, (1, 8, 8), 0.1, 1.0)


@pytest.mark.parametrize("settings", [{}, {"model_range": (-1.0, 1.0)}, {"value_range": None}])
def test_a_function_that_returns_the_noise_is_noticed_at_once(settings):
    levels = {"shape": (1, 8, 8), "sigma_min": 0.01, "sigma_max": 20.0}

    def noise(x, s):
        s = s.view(-1, 1, 1, 1)
        return x * s / (s**2 + 0.3)

    x, wrong = torch.rand(2, 1, 8, 8), Prior.from_denoiser(noise, **levels, **settings)
    with pytest.raises(
        BasisError, match=r"pass lambda x, s: x - s\.view\(-1, 1, 1, 1\) \* fn\(x, s"
    ):
        basis.separate(x, wrong, method=8)
    with pytest.raises(BasisError, match="returns the noise"):  # again: nothing has changed
        wrong.denoise(x, 0.1)
    clean = Prior.from_denoiser(
        lambda x, s: x - s.view(-1, 1, 1, 1) * noise(x, s), **levels, **settings
    )
    assert clean.denoise(x, 0.1).isfinite().all()


@pytest.mark.parametrize("std", [0.01, 0.3, 1.0, 2.3, 2.6, 5.0, 30.0])
@pytest.mark.parametrize("sigma_max", [0.5, 2.0, 4.0, 6.0, 10.0, 80.0, 1000.0])
def test_sound_functions_are_not_taken_for_noise(std, sigma_max):
    """Gaussians of any deviation, whether it is known or not, and functions not yet trained."""

    def gaussian(x, s):
        s = s.view(-1, 1, 1, 1)
        return 0.5 + (x - 0.5) * std**2 / (s**2 + std**2)

    functions = (gaussian, lambda x, s: x, lambda x, s: 0.5 * x, lambda x, s: torch.ones_like(x))
    for function in functions:
        for settings in ({}, {"value_range": None}, {"model_range": (-1.0, 1.0)}):
            if function is gaussian and std > 0.5 and "value_range" not in settings:
                continue  # no signals of such a range
            prior = Prior.from_denoiser(function, (1, 4, 4), 0.01, sigma_max, **settings)
            prior.denoise(torch.rand(2, 1, 4, 4), 0.1)


def test_samplers_that_diverge_are_not_the_fault_of_the_function():
    prior = Prior.from_denoiser(lambda x, s: x.exp(), (1, 4, 4), 0.01, 10.0)
    assert prior.denoise(torch.full((1, 1, 4, 4), 1e6), 0.1).isinf().all()


def test_shipped_names_folders_and_classes_are_loaded(tiny_prior, tmp_path):
    x = torch.rand(2, 1, 8, 8)
    folder = tiny_prior.save(tmp_path / "tiny", title="a test")
    again = Prior.from_pretrained(folder)
    assert torch.equal(again.denoise(x, 0.2), tiny_prior.denoise(x, 0.2))
    assert again.card.title == "a test"
    assert Prior.from_pretrained("mnist-classes:3,8").name == "mnist-classes:3,8"


@pytest.mark.parametrize(
    ("value_range", "low", "high", "center", "std"),
    [
        ((0, 1), 0, 1, 0.5, 0.3),
        ((-1.0, 3.0), -1, 3, 1, 1.2),
        (None, None, None, 0, 1),
        ((None, None), None, None, 0, 1),
        ((0.0, None), 0, None, 0, 1),
        ((-math.inf, 2.0), None, 2, 2, 1),
    ],
)
def test_ranges_and_what_follows_from_them(value_range, low, high, center, std):
    prior = DenoiserPrior(torch.nn.Identity(), (1, 4), 0.1, 1.0, value_range=value_range)
    assert (prior.low, prior.high, prior.center) == (low, high, center)
    assert prior.std == pytest.approx(std)
    assert (prior.value_range is None) == (low is None and high is None)
    assert prior.describe()["value_range"] == (prior.value_range and [low, high])


@pytest.mark.parametrize(
    "change",
    [
        {"value_range": (1, 0)},
        {"value_range": (0, math.nan)},
        {"value_range": 1},
        {"std": 0},
        {"std": math.inf},
        {"shape": (1, 0)},
        {"sigma_min": 2.0, "sigma_max": 1.0},
    ],
)
def test_settings_that_cannot_be_are_named(change):
    settings = {"shape": (1, 4), "sigma_min": 0.1, "sigma_max": 1.0} | change
    with pytest.raises(BasisError, match=next(iter(change))):
        DenoiserPrior(torch.nn.Identity(), **settings)


@pytest.mark.parametrize("kind", TRAINABLE)
def test_the_loss_of_a_new_prior_falls(kind):
    """A loop of one's own: constant images, which any network learns at once."""
    torch.manual_seed(0)
    config = {
        "unet": {"widths": (8,), "blocks": (1,), "attention": 0},
        "energy": {"widths": (8,), "blocks": (1,), "attention": 0},
        "glow": {"levels": 1, "depth": 1, "width": 4},
        "ncsn": {"width": 2, "levels": 2},
    }
    prior = Prior.new(kind, (1, 8, 8), **config.get(kind, {}))
    clean = torch.rand(64, 1, 1, 1).expand(64, 1, 8, 8)
    optimizer = torch.optim.Adam(prior.parameters(), 3e-3)
    losses = []
    for step in range(24):
        loss = prior.loss(clean, generator=torch.Generator().manual_seed(step % 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-4:]) < sum(losses[:4])


def test_the_loss_of_the_exact_denoiser_is_the_smallest():
    x = torch.linspace(0, 1, 256).view(256, 1, 1) + 0.0
    exact = GaussianMixture(torch.full((1, 1, 1), 0.5), torch.tensor([x.var().item()]))
    other = Prior.from_denoiser(
        lambda y, s: y, (1, 1), exact.sigma_min, exact.sigma_max, value_range=None, std=exact.std
    )
    losses = [p.loss(x, torch.Generator().manual_seed(0)) for p in (exact, other)]
    assert losses[0] < 0.8 * losses[1]
    with pytest.raises(BasisError, match="shape"):
        exact.loss(torch.rand(2, 1, 3))
    for wrong in (x.numpy(), x.byte(), None):
        with pytest.raises(BasisError, match="must be a tensor of floats"):
            exact.loss(wrong)


def test_only_declared_exact_samples_are_used_for_typical_energies():
    class Own(GaussianMixture):
        def sample(self, *arguments):
            raise AssertionError("a user's own method was called")

    own = Own(torch.zeros(1, 1, 4, 4), torch.ones(1))
    assert typical_energies(own).about == {"origin": "its own samples"}
    own.energies, own.exact_samples = None, None
    assert typical_energies(own) is None
    basis.separate(torch.rand(1, 1, 4, 4), own, method=8)


def test_samples_are_those_of_the_function():
    prior = GaussianMixture(torch.zeros(1, 1, 2, 2), torch.ones(1), sigma_min=0.01, sigma_max=10.0)
    assert torch.equal(prior.sample(3, seed=4, steps=5), basis.sample(prior, 3, seed=4, steps=5))


def test_a_score_prior_has_no_likelihood_and_no_classes(tiny_prior):
    assert not tiny_prior.has_likelihood and tiny_prior.classes == ()
    with pytest.raises(BasisError, match="no likelihood"):
        tiny_prior.log_prob(torch.rand(1, 1, 8, 8), 0.1)
    with pytest.raises(BasisError, match="not class-conditional"):
        tiny_prior.condition(0)
