import pytest
import torch
from PIL import Image

import basis
from basis import BasisError, GaussianMixture
from basis._colorize import colorize_batch, far_apart
from basis.samplers import Ancestral


@pytest.fixture
def two_colors():
    """Flat tiles, reddish or bluish, of equal brightness: a grey photo has two explanations."""
    means = torch.empty(2, 3, 4, 4, dtype=torch.float64)
    for number, color in enumerate(((0.7, 0.5, 0.3), (0.3, 0.5, 0.7))):
        means[number] = torch.tensor(color, dtype=torch.float64)[:, None, None]
    return GaussianMixture(means, torch.full((2,), 1e-4), torch.ones(2))


@pytest.fixture
def often_red(two_colors):
    """Flat tiles, three times as often reddish as bluish."""
    means = two_colors.means.view(2, 3, 4, 4)
    return GaussianMixture(means, torch.tensor([1e-4, 1e-2]), torch.tensor([3.0, 1.0]))


@pytest.fixture
def grey():
    return torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)


def colors_of(result):
    """(batch, samples, 3, height, width)."""
    return result.samples[:, :, 0]


def test_colors_are_those_of_the_prior_and_keep_the_grey(two_colors, grey):
    r = basis.colorize(grey, two_colors, samples=8)
    assert r.sources.shape == (1, 1, 3, 4, 4) and r.samples.shape == (1, 8, 1, 3, 4, 4)
    assert (colors_of(r).mean(dim=2) - grey).abs().max() < 1 / 255 and r.residual < 1 / 255
    red = colors_of(r)[0, :, 0].mean(dim=(1, 2))
    assert all(min(abs(x - 0.7), abs(x - 0.3)) < 0.05 for x in red.tolist())
    assert red.max() > 0.6 and red.min() < 0.4  # both explanations are sampled
    one = basis.colorize(grey, two_colors)
    assert one.samples is None and one.sources.shape == (1, 1, 3, 4, 4)


def test_saturation(two_colors, grey):
    plain = colors_of(basis.colorize(grey, two_colors, samples=4))
    strong = colors_of(basis.colorize(grey, two_colors, samples=4, saturation=1.5))
    assert torch.allclose(strong - 0.5, 1.5 * (plain - 0.5), atol=1e-6)
    full = colors_of(basis.colorize(grey, two_colors, samples=4, saturation=9))
    assert full.min() >= 0 and full.max() <= 1 and (full.mean(dim=2) - grey).abs().max() < 1 / 255


def test_the_most_probable_colors_come_first(often_red, grey):
    r = basis.colorize(grey.expand(2, -1, -1, -1), often_red, samples=12)
    assert r.energies.shape == (2, 12) and (r.energies.diff(dim=1) >= 0).all()
    assert (r.energies[:, -1] > r.energies[:, 0]).all()
    assert torch.equal(r.samples[:, 0], r.sources)
    # The energy prefers the narrow color, whose density is larger.
    assert (r.sources[:, 0, 0].mean(dim=(1, 2)) - 0.7).abs().max() < 0.05


def test_samples_far_apart_are_kept():
    colors = torch.zeros(2, 5, 3, 16, 16)
    for index, red in enumerate((0.0, 0.01, 0.3, 0.31, -0.2)):
        colors[:, index, 0], colors[:, index, 2] = red, -red
    energies = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    # From the most probable (-0.2; 0.0) the farthest, and so on; by energy in the end.
    assert far_apart(colors, energies, 3).tolist() == [[4, 3, 1], [0, 3, 4]]
    assert far_apart(colors, energies, 1).tolist() == [[4], [0]]
    # Grain is not a color.
    grain = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(0))
    colors[:, 1] += 0.2 * (grain - grain.mean(dim=0))
    assert far_apart(colors, energies, 3).tolist()[1] == [0, 3, 4]
    alike = torch.zeros(1, 4, 3, 4, 4)
    assert far_apart(alike, torch.zeros(1, 4), 3).tolist() == [[0, 1, 2]]


