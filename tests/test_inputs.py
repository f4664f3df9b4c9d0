"""Inputs as people have them: paths, pictures, arrays and names; what is converted and told."""

import inspect
import typing
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.samplers import SAMPLERS
from basis.settings import Effort, SamplerName
from basis.signals.old_observation import (
    MixtureFile,
    fit_observation,
    read_observation,
    write_mixture,
)
from basis.store.folder import write_prior

QUICK = {"sampler": "gibbs", "steps": 2}
HALF = {"alphas": (0.5, 0.5)}


@pytest.fixture
def grey():
    """One grey picture in 8 bits, (8, 8)."""
    return np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)


def pictures(grey, folder):
    """The same picture in every form that people have it in."""
    Image.fromarray(grey).save(folder / "m.png")
    rgb = np.repeat(grey[..., None], 3, axis=2)
    Image.fromarray(rgb).save(folder / "rgb.png")
    np.save(folder / "m.npy", grey)
    floats = torch.from_numpy(grey).float() / 255
    write_mixture(folder / "m.npz", MixtureFile(floats[None, None], None, torch.tensor([0.5, 0.5])))
    return {
        "a tensor": floats[None, None],
        "(H, W)": floats,
        "(1, H, W)": floats[None].numpy(),
        "(H, W, 1)": floats[..., None].numpy(),
        "uint8": grey,
        "a uint8 tensor": torch.from_numpy(grey),
        "negative strides": grey[::-1].copy()[::-1],
        "read only": np.frombuffer(grey.tobytes(), np.uint8).reshape(8, 8),
        "another byte order": (grey / np.float32(255)).astype(">f4"),
        "double": floats.to(torch.float64),
        "grey as RGB": rgb,
        "RGB, channels first": rgb.transpose(2, 0, 1)[None],
        "a PIL image": Image.fromarray(grey),
        "PIL, RGB": Image.fromarray(rgb),
        "a path": folder / "m.png",
        "a path in words": str(folder / "m.png"),
        "a grey picture saved as RGB": folder / "rgb.png",
        ".npy": folder / "m.npy",
        ".npz": folder / "m.npz",
        "a mixture file": basis.signals.read_mixture(folder / "m.npz"),
    }


def test_every_form_of_a_picture_is_the_same_mixture(grey, tmp_path, tiny_prior):
    forms = pictures(grey, tmp_path)
    wanted = separate(forms["a tensor"], tiny_prior, **HALF, **QUICK)
    for form, given in forms.items():
        found = read_observation(given, (1, 8, 8))
        assert found.shape == (1, 1, 8, 8), form
        assert torch.allclose(found.float(), forms["a tensor"], atol=1e-6), form
    for form in ("(H, W)", "uint8", "negative strides", "a PIL image", "a path", "grey as RGB"):
        assert torch.equal(
            separate(forms[form], tiny_prior, **HALF, **QUICK).sources, wanted.sources
        )
    both = separate([forms["a path"], forms["uint8"]], tiny_prior, **HALF, **QUICK)
    assert torch.allclose(both.sources[:1], wanted.sources, atol=1e-4) and len(both.sources) == 2
    assert torch.equal(wanted.mixture, forms["a tensor"])


def test_axes_that_can_be_read_in_two_ways_are_refused():
    assert read_observation(np.zeros((5, 28, 28)), (1, 28, 28)).shape == (5, 1, 28, 28)
    assert read_observation(np.zeros((4, 28, 28, 3)), (3, 28, 28)).shape == (4, 3, 28, 28)
    assert read_observation(torch.zeros(28, 30, 3), (3, 28, 28)).shape == (1, 3, 28, 30)
    assert read_observation(torch.zeros(7), (7,)).shape == (1, 7)
    assert read_observation(torch.zeros(5, 7), (1, 7)).shape == (5, 1, 7)
    with pytest.raises(BasisError, match="one colour picture or three grey ones"):
        read_observation(np.zeros((3, 28, 28)), (1, 28, 28))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.zeros((1, 1, 8, 8), np.int32), "int32 values; uint8 .* or floats are accepted"),
        (np.array([["a"]]), "values; uint8 or floats are accepted"),
        (np.array([[None]]), "object values"),
        (np.full((8, 8), np.nan), "NaN"),
        (3.0, "must be a path"),
        ([], "must be a path"),
        ({"a": 1}, "must be a path, .* not dict"),
        ("no-such-file.png", "there is no file no-such-file.png"),
        ([torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 9, 9)], "must have one shape"),
    ],
)
def test_what_cannot_be_a_mixture_is_told_in_a_line(tiny_prior, given, says):
    with pytest.raises(BasisError, match=says) as caught:
        separate(given, tiny_prior, **QUICK)
    assert "\n" not in str(caught.value)


