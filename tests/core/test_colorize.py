"""Colours for grey photos, small and large."""

import json

import pytest
import torch
from PIL import Image

import basis
from basis._colorize import far_apart
from basis.cli import main
from basis.errors import BasisError
from basis.jobs.store import open_store
from basis.nn.kinds import describe_module
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.gaussian import GaussianMixture
from basis.store.folder import save_prior


@pytest.fixture
def two_colours():
    """Flat tiles, reddish or bluish, of one brightness: a grey photo has two explanations."""
    means = torch.empty(2, 3, 4, 4, dtype=torch.float64)
    for number, colour in enumerate(((0.7, 0.5, 0.3), (0.3, 0.5, 0.7))):
        means[number] = torch.tensor(colour, dtype=torch.float64)[:, None, None]
    return GaussianMixture(means, torch.full((2,), 1e-4), torch.ones(2))


def test_colours_are_those_of_the_prior_and_their_mean_is_the_photo(two_colours):
    grey = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    coloured, _ = basis.colorize(grey, two_colours, samples=8)
    assert coloured.shape == (1, 8, 3, 4, 4)
    assert (coloured.mean(dim=2) - grey).abs().max() < 1 / 255
    red = coloured[0, :, 0].mean(dim=(1, 2))
    assert all(min(abs(r - 0.7), abs(r - 0.3)) < 0.05 for r in red.tolist())
    assert red.max() > 0.6 and red.min() < 0.4, "both explanations are drawn"


def test_vivid_colours_are_stronger_and_keep_the_grey(two_colours):
    grey = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    drawn, result = basis.colorize(grey, two_colours, samples=4)
    vivid, same = basis.colorize(grey, two_colours, samples=4, vivid=1.5)
    assert torch.equal(result.samples, same.samples)
    assert torch.allclose(vivid - 0.5, 1.5 * (drawn - 0.5), atol=1e-6)
    full, _ = basis.colorize(grey, two_colours, samples=4, vivid=9)
    assert full.min() >= 0 and full.max() <= 1 and (full.mean(dim=2) - grey).abs().max() < 1 / 255
    with pytest.raises(BasisError, match="vivid must be a number of 0 or more, not -1"):
        basis.colorize(grey, two_colours, vivid=-1)


@pytest.fixture
def often_red():
    """Flat tiles, three times as often reddish as bluish."""
    means = torch.empty(2, 3, 4, 4, dtype=torch.float64)
    for number, colour in enumerate(((0.7, 0.5, 0.3), (0.3, 0.5, 0.7))):
        means[number] = torch.tensor(colour, dtype=torch.float64)[:, None, None]
    return GaussianMixture(means, torch.tensor([1e-4, 1e-2]), torch.tensor([3.0, 1.0]))


def test_the_most_plausible_colouring_is_first(often_red):
    grey = torch.full((2, 1, 4, 4), 0.5, dtype=torch.float64)
    coloured, result = basis.colorize(grey, often_red, samples=12)
    assert result.energies.shape == (2, 12) and (result.energies.diff(dim=1) >= 0).all()
    assert (result.energies[:, -1] > result.energies[:, 0]).all()
    # The same colourings as without an order, and the result's samples are in that of the answer.
    drawn, plain = basis.colorize(grey, often_red, samples=12, choose="first")
    assert torch.equal(drawn.flatten(2).sum(dim=2).sort().values,
                       coloured.flatten(2).sum(dim=2).sort().values)  # fmt: skip
    assert not torch.equal(drawn, coloured) and (plain.energies == 0).all()
    assert (result.samples[:, :, 0] - coloured).abs().max() < 1e-6
    assert torch.equal(result.samples[:, 0], result.sources)
    # What the energy prefers is the narrow colour, of which there is more in one place.
    assert (coloured[:, 0, 0].mean(dim=(1, 2)) - 0.7).abs().max() < 0.05


