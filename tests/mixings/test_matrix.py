"""Mixings of channels by a matrix, one for all items or one per item."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from posteriors import F64, dense

from basis.errors import BasisError
from basis.mixings.matrix import MatrixMixing, grey, mixture, mixtures
from basis.mixings.per_item import PerItemMixing

SIZES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
SEEDS = st.integers(0, 10**6)
settings.register_profile("quiet", deadline=None, max_examples=40)
settings.load_profile("quiet")


def random_case(sizes, seed, *, masked=False, noise=0.0):
    """A random mixing, sources and an observation."""
    k, channels, observed = sizes
    g = torch.Generator().manual_seed(seed)
    mixing = MatrixMixing(torch.randn(observed, k * channels, generator=g, dtype=F64), k, channels)
    mixing = mixing.replace(noise=noise)
    if masked:
        mixing = mixing.replace(mask=torch.rand(observed, 3, 2, generator=g) < 0.6)
    x = torch.rand(2, k, channels, 3, 2, generator=g, dtype=F64)
    m = torch.rand(2, observed, 3, 2, generator=g, dtype=F64)
    return mixing, x, m


@given(SIZES, SEEDS, st.booleans())
def test_adjoint(sizes, seed, masked):
    mixing, x, m = random_case(sizes, seed, masked=masked)
    assert torch.allclose((mixing(x) * m).sum(), (x * mixing.adjoint(m)).sum(), atol=1e-10)


@given(SIZES, SEEDS, st.booleans())
def test_projection_is_the_pseudoinverse(sizes, seed, masked):
    mixing, x, m = random_case(sizes, seed, masked=masked)
    a = dense(mixing, x.shape[2:])
    observed = mixing.residual(torch.zeros_like(x), m).flatten(1)
    expected = x.flatten(1) + (observed - x.flatten(1) @ a.T) @ torch.linalg.pinv(a).T
    assert torch.allclose(mixing.project(x, m).flatten(1), expected, atol=1e-6)


@given(SIZES, SEEDS, st.booleans(), st.floats(0.01, 2))
def test_posterior_mean_is_the_gaussian_one(sizes, seed, masked, noise):
    mixing, x, m = random_case(sizes, seed, masked=masked, noise=noise)
    v = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=F64) + 0.1
    a = dense(mixing, x.shape[2:])
    rows = []
    for xi, vi, r in zip(x.flatten(1), v.flatten(1), mixing.residual(x, m).flatten(1), strict=True):
        gram = (a * vi) @ a.T + noise**2 * torch.eye(len(a), dtype=F64)
        rows.append(xi + vi * (a.T @ torch.linalg.solve(gram, r)))
    assert torch.allclose(mixing.posterior_mean(x, m, v).flatten(1), torch.stack(rows), atol=1e-8)
    half = mixing.posterior_mean(x, m, 0.5)
    assert torch.allclose(half, mixing.posterior_mean(x, m, torch.full_like(x, 0.5)), atol=1e-8)


@given(st.integers(1, 5), st.integers(1, 3), SEEDS)
def test_plain_mixture(k, channels, seed):
    g = torch.Generator().manual_seed(seed)
    alphas = (torch.rand(k, generator=g) + 0.1).double()
    x = torch.rand(2, k, channels, 4, 3, generator=g, dtype=F64)
    mixing = mixture(alphas.tolist(), channels)
    m = torch.einsum("k,bkchw->bchw", alphas, x)
    assert torch.allclose(mixing(x), m) and mixing.plain_alphas == pytest.approx(alphas.tolist())
    start = torch.rand(x.shape, generator=g, dtype=F64) * 3 - 1
    inside = mixing.project_box(start, m, tolerance=1e-5, max_iterations=3000)
    assert inside.min() >= 0 and inside.max() <= 1
    assert (mixing.residual(inside, m).square().mean(dim=(1, 2, 3)).sqrt() < 1e-5).all()


@given(st.integers(1, 3), st.integers(1, 2), SEEDS, st.booleans())
def test_a_mixing_of_single_channels_mixes_each_channel_separately(k, observed, seed, masked):
    single, _, _ = random_case((k, 1, observed), seed, masked=masked, noise=0.1)
    x = torch.rand(2, k, 3, 3, 2, dtype=F64)
    each = torch.stack([single(x[:, :, c : c + 1]) for c in range(3)], dim=2)
    assert torch.allclose(single(x), each.flatten(1, 2))
    fitted = single.fit((3, 3, 2))
    assert (fitted.sources, fitted.channels, fitted.noise) == (k, 3, 0.1)
    m = torch.rand(2, 3 * observed, 3, 2, dtype=F64)
    assert torch.equal(single.residual(x, m), fitted.residual(x, m))
    with pytest.raises(BasisError, match="sources of 3 channels, not 1"):
        fitted.fit((1, 3, 2))


def test_mixings_of_color_images():
    x = torch.rand(2, 2, 3, 4, 4)
    assert torch.allclose(grey()(x[:, :1]), x[:, 0].mean(dim=1, keepdim=True))
    mean = (0.3 * x[:, 0] + 0.7 * x[:, 1]).mean(dim=1, keepdim=True)
    assert torch.allclose(grey((0.3, 0.7))(x), mean, atol=1e-6)
    stacked = mixtures([(1.0, 0.5), (0.2, 1.0)], channels=3)(x)
    assert torch.allclose(stacked[:, :3], x[:, 0] + 0.5 * x[:, 1])
    assert torch.allclose(stacked[:, 3:], 0.2 * x[:, 0] + x[:, 1])


def test_two_mixtures_determine_two_sources():
    x = torch.rand(3, 2, 1, 5, 5, dtype=F64)
    mixing = mixtures([(1.0, 0.5), (0.25, 1.0)])
    assert torch.allclose(mixing.project(torch.zeros_like(x), mixing(x)), x, atol=1e-8)
    twice, once = mixtures([(1.0, 1.0), (1.0, 1.0)]), mixture((1.0, 1.0))
    start = torch.zeros_like(x)
    assert torch.allclose(twice.project(start, twice(x)), once.project(start, once(x)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MatrixMixing([[1.0, 1.0, 1.0]], 2, 1), "2 columns"),
        (lambda: mixture((float("nan"), 1.0)), "finite"),
        (lambda: mixture((0.0, 0.0)), "not all zero"),
        (lambda: mixture(()), "non-empty"),
        (lambda: mixture(("a", 1)), "alphas must be"),
        (lambda: mixtures([(1.0,), (1.0, 2.0)]), "equally long"),
        (lambda: PerItemMixing(torch.zeros(1, 2)), "all be zero"),
        (lambda: PerItemMixing(torch.ones(2)), r"\(batch, sources\)"),
    ],
)
def test_wrong_alphas(make, message):
    with pytest.raises(BasisError, match=message):
        make()


def test_a_mixing_per_item_is_a_plain_one_for_each_item():
    g = torch.Generator().manual_seed(0)
    alphas = torch.rand(3, 2, generator=g).double()
    x, v = torch.rand(2, 3, 2, 1, 4, 4, generator=g, dtype=F64)
    m = torch.rand(3, 1, 4, 4, generator=g, dtype=F64)
    mixing = PerItemMixing(alphas)
    assert torch.allclose((mixing(x) * m).sum(), (x * mixing.adjoint(m)).sum())
    for i in range(3):
        one, item = mixture(alphas[i].tolist()), slice(i, i + 1)
        assert torch.allclose(mixing.select(item)(x[item]), one(x[item]))
        for noise in (0.0, 0.3):
            expected = one.posterior_mean(x[item], m[item], v[item], noise)
            assert torch.allclose(mixing.posterior_mean(x, m, v, noise)[item], expected)
    assert torch.equal(mixing.select(torch.tensor([2, 0])).alphas, alphas[[2, 0]])
    largest = alphas.sum(dim=1).max().item()
    assert mixing.output_range((0.0, 1.0)) == pytest.approx((0.0, largest))
    assert (
        not mixing.interchangeable[0, 1] and PerItemMixing(torch.ones(2, 2)).interchangeable.all()
    )
