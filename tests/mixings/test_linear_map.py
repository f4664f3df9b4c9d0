"""Mixings by a user's own functions, by convolution and by downsampling."""

import pytest
import torch
from posteriors import F64

import basis
from basis.errors import BasisError

SHAPE = (2, 5)


def forward(x):
    return x.sum(dim=1)


def adjoint(m):
    return m[:, None].expand(-1, 2, *m.shape[1:])


@pytest.mark.parametrize("inference", [False, True])
def test_the_adjoint_is_found_by_autograd(inference):
    g = torch.Generator().manual_seed(0)
    kernel = torch.randn(3, 2, 3, generator=g)

    def blurred_differences(x):
        return torch.nn.functional.conv1d(x.flatten(1, 2).diff(dim=-1), kernel.to(x))

    mixing = basis.linear(blurred_differences, sources=2)
    with pytest.raises(BasisError, match=r"mixing\.fit"):
        mixing.adjoint(torch.zeros(1, 3, 4, dtype=F64))
    with torch.inference_mode(inference):
        mixing = mixing.fit((1, 7)).replace(noise=0.1)
        x = torch.randn(4, 2, 1, 7, generator=g, dtype=F64)
        m = torch.randn(4, 3, 4, generator=g, dtype=F64)
        assert torch.allclose((mixing(x) * m).sum(), (x * mixing.adjoint(m)).sum())
        assert mixing.posterior_mean(x, m).shape == x.shape
    assert mixing.describe()["forward"].endswith("blurred_differences")


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((forward, lambda m: 1.01 * adjoint(m)), "not the adjoint of forward"),
        ((forward, lambda m: m), r"adjoint must return \(3, 2, 2, 5\)"),
        ((lambda x: forward(x) + 1, adjoint), "forward is not linear"),
        ((forward, lambda m: m.nonsense), "adjoint .* failed: AttributeError"),
        ((lambda x: forward(x).numpy(), adjoint), "forward must return a tensor, not ndarray"),
        (
            (lambda x: x.sum(), adjoint),
            r"returned \(\); the batch .* \(3, channels, \.\.\.\)",
        ),
        ((lambda x: forward(x)[:1], adjoint), "batch must stay first"),
        ((lambda x: x.sum(0), adjoint), r"returned \(2, 2, 5\); the batch must stay first"),
        ((lambda x: x.sum((1, 2, 3)), adjoint), "batch must stay first"),
        ((lambda x: x[:, 0] + x[:, 2], adjoint), "failed: IndexError: index 2"),
        ((lambda x: forward(x) * torch.nan, adjoint), "forward returned NaN"),
        ((lambda x: forward(x) * torch.inf,), "forward returned NaN or infinite"),
        ((forward, lambda m: adjoint(m) * torch.nan), "adjoint returned NaN"),
        ((lambda x: forward(x).long(), adjoint), "must return floats, not int64"),
        ((lambda x, scale: forward(x),), "forward .* failed: TypeError"),
        ((lambda x: forward(x).detach(),), "give adjoint="),
    ],
)
def test_wrong_functions_are_named(functions, message):
    with pytest.raises(BasisError, match=message) as caught:
        basis.linear(*functions).fit(SHAPE)
    assert "\n" not in str(caught.value)


def test_functions_that_fail_later_are_named():
    mixing = basis.linear(lambda x: forward(x) if len(x) == 3 else x.sum(), adjoint).fit(SHAPE)
    with pytest.raises(BasisError, match="the batch must stay first"):
        mixing(torch.zeros(4, 2, *SHAPE))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: basis.linear(forward, 3), "must be functions"),
        (lambda: basis.linear(forward, adjoint, sources=0), "sources must be"),
        (lambda: basis.convolution(torch.ones(2, 4)), "odd sizes"),
        (lambda: basis.convolution("a"), "kernels must be an array"),
        (lambda: basis.convolution(torch.ones(3)), "one to three dimensions"),
        (lambda: basis.convolution(torch.zeros(2, 3)), "not all zero"),
        (lambda: basis.convolution(torch.ones(2, 3, 3)).fit(SHAPE), "do not fit sources"),
        (lambda: basis.downsample(0), "factor must be"),
        (lambda: basis.downsample(2, (0.0,)), "not all be zero"),
        (lambda: basis.downsample(2).fit(SHAPE), "multiples of 2"),
    ],
)
def test_wrong_arguments_are_named(make, message):
    with pytest.raises(BasisError, match=message):
        make()


def test_long_kernels_by_fourier_agree_with_short_ones():
    g = torch.Generator().manual_seed(0)
    kernels = torch.randn(2, 3, generator=g, dtype=F64)
    long = torch.zeros(2, 301, dtype=F64)
    long[:, 149:152] = kernels
    x = torch.randn(2, 2, 1, 500, generator=g, dtype=F64)
    short, padded = basis.convolution(kernels), basis.convolution(long)
    m = short(x)
    assert torch.allclose(m, padded(x))
    assert torch.allclose(short.adjoint(m), padded.adjoint(m))
    impulse = torch.zeros(1, 2, 1, 7, dtype=F64)
    impulse[0, 0, 0, 3] = 1
    assert torch.allclose(short(impulse)[0, 0, 2:5], kernels[0])
    assert torch.equal(basis.convolution(torch.ones(2, 3)).interchangeable, torch.ones(2, 2) == 1)