def test_colourings_far_apart_are_kept():
    colours = torch.zeros(2, 5, 3, 16, 16)
    for place, red in enumerate((0.0, 0.01, 0.3, 0.31, -0.2)):
        colours[:, place, 0], colours[:, place, 2] = red, -red
    energies = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    # From the most plausible (-0.2; 0.0) the farthest, and so on; the most plausible first.
    assert far_apart(colours, energies, 3).tolist() == [[4, 3, 1], [0, 3, 4]]
    assert far_apart(colours, energies, 1).tolist() == [[4], [0]]
    # A grain of pixels is no other colour.
    grain = torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(0))
    colours[:, 1] += 0.2 * (grain - grain.mean(dim=0))
    assert far_apart(colours, energies, 3).tolist()[1] == [0, 3, 4]
    alike = torch.zeros(1, 4, 3, 4, 4)
    assert far_apart(alike, torch.zeros(1, 4), 3).tolist() == [[0, 1, 2]]


def test_diverse_colourings_show_what_is_seldom_drawn(often_red):
    grey = torch.full((8, 1, 4, 4), 0.5, dtype=torch.float64)
    plain, _ = basis.colorize(grey, often_red, samples=2)
    diverse, result = basis.colorize(grey, often_red, samples=2, diverse=True)
    assert diverse.shape == plain.shape and result.samples.shape[1] == 2
    both = [(c[:, 0, 0] - c[:, 1, 0]).abs().mean(dim=(1, 2)) > 0.3 for c in (plain, diverse)]
    assert both[1].sum() > both[0].sum()
    with pytest.raises(BasisError, match="diverse colourings need samples of 2 or more, not 1"):
        basis.colorize(grey, often_red, diverse=True)


def test_a_preview_takes_few_evaluations_at_the_size_of_the_prior(two_colours):
    grey = torch.full((1, 1, 21, 33), 0.5, dtype=torch.float64)
    coloured, result = basis.colorize(grey, two_colours, side=16, preview=True)
    assert coloured.shape == (1, 1, 3, 21, 33) and result.sources.shape[3:] == (4, 4)
    _, longer = basis.colorize(grey, two_colours, side=16)
    assert result.evaluations < longer.evaluations / 10
    assert (coloured.mean(dim=2) - grey).abs().max() < 1 / 255
    for name, value in (("sampler", "gibbs"), ("effort", 30), ("steps", 9)):
        with pytest.raises(BasisError, match=f"a preview has its own .* leave out {name}"):
            basis.colorize(grey, two_colours, preview=True, **{name: value})


def test_large_photos_keep_their_detail_and_get_one_colour(two_colours):
    g = torch.Generator().manual_seed(0)
    grey = 0.5 + 0.02 * torch.randn(1, 1, 21, 33, generator=g, dtype=torch.float64)
    coloured, result = basis.colorize(grey, two_colours, side=8, samples=16)
    assert coloured.shape == (1, 16, 3, 21, 33) and result.sources.shape[3:] == (5, 8)
    assert (coloured.mean(dim=2) - grey).abs().max() < 1e-6
    # Neighbouring tiles agree on a colour in most draws (seven of ten): no seam of red and blue.
    one_colour = coloured[0, :, 0].flatten(1).std(dim=1) < 0.1
    assert one_colour.double().mean() >= 0.5


def test_colours_stay_in_range(two_colours):
    grey = torch.tensor([0.0, 0.02, 0.98, 1.0], dtype=torch.float64).expand(1, 1, 4, 4)
    coloured, _ = basis.colorize(grey, two_colours)
    assert coloured.min() >= 0 and coloured.max() <= 1
    assert (coloured.mean(dim=2) - grey).abs().max() < 1 / 255


def test_grey_priors_and_other_shapes_are_refused(two_colours):
    with pytest.raises(BasisError, match="prior of colour images"):
        basis.colorize(torch.rand(1, 1, 28, 28), basis.load_prior("mnist"))
    with pytest.raises(BasisError, match="grey photos must be"):
        basis.colorize(torch.rand(1, 3, 4, 4), two_colours)
    with pytest.raises(BasisError, match="a prior's name or folder"):
        basis.colorize(torch.rand(1, 1, 4, 4), 7)
    with pytest.raises(BasisError, match="side must be"):
        basis.colorize(torch.rand(1, 1, 4, 4), two_colours, side=0)


