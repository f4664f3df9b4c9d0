"""Metrics against their definitions, for signals of any shape and range."""

import math

import pytest
import torch

from basis import metrics
from basis.errors import BasisError


def signals(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("size", [(4, 4), (32,), (3, 2, 2), ()])
def test_psnr_of_any_shape_under_the_best_permutation(size):
    truth = signals(3, 3, 2, *size).sigmoid()
    estimate = truth + 0.1
    expected = -10 * math.log10(0.1**2)
    low, high = truth.min().item() - 1, truth.max().item() + 1  # so that nothing is clamped
    shuffled = estimate[:, [2, 0, 1]]
    found = metrics.psnr(shuffled, truth, None, peak=1.0, permute=True)
    assert found.tolist() == pytest.approx([expected] * 3)
    assert (metrics.psnr(shuffled, truth, None, peak=1.0) < expected - 1).all()
    wide = metrics.psnr(shuffled, truth, (low, high), permute=True)
    assert wide.tolist() == pytest.approx([expected + 20 * math.log10(high - low)] * 3)


def test_psnr_clamps_to_the_value_range():
    truth = torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)
    estimate = torch.tensor([-5.0, 0.9]).view(1, 1, 1, 2)
    assert metrics.psnr(estimate, truth).item() == pytest.approx(-10 * math.log10(0.01 / 2))
    assert metrics.psnr(truth, truth).item() == pytest.approx(100.0)
    half = metrics.psnr(estimate, truth, (None, 1.0), peak=1.0)
    assert half.item() == pytest.approx(-10 * math.log10((25 + 0.01) / 2))


def test_psnr_does_not_depend_on_the_scale():
    truth = signals(2, 2, 1, 16).sigmoid()
    estimate = truth + 0.2 * signals(2, 2, 1, 16, seed=1)
    assert torch.allclose(
        metrics.psnr(255 * estimate - 100, 255 * truth - 100, (-100.0, 155.0)),
        metrics.psnr(estimate, truth),
    )


def test_wrong_arguments():
    x = signals(1, 2, 1, 4)
    with pytest.raises(BasisError, match="peak="):
        metrics.psnr(x, x, (None, 1.0))
    with pytest.raises(BasisError, match="above 0"):
        metrics.psnr(x, x, (1.0, 1.0))
    for other in (x[:, :1], x[..., :3]):
        with pytest.raises(BasisError, match="same shape"):
            metrics.psnr(other, x)
        with pytest.raises(BasisError, match="same shape"):
            metrics.si_sdr(other, x)


def test_negative_signals_are_put_in_order():
    """By distance: a PSNR that clamps to [0, 1] cannot distinguish negative signals."""
    truth = torch.stack([torch.full((1, 8), -1.0), torch.full((1, 8), -3.0)])[None]
    estimate = truth.flip(1) + 0.1
    assert metrics.psnr_matrix(estimate, truth).flatten().unique().numel() == 1
    assert torch.equal(metrics.reorder(estimate, truth), truth + 0.1)
    order = metrics.best_permutation(-metrics.squared_distances(estimate, truth))
    assert order.tolist() == [[1, 0]]


def test_reorder_finds_any_permutation():
    truth = signals(5, 4, 2, 3)
    orders = torch.stack(
        [torch.randperm(4, generator=torch.Generator().manual_seed(i)) for i in range(5)]
    )
    shuffled = torch.stack([t[o] for t, o in zip(truth, orders, strict=True)])
    assert torch.equal(metrics.reorder(shuffled, truth), truth)