def test_diverse_samples_differ_more(often_red, grey):
    grey = grey.expand(8, -1, -1, -1)
    found = [basis.colorize(grey, often_red, samples=2, diverse=d) for d in (False, True)]
    assert found[0].samples.shape == found[1].samples.shape
    red = [colors_of(r)[:, :, 0].mean(dim=(2, 3)) for r in found]
    different = [((x[:, 0] - x[:, 1]).abs() > 0.3).sum() for x in red]
    assert different[1] > different[0]


def test_a_preview_is_cheap_at_the_size_of_the_prior(two_colors):
    grey = torch.full((1, 1, 21, 33), 0.5, dtype=torch.float64)
    preview = basis.colorize(grey, two_colors, size=16, preview=True)
    assert preview.sources.shape == (1, 1, 3, 21, 33)
    full = basis.colorize(grey, two_colors, size=16)
    assert preview.evaluations < full.evaluations / 10
    assert (preview.sources.mean(dim=2) - grey).abs().max() < 1 / 255


def test_large_photos_keep_their_detail_and_get_one_color(two_colors):
    g = torch.Generator().manual_seed(0)
    grey = 0.5 + 0.02 * torch.randn(1, 1, 21, 33, generator=g, dtype=torch.float64)
    r = basis.colorize(grey, two_colors, size=8, samples=16)
    assert r.samples.shape == (1, 16, 1, 3, 21, 33)
    assert (colors_of(r).mean(dim=2) - grey).abs().max() < 1e-6
    # Neighboring tiles agree on a color in most samples.
    uniform = colors_of(r)[0, :, 0].flatten(1).std(dim=1) < 0.1
    assert uniform.double().mean() >= 0.5


def test_photos_of_any_kind(two_colors, grey, tmp_path):
    r = basis.colorize(grey.numpy(), two_colors)
    assert torch.equal(r.sources, basis.colorize(grey, two_colors).sources)
    assert basis.colorize(grey, two_colors, method=30).evaluations <= 30
    values = torch.tensor([0.0, 0.02, 0.98, 1.0], dtype=torch.float64).expand(1, 1, 4, 4)
    extreme = basis.colorize(values, two_colors).sources
    assert extreme.min() >= 0 and extreme.max() <= 1
    photo = (torch.rand(6, 9, 3) * 255).byte().numpy()
    Image.fromarray(photo).save(tmp_path / "photo.png")
    found = basis.colorize(tmp_path / "photo.png", two_colors, method=Ancestral(steps=3))
    expected = torch.from_numpy(photo).float().div(255).mean(dim=2)
    assert torch.allclose(found.observation[0, 0], expected, atol=1e-6)
    assert found.item_names == ("photo",)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"saturation": -1}, "-1"),
        ({"prior": GaussianMixture(torch.zeros(1, 1, 4, 4), torch.ones(1))}, "(1, 4, 4)"),
        ({"photo": torch.rand(1, 2, 4, 4)}, "(1, 2, 4, 4)"),
        ({"prior": 7}, "7"),
        ({"size": 0}, "size"),
        ({"diverse": True}, "samples"),
        ({"preview": True, "method": "gibbs"}, "preview"),
    ],
)
def test_bad_arguments_are_named(two_colors, grey, change, named):
    with pytest.raises(BasisError) as caught:
        basis.colorize(**{"photo": grey, "prior": two_colors, **change})
    assert named in str(caught.value)


def test_repeated_photos_differ_in_parts_as_in_a_whole(two_colors, grey):
    whole = basis.colorize(grey.expand(3, -1, -1, -1), two_colors).sources
    assert not torch.equal(whole[0], whole[1])
    last = colorize_batch(grey, two_colors, occurrences=[2]).sources
    assert torch.allclose(last[0], whole[2], atol=1e-6)