def test_arrays_and_efforts_are_taken(two_colours):
    grey = torch.full((1, 1, 4, 4), 0.5, dtype=torch.float64)
    ours, _ = basis.colorize(grey.numpy(), two_colours)
    assert torch.equal(ours, basis.colorize(grey, two_colours)[0])
    _, result = basis.colorize(grey, two_colours, effort=30)
    assert result.evaluations <= 30


def test_any_mixing_goes_with_a_prior_of_colour(two_colours):
    truth = two_colours.means.view(1, 2, 3, 4, 4).float()
    mixing = basis.mixtures([(1, 0.5), (0.3, 1)])
    result = basis.separate(mixing(truth), two_colours, mixing=mixing, sampler="gibbs", steps=20)
    assert (result.sources - truth).abs().max() < 0.05


def test_the_command_writes_pictures(tmp_path, capsys):
    torch.manual_seed(0)
    module = Denoiser(
        UNet(UNetConfig(channels=3, widths=(8, 8), blocks=(1, 1), embedding=16)), 0.5, 0.3
    )
    card = {
        "name": "tiny", "architecture": describe_module(module), "shape": [3, 8, 8],
        "sigma_min": 0.01, "sigma_max": 2.0,
    }  # fmt: skip
    save_prior(tmp_path / "tiny", dict(module.named_parameters()), card)
    photo = tmp_path / "photo.png"
    Image.fromarray((torch.rand(12, 20, 3) * 255).byte().numpy()).save(photo)
    words = ["colorize", str(photo), "--prior", str(tmp_path / "tiny"), "--samples", "2"]
    assert main([*words, "--side", "10", "--out", str(tmp_path / "out")]) == 0
    assert "panel.png" in capsys.readouterr().out
    assert Image.open(tmp_path / "out" / "photo-colours2.png").size == (20, 12)
    record = json.loads((tmp_path / "out" / "photo-run.json").read_text())
    assert record["drawn_at"] == [8, 10]
    assert record["largest_difference_from_grey_in_8_bit_steps"] < 1
    assert record["energies"] == sorted(record["energies"]) and not record["preview"]
    quick = [*words, "--preview", "--diverse", "--out", str(tmp_path / "quick")]
    assert main(quick) == 0
    again = json.loads((tmp_path / "quick" / "photo-run.json").read_text())
    assert again["drawn_at"] == [8, 8] and again["preview"] and again["diverse"]
    assert len(list((tmp_path / "quick").glob("photo-colours*.png"))) == 2
    assert main([*words[:-1], "1", "--diverse", "--out", str(tmp_path / "o")]) == 2
    assert "--diverse needs --samples of 2 or more" in capsys.readouterr().err
    job = [*quick[:-2], "--job", "--size", "8", "--out", str(tmp_path / "job")]
    assert main(job) == 0
    assert open_store(tmp_path / "job")["colours"].shape == (1, 2, 3, 8, 8)
    assert main(["colorize", str(photo), "--prior", "mnist", "--out", str(tmp_path / "o")]) == 2
    assert "prior of colour images" in capsys.readouterr().err
    assert main(["colorize", str(tmp_path / "no.png"), "--prior", str(tmp_path / "tiny")]) == 2


def test_shipped_photos_are_named_on_the_command_line(tmp_path, capsys):
    words = ["colorize", "sample-photos:4", "--samples", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    assert "/255 from the grey at most" in capsys.readouterr().out
    assert Image.open(tmp_path / "sample-photos-4-colours1.png").size == (32, 32)
    assert main(["colorize", "sample-photos:128", "--out", str(tmp_path)]) == 2
    assert "test images 0 to 127" in capsys.readouterr().err