def test_snr_and_si_sdr_by_their_definitions():
    truth = signals(2, 2, 1, 4096)
    noise = signals(2, 2, 1, 4096, seed=1)
    # Noise orthogonal to its signal, with a tenth of its amplitude: 20 dB by both.
    along = (noise * truth).sum(-1, keepdim=True) / truth.square().sum(-1, keepdim=True)
    noise = noise - along * truth
    noise = 0.1 * noise * truth.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
    estimate = (truth + noise).flip(1)
    assert metrics.snr(estimate, truth, permute=True).tolist() == pytest.approx([20.0] * 2)
    assert metrics.si_sdr(estimate, truth, permute=True).tolist() == pytest.approx([20.0] * 2)
    assert metrics.si_sdr(-3 * estimate, truth, permute=True).tolist() == pytest.approx([20.0] * 2)
    assert (metrics.snr(-3 * estimate, truth, permute=True) < 0).all()
    assert metrics.snr(truth, truth).tolist() == pytest.approx([100.0] * 2)
    silent = torch.zeros_like(truth)
    assert metrics.si_sdr(silent, truth, permute=True).tolist() == pytest.approx([-100.0] * 2)
    assert metrics.snr(truth, silent, permute=True).tolist() == pytest.approx([-100.0] * 2)


def test_si_sdr_agrees_with_another_library():
    audio = pytest.importorskip("torchmetrics.functional.audio")
    truth = signals(3, 1, 1, 200)
    estimate = 0.5 * truth + 0.3 * signals(3, 1, 1, 200, seed=2)
    theirs = audio.scale_invariant_signal_distortion_ratio(estimate, truth).flatten()
    assert metrics.si_sdr(estimate, truth, permute=True).tolist() == pytest.approx(
        theirs.tolist(), abs=1e-6
    )
    theirs = audio.signal_noise_ratio(estimate, truth).flatten()
    assert metrics.snr(estimate, truth, permute=True).tolist() == pytest.approx(
        theirs.tolist(), abs=1e-6
    )


def published_ssim(e, t):
    """The formula of Wang et al. as it stands: (n, channels, height, width) to (n,)."""
    at = torch.arange(11, dtype=torch.float64) - 5
    line = (-at.square() / (2 * 1.5**2)).exp()
    line = line / line.sum()
    window = (line[:, None] * line).expand(e.shape[1], 1, 11, 11)

    def blur(x):
        return torch.nn.functional.conv2d(x, window, groups=e.shape[1])

    mean_e, mean_t = blur(e), blur(t)
    var_e, var_t = blur(e * e) - mean_e**2, blur(t * t) - mean_t**2
    both = blur(e * t) - mean_e * mean_t
    c1, c2 = 0.01**2, 0.03**2
    similar = (2 * mean_e * mean_t + c1) * (2 * both + c2)
    similar = similar / ((mean_e**2 + mean_t**2 + c1) * (var_e + var_t + c2))
    return similar.flatten(1).mean(dim=1)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 20), (1, 11, 11)])
def test_ssim_is_the_published_formula(shape):
    pytest.importorskip("torchmetrics")
    truth = signals(2, 2, *shape).sigmoid()
    estimate = truth + 0.2 * signals(
        2, 2, *shape, seed=1
    )  # clamped to [0, 1] before it is compared
    clamped = estimate.clamp(0, 1).flatten(0, 1)
    expected = published_ssim(clamped, truth.flatten(0, 1)).view(2, 2).mean(dim=1)
    assert metrics.ssim(estimate.flip(1), truth, permute=True).tolist() == pytest.approx(
        expected.tolist(), abs=1e-4
    )
    assert metrics.ssim(truth, truth).tolist() == pytest.approx([1.0] * 2)


def test_ssim_is_for_pictures():
    for shape in ((1, 2, 1, 64), (1, 2, 1, 10, 64)):
        with pytest.raises(BasisError, match="pictures"):
            metrics.ssim(torch.rand(shape), torch.rand(shape))


def test_summaries():
    summary = metrics.summarize(torch.tensor([1.0, 2.0, 6.0]))
    assert (summary.mean, summary.median, summary.count) == (3.0, 2.0, 3)
    assert summary.stderr == pytest.approx(math.sqrt(7 / 3))
    assert "±" not in str(metrics.summarize(torch.ones(1)))
    assert metrics.rms(torch.tensor([[3.0, 4.0]])).item() == pytest.approx(math.sqrt(12.5))


def test_arrays_are_named():
    with pytest.raises(BasisError, match="must be tensors, not ndarray"):
        metrics.psnr(torch.zeros(1, 2, 1, 4).numpy(), torch.zeros(1, 2, 1, 4))
