import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from basis.errors import BasisError
from basis.mixings.downsampling import downsample
from basis.mixings.linear_map import linear
from basis.mixings.matrix import MatrixMixing, grey, mixture, mixtures
from basis.mixings.per_item import PerItemMixing

SIZES = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
settings.register_profile("quiet", deadline=None, max_examples=40)
settings.load_profile("quiet")


def draw(sizes, seed, *, masked=False, noise=0.0):
    k, channels, observed = sizes
    g = torch.Generator().manual_seed(seed)
    matrix = torch.randn(observed, k * channels, generator=g, dtype=torch.float64)
    mixing = MatrixMixing(matrix, k, channels).replace(noise=noise)
    if masked:
        mixing = mixing.replace(mask=(torch.rand(observed, 3, 2, generator=g) < 0.6).double())
    x = torch.rand(2, k, channels, 3, 2, generator=g, dtype=torch.float64)
    m = torch.rand(2, observed, 3, 2, generator=g, dtype=torch.float64)
    return mixing, x, m


def dense(mixing, x):
    """The whole operator as one matrix, column by column, by applying it to unit vectors."""
    shape = x.shape[1:]
    basis = torch.eye(shape.numel(), dtype=x.dtype).view(-1, *shape)
    return mixing(basis).flatten(1).T


@given(SIZES, st.integers(0, 10**6), st.booleans())
def test_adjoint(sizes, seed, masked):
    mixing, x, m = draw(sizes, seed, masked=masked)
    assert torch.allclose((mixing(x) * m).sum(), (x * mixing.adjoint(m)).sum(), atol=1e-10)


@given(SIZES, st.integers(0, 10**6), st.booleans())
def test_projection_is_the_pseudo_inverse(sizes, seed, masked):
    mixing, x, m = draw(sizes, seed, masked=masked)
    a = dense(mixing, x)
    flat = x.flatten(1)
    # Nothing can be learned where nothing is observed, so the masked m counts.
    seen = mixing.residual(torch.zeros_like(x), m).flatten(1)
    wanted = flat + (seen - flat @ a.T) @ torch.linalg.pinv(a).T
    assert torch.allclose(mixing.project(x, m).flatten(1), wanted, atol=1e-6)


@given(SIZES, st.integers(0, 10**6), st.booleans(), st.floats(0.01, 2))
def test_posterior_mean_is_the_gaussian_one(sizes, seed, masked, noise):
    mixing, x, m = draw(sizes, seed, masked=masked, noise=noise)
    g = torch.Generator().manual_seed(seed + 1)
    v = torch.rand(x.shape, generator=g, dtype=torch.float64) + 0.1
    a = dense(mixing, x)
    rows = []
    for xi, mi, vi in zip(x, m, v, strict=True):
        r = mixing.residual(xi[None], mi[None]).flatten()
        gram = (a * vi.flatten()) @ a.T + noise**2 * torch.eye(len(a), dtype=a.dtype)
        rows.append(xi.flatten() + vi.flatten() * (a.T @ torch.linalg.solve(gram, r)))
    assert torch.allclose(mixing.posterior_mean(x, m, v).flatten(1), torch.stack(rows), atol=1e-8)
    half = mixing.posterior_mean(x, m, 0.5)
    assert torch.allclose(half, mixing.posterior_mean(x, m, torch.full_like(x, 0.5)), atol=1e-8)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 10**6))
def test_plain_mixture(k, channels, seed):
    g = torch.Generator().manual_seed(seed)
    alphas = (torch.rand(k, generator=g) + 0.1).double()
    x = torch.rand(2, k, channels, 4, 3, generator=g, dtype=torch.float64)
    mixing = mixture(alphas.tolist(), channels)
    m = torch.einsum("k,bkchw->bchw", alphas, x)
    assert torch.allclose(mixing(x), m)
    start = torch.rand(x.shape, generator=g, dtype=torch.float64) * 3 - 1
    inside = mixing.project_box(start, m, tolerance=1e-5, most=3000)
    assert inside.min() >= 0 and inside.max() <= 1
    assert (mixing.residual(inside, m).square().mean(dim=(1, 2, 3)).sqrt() < 1e-5).all()


def test_colour_mixings():
    x = torch.rand(2, 2, 3, 4, 4)
    assert torch.allclose(grey()(x[:, :1]), x[:, 0].mean(dim=1, keepdim=True))
    mean = (0.3 * x[:, 0] + 0.7 * x[:, 1]).mean(dim=1, keepdim=True)
    assert torch.allclose(grey((0.3, 0.7))(x), mean, atol=1e-6)
    stacked = mixtures([(1.0, 0.5), (0.2, 1.0)], channels=3)(x)
    assert torch.allclose(stacked[:, :3], x[:, 0] + 0.5 * x[:, 1])
    assert torch.allclose(stacked[:, 3:], 0.2 * x[:, 0] + x[:, 1])


