"""Panels: what is drawn of pictures and of sound, by Pillow alone."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.plots import panels
from basis.plots.drawing import grid, to_picture
from basis.plots.panels import pictures_panel, samples_panel, separation_panel, trajectory_panel


class Sum:
    """A mixing as panels see one: any map with a residual."""

    def __call__(self, x):
        return x.sum(dim=1)

    def residual(self, x, m):
        return m - self(x)


def pixels(picture):
    return np.asarray(picture.convert("RGB")).astype(int)


def test_pictures_show_their_range():
    values = torch.tensor([[-1.0, 0.0, 1.0, 5.0]])[None]
    assert pixels(to_picture(values, (-1.0, 1.0)))[0, :, 0].tolist() == [0, 128, 255, 255]
    assert pixels(to_picture(values))[0, :, 0].tolist() == [0, 0, 255, 255]
    assert pixels(to_picture(values, (None, None)))[0, :, 0].tolist() == [0, 42, 85, 255]
    flat = to_picture(torch.full((1, 2, 2), 3.0), (None, None))
    assert pixels(flat).min() == pixels(flat).max()
    assert to_picture(torch.rand(5, 4, 3)).size == (15, 4)  # no color picture: side by side
    with pytest.raises(BasisError, match="cannot be drawn"):
        to_picture(torch.zeros(1, 2, 3, 4))


@pytest.mark.parametrize("length", [2, 30, 5000])
def test_a_waveform_goes_through_its_values(length):
    rising = torch.linspace(-2, 2, length)[None]
    drawn = pixels(to_picture(rising, (-2.0, 2.0), cell=100))
    assert drawn.shape == (100, 200, 3)
    blue = (drawn == (59, 91, 219)).all(axis=-1)
    assert blue.any(axis=0).all()  # no column without a line
    heights = [np.flatnonzero(column).mean() for column in blue.T]
    assert heights[0] > 95 and heights[-1] < 5
    assert np.all(np.diff(heights) < 1.5)  # up and nowhere down
    two = to_picture(rising.repeat(2, 1), (-2.0, 2.0), cell=100)
    assert two.size == (200, 200)
    assert to_picture(torch.ones(1, 1), cell=20).size == (40, 20)
    one = to_picture(rising[0], (-2.0, 2.0), cell=100)
    assert np.array_equal(pixels(one), drawn)


def test_a_panel_needs_nothing_but_a_map_and_its_residual():
    truth = torch.rand(3, 2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    ours = separation_panel(truth.sum(1), truth, Sum(), truth=truth)
    theirs = separation_panel(truth.sum(1), truth, mixture((1.0, 1.0)), truth=truth)
    assert np.array_equal(pixels(ours), pixels(theirs))
    # The order of the sources is found: flipped ones give the same panel.
    flipped = separation_panel(truth.sum(1), truth.flip(1), Sum(), truth=truth)
    assert np.array_equal(pixels(ours), pixels(flipped))
    assert not np.array_equal(
        pixels(ours), pixels(separation_panel(truth.sum(1), truth * 0.9, Sum(), truth=truth))
    )


@pytest.mark.parametrize("size", [(64,), (8, 8)])
def test_panels_of_negative_signals(size):
    g = torch.Generator().manual_seed(0)
    truth = torch.randn(2, 2, 1, *size, generator=g) - 5
    bounds = {"value_range": (None, None)}
    panel = separation_panel(
        truth.sum(1), truth.flip(1), Sum(), truth=truth, names=["a", "b"], title="t", **bounds
    )
    assert len(np.unique(pixels(panel).reshape(-1, 3), axis=0)) > 5
    states = {1.0: truth + torch.randn(truth.shape, generator=g), 0.1: truth}
    ranged = trajectory_panel(truth.sum(1), states, **bounds)
    assert ranged.size == trajectory_panel(truth.sum(1), states).size
    assert not np.array_equal(pixels(ranged), pixels(trajectory_panel(truth.sum(1), states)))
    rows = pictures_panel(truth, ["one", "two"], **bounds)
    assert rows.size[0] > rows.size[1] / 2
    sheet = grid(truth[:, 0], 2, cell=32, **bounds)
    assert isinstance(sheet, Image.Image) and np.ptp(pixels(sheet)) > 100


def test_samples_show_their_modes():
    samples = torch.rand(2, 3, 2, 1, 8, 8)
    plain = samples_panel(samples[:, 0].sum(1), samples)
    modes = [{0: 1, 1: 1, 2: 2}, {0: 1, 1: 1, 2: 1}]
    captioned = samples_panel(samples[:, 0].sum(1), samples, modes=modes, names=["a", "b"])
    assert captioned.size > plain.size
    sound = torch.randn(1, 2, 2, 1, 300)
    assert samples_panel(sound[:, 0].sum(1), sound, value_range=(None, None)).size[1] > 168


def test_uncertainty_and_plausibility_are_shown():
    truth = torch.rand(2, 2, 3, 8, 8)
    plain = separation_panel(truth.sum(1), truth, Sum(), truth=truth)
    more = separation_panel(
        truth.sum(1), truth, Sum(), truth=truth, std=truth, plausibility=torch.tensor([0.5, 0.001])
    )
    assert more.size[0] > plain.size[0]


def test_hidden_pixels_are_not_shown():
    mask = torch.ones(8, 8)
    mask[:, 4:] = 0
    mixing = mixture((1.0, 1.0)).replace(mask=mask)
    sources = torch.full((1, 2, 1, 8, 8), 0.25)
    observation = torch.full((1, 1, 8, 8), 0.5)
    shown = []
    for hidden in (0.0, 0.5, 40.0):
        observation[..., 4:] = hidden
        shown.append(pixels(separation_panel(observation, sources, mixing)))
    assert all(np.array_equal(shown[0], other) for other in shown[1:])
    assert (shown[0] == (150, 170, 205)).all(axis=-1).sum() >= 2 * 32 * 14**2
    plain = pixels(separation_panel(observation, sources, mixture((1.0, 1.0))))
    assert not (plain == (150, 170, 205)).all(axis=-1).any()


def test_a_grid_keeps_pixels_whole():
    sheet = grid(torch.ones(3, 3, 8, 8), 2, cell=20, gap=1)
    assert sheet.size == (2 * 17 + 1, 2 * 17 + 1)
    assert sheet.getpixel((1, 1)) == (255, 255, 255)


def test_titles_with_greek_letters_and_accents_have_glyphs():
    from basis.plots.drawing import _font

    font = _font(13)
    unknown = bytes(font.getmask("\uf8ff"))
    for letter in "σ×±éüñαжł–":
        assert bytes(font.getmask(letter)) != unknown, letter


def test_panels_need_no_plotting_library(tmp_path):
    code = (
        "import sys, torch; sys.modules['matplotlib'] = None; from basis import plots, mixture; "
        "x = torch.rand(1, 2, 1, 4, 4); m = mixture((1.0, 1.0)); "
        "plots.separation_panel(m(x), x, m, truth=x).save(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "p.png")], check=True)
    assert (tmp_path / "p.png").is_file()


def test_captions_of_plausibility_are_neutral(monkeypatch):
    seen = []
    real = panels._column
    monkeypatch.setattr(panels, "_column", lambda *a, **k: (seen.append(a), real(*a, **k))[1])
    x = torch.rand(2, 2, 3, 8, 8)
    separation_panel(x.sum(1), x, Sum(), plausibility=torch.tensor([0.85, 0.001]))
    assert seen[0][-1] == ["plausibility 0.85", "plausibility 0.001"]
