"""What all mixings have in common: masks, noise, conditional means, gains, ranges."""

import json
import math

import numpy as np
import pytest
import torch
from posteriors import F64, MIXINGS, SHAPE, WEIGHTS, dense

import basis
from basis.errors import BasisError
from basis.mixings.matrix import grey, mixture
from basis.mixings.per_item import PerItemMixing

MIXINGS = MIXINGS | {
    "linear with adjoint": basis.linear(
        lambda x: x.flatten(1) @ WEIGHTS.to(x).T, lambda m: (m @ WEIGHTS.to(m)).view(-1, 2, *SHAPE)
    ),
}


@pytest.fixture(params=MIXINGS)
def mixing(request):
    return MIXINGS[request.param].fit(SHAPE)


@pytest.mark.parametrize("tau", [0.0, 0.2])
@pytest.mark.parametrize(("dtype", "tolerance"), [(F64, 1e-8), (torch.float32, 1e-5)])
def test_posterior_means_agree_with_a_dense_solve(mixing, tau, dtype, tolerance):
    mixing = mixing.replace(noise=tau)
    g = torch.Generator().manual_seed(0)
    x, truth = torch.randn(2, 4, 2, *SHAPE, generator=g, dtype=F64)
    v = torch.rand(x.shape, generator=g, dtype=F64) + 0.2
    m, a = mixing(truth), dense(mixing, SHAPE)
    expected = []
    for xi, vi, mi in zip(x.flatten(1), v.flatten(1), m.flatten(1), strict=True):
        gram = (a * vi) @ a.T + tau**2 * torch.eye(len(a), dtype=F64)
        z = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10) @ (mi - a @ xi)
        expected.append(xi + vi * (a.T @ z))
    found = mixing.posterior_mean(x.to(dtype), m.to(dtype), v.to(dtype))
    error = (found.double().flatten(1) - torch.stack(expected)).abs().max()
    assert error < tolerance * torch.stack(expected).abs().max()


def test_items_do_not_depend_on_their_batch(mixing):
    g = torch.Generator().manual_seed(0)
    x, truth = torch.randn(2, 3, 2, *SHAPE, generator=g, dtype=F64)
    x[1] *= 100
    m = mixing(truth)
    alone = torch.cat([mixing.posterior_mean(x[i : i + 1], m[i : i + 1]) for i in range(3)])
    assert torch.allclose(mixing.posterior_mean(x, m), alone, rtol=1e-9, atol=1e-10)


def test_what_all_mixings_report(mixing):
    a = dense(mixing, SHAPE)
    assert mixing.observed_shape(SHAPE) == mixing(torch.zeros(1, 2, *SHAPE)).shape[1:]
    assert json.loads(json.dumps(mixing.describe()))["sources"] == 2
    assert "2 sources" in repr(mixing) and mixing.unlimited is mixing and not mixing.limited
    low, high = mixing.output_range((0.0, 1.0))
    if high is not None:
        assert low <= a.clamp(max=0).sum(dim=1).min() + 1e-9
        assert high >= a.clamp(min=0).sum(dim=1).max() - 1e-9
    assert mixing.output_range((None, None)) == (None, None)
    swapped = a.unflatten(1, (2, -1)).flip(1).flatten(1)
    assert not mixing.interchangeable[0, 1] and not torch.equal(a, swapped)


def test_mask_and_noise_are_replaced():
    mask = np.zeros((1, 4, 4))
    mask[..., :2] = 1
    plain = mixture((1.0, 1.0))
    mixing = plain.replace(mask=mask, noise=0.1)
    assert (plain.mask, plain.noise) == (None, 0.0)
    assert repr(mixing) == "MatrixMixing(2 sources, alphas 1 1, noise 0.1, masked)"
    mixing = mixing.replace(noise=0)
    x, m = torch.rand(1, 2, 1, 4, 4), torch.rand(1, 1, 4, 4)
    projected = mixing.project(x, m)
    assert torch.equal(projected[..., 2:], x[..., 2:])
    assert torch.allclose(projected.sum(dim=1)[..., :2], m[..., :2], atol=1e-6)
    assert mixing.replace(mask=None)(x)[..., 2:].min() > 0
    for name, value in (("noise", -1.0), ("noise", math.nan), ("noise", "x"), ("noise", True)):
        with pytest.raises(BasisError, match=f"{name} must be"):
            plain.replace(**{name: value})
    for value in (torch.full((1, 2, 2), 0.5), [[1, 0], [1]], "mask.png"):
        with pytest.raises(BasisError, match="mask must"):
            plain.replace(mask=value)
    for use in (lambda m: m.fit((1, 4, 4)), lambda m: m(x)):
        with pytest.raises(BasisError, match=r"mask has shape \(5, 5\)"):
            use(plain.replace(mask=torch.ones(5, 5)))


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
        (basis.downsample(2), (1, 4, 4), 0.5),
    ],
)
def test_gain_is_the_weight_of_a_source(mixing, shape, gain):
    assert mixing.gain(torch.zeros(2, mixing.sources, *shape)) == pytest.approx(gain, rel=1e-5)


def test_gains_of_items_and_of_unknown_maps():
    x = torch.zeros(2, 2, 1, 4)
    mixing = PerItemMixing(torch.tensor([[1.0, 1.0], [0.1, 0.3]]))
    assert mixing.gain(x).flatten().tolist() == pytest.approx([1.0, math.sqrt(0.05)])
    own = basis.linear(lambda x: 3 * x.sum(dim=1))
    assert own.gain(torch.zeros(2, 2, 1, 64)) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("x", [[1.0], torch.zeros(1, 2, 1, 4).byte(), torch.zeros(1, 3, *SHAPE)])
def test_sources_are_checked(x):
    with pytest.raises(BasisError, match="sources must be"):
        mixture()(x)
