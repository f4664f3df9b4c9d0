"""Pictures: modes, depths, orientation, and files that are not what they claim."""

import numpy as np
import pytest
import torch
from PIL import Image
from signal_files import grey, refused, save

from basis.signals.datasets import load_images
from basis.signals.observation import read


def read_image(path):
    return read(path).values


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_read_image_grey_and_color(tmp_path, rng):
    color = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    found = read_image(save(tmp_path / "c.png", color))
    assert found.dtype == torch.float32
    assert found.shape == (3, 5, 7)
    assert np.allclose(found.permute(1, 2, 0).numpy() * 255, color, atol=1e-4)
    assert read_image(str(save(tmp_path / "g.bmp", color[..., 0]))).shape == (1, 5, 7)
    assert read(tmp_path / "g.bmp", color=True).values.shape == (3, 5, 7)


def test_sixteen_bits_keep_their_precision(tmp_path):
    values = np.array([[0, 1, 256], [32768, 65534, 65535]], np.uint16)
    for name in ("a.png", "a.tiff"):
        found = read_image(save(tmp_path / name, values))
        assert np.allclose(found[0].numpy() * 65535, values, atol=0.01)
        assert load_images(tmp_path / name).images[0, 0].tolist() == [[0, 0, 1], [128, 255, 255]]


def test_alpha_palette_and_bits(tmp_path):
    rgba = np.zeros((2, 2, 4), np.uint8)
    rgba[..., 0], rgba[..., 3] = 255, [[0, 255], [128, 0]]
    red = torch.tensor([1.0, 0, 0]).view(3, 1, 1).expand(3, 2, 2)
    assert torch.equal(read_image(save(tmp_path / "a.png", rgba)), red)
    Image.fromarray(rgba[..., :3]).quantize(4).save(tmp_path / "p.gif")
    assert torch.equal(read_image(tmp_path / "p.gif"), red)
    Image.fromarray(np.array([[255, 0]], np.uint8)).convert("1").save(tmp_path / "b.png")
    assert read_image(tmp_path / "b.png").tolist() == [[[1.0, 0.0]]]
    Image.fromarray(rgba[..., [0, 3]]).save(tmp_path / "la.png")
    assert torch.equal(read_image(tmp_path / "la.png"), torch.ones(1, 2, 2))


def test_pictures_are_turned_upright(tmp_path):
    pixels = np.zeros((4, 8), np.uint8)
    pixels[:, :4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by 90 degrees
    found = read_image(save(tmp_path / "a.png", pixels, exif=exif))
    assert found.shape == (1, 8, 4)
    assert found[0, :4].min() == 1
    assert found[0, 4:].max() == 0


def test_what_is_not_an_image_is_refused(tmp_path, rng):
    path = tmp_path / "a.png"
    path.write_text("this is text")
    for function in (read_image, load_images):
        assert f"{path} is not a picture that can be read" in refused(function, path)
    whole = save(tmp_path / "whole.png", grey(rng, 1, 64, 64)[0]).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "is not a picture that can be read" in refused(read_image, path)
    assert "there is no file" in refused(read_image, tmp_path / "none.png")


@pytest.mark.parametrize(
    "most", [60, 20]
)  # Pillow warns above its limit and raises above twice that
def test_pictures_too_large_are_refused(tmp_path, rng, monkeypatch, most):
    path = save(tmp_path / "a.png", grey(rng, 1, 10, 10)[0])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
    assert f"more than {most} pixels" in refused(read_image, path)
