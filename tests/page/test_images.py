"""Pictures that visitors choose: samples, uploads, drawings."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from basis.errors import BasisError
from basis.page.access import Limits
from basis.page.images import (
    as_digit,
    as_square,
    at_most,
    read_strokes,
    read_upload,
    sample_numbers,
    sample_picture,
    samples,
)

LIMITS = Limits()


def write_picture(path, size=(40, 30), mode="RGB", **options):
    rng = np.random.default_rng(0)
    shape = (size[1], size[0]) + ((3,) if mode == "RGB" else ())
    Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(path, **options)
    return path


def test_pictures_are_read_whatever_their_name(tmp_path):
    assert read_upload(write_picture(tmp_path / "a.png"), LIMITS).shape == (3, 30, 40)
    assert read_upload(write_picture(tmp_path / "b.jpg", mode="L"), LIMITS).shape == (1, 30, 40)
    other = write_picture(tmp_path / "c.txt", format="PNG")
    assert read_upload(other, LIMITS).shape == (3, 30, 40)


def test_other_files_are_refused_in_one_line_without_their_folder(tmp_path):
    text = tmp_path / "letter.png"
    text.write_text("this is not a picture")
    broken = write_picture(tmp_path / "broken.png", (200, 200))
    broken.write_bytes(broken.read_bytes()[:20000])
    frames = [Image.new("L", (32, 32), i * 40) for i in range(3)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "moving.png", save_all=True, append_images=frames[1:])
    Image.new("L", (32, 32)).save(tmp_path / "still.gif")
    cases = {
        text: "letter.png cannot be read",
        broken: "broken.png is broken",
        tmp_path / "moving.gif": "3 frames",
        tmp_path / "moving.png": "3 frames",
        tmp_path / "still.gif": "GIF",
        write_picture(tmp_path / "tiny.png", (4, 4)): "8 x 8",
        tmp_path / "gone.png": "gone.png did not arrive",
    }
    for path, words in cases.items():
        with pytest.raises(BasisError) as caught:
            read_upload(path, LIMITS)
        message = str(caught.value)
        assert words in message and "\n" not in message and str(tmp_path) not in message
    large = write_picture(tmp_path / "large.png", (300, 300))
    with pytest.raises(BasisError, match=r"0\.3 MB; at most 0\.1 MB"):
        read_upload(large, Limits(megabytes=0.1))
    with pytest.raises(BasisError, match="300 x 300 pixels"):
        read_upload(large, Limits(pixels=10_000))


@pytest.mark.parametrize("side", [8_000, 100_000])
def test_too_many_pixels_are_refused_before_decoding(tmp_path, side):
    def chunk(kind, data):
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b""))
    with pytest.raises(BasisError, match="pixels"):
        read_upload(path, LIMITS)


def strokes_url(alpha):
    file = io.BytesIO()
    Image.merge("LA", (Image.new("L", alpha.shape[::-1], 255), Image.fromarray(alpha))).save(
        file, "PNG"
    )
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def test_a_drawing_becomes_a_centered_digit():
    alpha = np.zeros((280, 280), dtype=np.uint8)
    alpha[20:120, 200:220] = 255  # a one, in a corner
    digit = as_digit(read_strokes(strokes_url(alpha)))
    assert digit.shape == (1, 28, 28) and digit.max() > 0.9
    rows = (digit[0] > 0.5).any(dim=1).nonzero().flatten()
    assert 18 <= len(rows) <= 21
    mass = digit[0] / digit.sum()
    assert abs((mass.sum(dim=1) * torch.arange(28)).sum().item() - 13.5) < 0.6
    # Dark ink on paper that is not quite white gives the same digit.
    paper = torch.from_numpy(230 - alpha.astype(np.float32) * 0.8)[None] / 255
    assert (as_digit(paper) - digit).abs().max() < 0.1


def test_bad_drawings_are_refused():
    with pytest.raises(BasisError, match="empty"):
        as_digit(torch.zeros(1, 280, 280))
    large = strokes_url(np.zeros((1001, 1001), dtype=np.uint8))
    start = "data:image/png;base64,"
    for url in ("", f"{start}!!!", f"{start}aGVsbG8=", None, start + "A" * 3_000_000, large):
        with pytest.raises(BasisError, match="did not arrive"):
            read_strokes(url)


def test_photos_are_cropped_and_resized():
    photo = torch.rand(3, 60, 90)
    assert as_square(photo, 32, 3).shape == (3, 32, 32)
    assert as_square(photo[:1], 48, 3).shape == (3, 48, 48)
    assert at_most(photo, 45, least=8).shape == (3, 30, 45)
    assert at_most(photo, 1024).shape == (3, 60, 90)
    assert at_most(torch.rand(3, 8, 4000), 64).shape == (3, 32, 64)  # the ends are cut off
    assert at_most(photo, 32).shape == (3, 32, 32)
    own = sample_picture("sample-photos", 4).image
    assert torch.equal(as_square(own, 32, 3), own)


def test_every_page_of_samples_has_all_digits():
    labels = samples("sample").labels
    for page in (0, 1, 40):
        assert sorted(labels[sample_numbers("sample", page)].tolist()) == sorted([*range(10)] * 3)
    assert not set(sample_numbers("sample", 0)) & set(sample_numbers("sample", 1))