def test_two_mixtures_of_two_sources_determine_them():
    x = torch.rand(3, 2, 1, 5, 5, dtype=torch.float64)
    mixing = mixtures([(1.0, 0.5), (0.25, 1.0)])
    assert torch.allclose(mixing.project(torch.zeros_like(x), mixing(x)), x, atol=1e-8)


def test_redundant_rows_do_not_break_the_projection():
    x = torch.rand(1, 2, 1, 3, 3, dtype=torch.float64)
    twice, once = mixtures([(1.0, 1.0), (1.0, 1.0)]), mixture((1.0, 1.0))
    start = torch.zeros_like(x)
    assert torch.allclose(twice.project(start, twice(x)), once.project(start, once(x)))


def test_mask_leaves_unobserved_pixels_alone():
    mask = torch.zeros(1, 4, 4)
    mask[:, :, :2] = 1
    mixing = mixture((1.0, 1.0)).replace(mask=mask)
    x, m = torch.rand(1, 2, 1, 4, 4), torch.rand(1, 1, 4, 4)
    out = mixing.project(x, m)
    assert torch.equal(out[..., 2:], x[..., 2:])
    assert torch.allclose(out.sum(dim=1)[..., :2], m[..., :2], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MatrixMixing([[1.0, 1.0, 1.0]], 2, 1), "2 columns"),
        (lambda: mixture((float("nan"), 1.0)), "finite"),
        (lambda: mixture((0.0, 0.0)), "ignore all"),
        (lambda: mixture(()), "non-empty"),
        (lambda: mixture().replace(noise=-1.0), "at least 0"),
        (lambda: mixture().replace(mask=torch.full((1, 2, 2), 0.5)), "zeros"),
    ],
)
def test_refusals(make, says):
    with pytest.raises(BasisError, match=says):
        make()


@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 10**6), st.booleans())
def test_a_mixing_of_single_channels_mixes_each_for_itself(k, observed, seed, masked):
    single, _, _ = draw((k, 1, observed), seed, masked=masked, noise=0.1)
    x = torch.rand(2, k, 3, 3, 2, dtype=torch.float64)
    each = torch.stack([single(x[:, :, c : c + 1]) for c in range(3)], dim=2)
    assert torch.allclose(single(x), each.flatten(1, 2))
    lifted = single.fit((3, 3, 2))
    assert (lifted.sources, lifted.channels, lifted.noise) == (k, 3, 0.1)
    m = torch.rand(2, 3 * observed, 3, 2, dtype=torch.float64)
    assert torch.equal(single.residual(x, m), lifted.residual(x, m))
    with pytest.raises(BasisError, match="sources of 3 channels, and these have 1"):
        lifted.fit((1, 3, 2))


@pytest.mark.parametrize(
    ("mixing", "shape", "gain"),
    [
        (mixture((1.0, 1.0)), (1, 4, 4), 1.0),
        (mixture((1.0, 1.0, 1.0)), (3, 4, 4), 1.0),
        (mixture((0.5, 0.5)), (3, 4, 4), 0.5),
        (mixture((0.5, 0.5)).clipped(), (1, 4), 0.5),
        (mixture((2.0, 0.0)), (1, 4), math.sqrt(2)),
        (mixture((1.0, 1.0)).replace(mask=torch.eye(4)), (1, 4, 4), 1.0),
        (grey(), (3, 4, 4), math.sqrt(1 / 3)),
        (downsample(2), (1, 4, 4), 0.5),
    ],
)
def test_gain_is_the_weight_of_a_source_in_what_is_observed(mixing, shape, gain):
    x = torch.zeros(2, mixing.sources, *shape)
    assert mixing.gain(x) == pytest.approx(gain, rel=1e-5)


def test_gain_of_items_with_weights_of_their_own_and_of_unknown_maps():
    x = torch.zeros(2, 2, 1, 4)
    mixing = PerItemMixing(torch.tensor([[1.0, 1.0], [0.1, 0.3]]))
    gain = mixing.gain(x)
    assert gain.flatten().tolist() == pytest.approx([1.0, math.sqrt(0.05)])
    assert (gain * mixing(x)).shape == (2, 1, 4)
    own = linear(
        lambda x: 3 * x.sum(dim=1), lambda m: 3 * m[:, None].expand(-1, 2, -1, -1), sources=2
    )
    assert own.gain(torch.zeros(2, 2, 1, 64)) == pytest.approx(3.0, rel=0.1)