def test_8_bit_values_are_not_taken_for_another_range(grey):
    prior = basis.GaussianMixture(torch.zeros(1, 1, 8, 8), torch.tensor([0.1]), value_range=(-1, 1))
    with pytest.raises(BasisError, match="8-bit values stand for 0 to 1"):
        separate(grey, prior, **QUICK)


def test_sources_in_8_bits_do_not_wrap():
    """0.5 became 0 in uint8, and sums were taken modulo 256."""
    with pytest.raises(BasisError, match="must be floats, not uint8"):
        mixture((0.5, 0.5))(torch.full((1, 2, 1, 4, 4), 200, dtype=torch.uint8))


def test_convert_invert_and_resize(tmp_path, tiny_prior):
    rng = np.random.default_rng(1)
    photo = rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    with pytest.raises(BasisError, match=r"convert \(--convert\) makes this one grey"):
        separate(tmp_path / "photo.png", tiny_prior, **HALF, **QUICK)
    with pytest.raises(BasisError, match=r"resize \(--resize\) makes it smaller"):
        separate(photo.mean(2) / 255, tiny_prior, **HALF, **QUICK)
    result = separate(
        tmp_path / "photo.png", tiny_prior, convert=True, invert=True, resize=True, **HALF, **QUICK
    )
    luma = (photo / 255) @ [0.299, 0.587, 0.114]
    middle = luma[:, 4:20].reshape(8, 2, 8, 2)
    assert result.mixture.shape == (1, 1, 8, 8)
    # Means of 2x2 blocks, up to the overlap of the antialiasing filter.
    assert abs((1 - result.mixture).mean().item() - middle.mean()) < 0.01
    # What is done is linear: a mixture becomes the mixture of sources that were treated alike.
    a, b = torch.rand(2, 1, 3, 20, 31, dtype=torch.float64)
    fit = {"convert": True, "resize": True}
    mixed = fit_observation(0.3 * a + 0.7 * b, (1, 8, 8), **fit)
    apart = [fit_observation(x, (1, 8, 8), **fit) for x in (a, b)]
    assert torch.allclose(mixed, 0.3 * apart[0] + 0.7 * apart[1])
    assert fit_observation(a, (1, 8, 8), convert=True).shape == (1, 1, 20, 31)
    assert fit_observation(a[:, :1], (3, 20, 31), convert=True).shape == (1, 3, 20, 31)
    with pytest.raises(BasisError, match="invert takes values from 0 to 1; this mixture has"):
        fit_observation(2 + a, (3, 20, 31), invert=True)
    with pytest.raises(BasisError, match="take pictures"):
        fit_observation(torch.rand(1, 1, 50), (1, 40), resize=True)


def test_priors_by_name_and_folder(tiny_prior, tmp_path):
    folder = write_prior(tiny_prior, tmp_path / "p")
    m = torch.rand(1, 1, 8, 8)
    wanted = separate(m, basis.load_prior(folder), **QUICK).sources
    for given in (folder, str(folder), [folder, folder]):
        assert torch.equal(separate(m, given, **QUICK).sources, wanted)
    assert separate(m, [folder, folder], **QUICK).exchangeable.all()  # one prior, loaded once
    assert torch.equal(next(iter(basis.separate_each([m], folder, **QUICK))).sources, wanted)
    assert torch.equal(separate(m, folder, device="auto", **QUICK).sources, wanted)
    assert basis.sample(folder, 1, steps=1).shape == (1, 1, 8, 8)
    with pytest.raises(BasisError, match="unknown prior 'minst'"):
        separate(m, "minst")
    with pytest.raises(BasisError, match="a prior's name or folder"):
        separate(m, 3)
    with pytest.raises(BasisError, match="one prior is needed"):
        basis.sample([folder, folder])


def test_a_photo_is_coloured_from_its_path(tmp_path):
    prior = basis.GaussianMixture(
        torch.full((1, 3, 4, 4), 0.5), torch.tensor([0.02]), value_range=(0, 1)
    )
    photo = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / "p.png")
    fast = {"sampler": "gibbs", "steps": 2}
    grey = torch.from_numpy(photo).float().div(255).mean(2)
    wanted, _ = basis.colorize(grey[None, None], prior, **fast)
    for given in (tmp_path / "p.png", Image.fromarray(photo), grey.numpy()):
        assert torch.allclose(basis.colorize(given, prior, **fast)[0], wanted, atol=1e-5)
    with pytest.raises(BasisError, match="grey photos must be"):
        basis.colorize(photo, prior, **fast)


@pytest.mark.parametrize("device", ["cuda:77", "tpu", "auto "])
def test_a_device_that_is_not_here_is_told_in_a_line(device, tiny_prior):
    for call in (
        lambda: basis.load_prior("mnist", device=device),
        lambda: separate(torch.rand(1, 1, 8, 8), tiny_prior, device=device),
    ):
        with pytest.raises(BasisError, match=f"device '{device}' cannot be used here") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert basis.load_prior("mnist", device="auto").device.type in ("cpu", "cuda")


def test_weights_of_a_file_are_used_and_not_overridden_in_silence(tmp_path, capsys, tiny_prior):
    m = MixtureFile(torch.rand(1, 1, 8, 8), None, torch.tensor([0.7, 0.3]))
    write_mixture(tmp_path / "m.npz", m)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = separate(tmp_path / "m.npz", tiny_prior, **QUICK)
        separate(tmp_path / "m.npz", tiny_prior, alphas=(0.7, 0.3), **QUICK)
    assert result.mixing.plain_alphas == pytest.approx([0.7, 0.3])
    for other in (
        {"alphas": (0.5, 0.5)},
        {"mixing": mixture((0.5, 0.5)).replace(mask=np.ones((8, 8)))},
    ):
        with pytest.warns(UserWarning, match=r"mixed with alphas 0\.7 0\.3; 0\.5 0\.5 is used"):
            separate(tmp_path / "m.npz", tiny_prior, **other, **QUICK)
    folder = write_prior(tiny_prior, tmp_path / "p")
    words = ["separate", tmp_path / "m.npz", "--prior", folder, "--sampler", "gibbs", "--steps", 2]
    words += ["--out", tmp_path / "o"]
    assert main([str(w) for w in words]) == 0
    assert "warning: the file" not in capsys.readouterr().err
    assert main([str(w) for w in [*words, "--alphas", 0.5, 0.5]]) == 0
    assert "warning: the file says it was mixed with alphas 0.7 0.3" in capsys.readouterr().err


def test_the_command_converts_where_it_is_asked_to(tmp_path, capsys, tiny_prior):
    folder = write_prior(tiny_prior, tmp_path / "p")
    photo = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    Image.fromarray(np.repeat(photo[:8, :8, :1], 3, axis=2)).save(tmp_path / "rgb.png")
    words = ["--alphas", 0.5, 0.5, "--prior", folder, "--sampler", "gibbs", "--steps", 2]
    words += ["--device", "auto", "--out", tmp_path / "o"]
    assert main([str(w) for w in ["separate", tmp_path / "photo.png", *words]]) == 2
    assert "(--convert) makes this one grey" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
    more = ["--convert", "--resize", "--invert"]
    assert main([str(w) for w in ["separate", tmp_path / "photo.png", *words, *more]]) == 0
    mixed = np.load(tmp_path / "o" / "sources.npz")["mixture"]
    assert mixed.shape == (1, 1, 8, 8)
    assert main([str(w) for w in ["separate", tmp_path / "rgb.png", *words]]) == 0
    mixed = np.load(tmp_path / "o" / "sources.npz")["mixture"]
    assert np.allclose(mixed[0, 0], photo[:8, :8, 0] / 255)


def test_type_checkers_know_efforts_and_samplers():
    hints = typing.get_type_hints(separate)
    assert set(typing.get_args(SamplerName)) == set(SAMPLERS)
    for name, words in (("effort", Effort), ("sampler", SamplerName)):
        options = typing.get_args(hints[name])
        literals = [one for one in options if typing.get_origin(one) is typing.Literal]
        assert literals == [words] and str not in options
    assert "device" in inspect.signature(separate).parameters
