"""Reading observations: every form of the same signal, conversions, mixture files, bad input."""

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis._check import measure_energies
from basis.errors import BasisError
from basis.jobs.streams import ArrayStream, as_stream
from basis.priors.gaussian import GaussianMixture
from basis.samplers.gibbs import Gibbs
from basis.signals.datasets import load_images
from basis.signals.observation import Observation, as_observation, read
from basis.training.data import training_data


@pytest.fixture
def pixels():
    """One grey picture in 8 bits, (8, 8)."""
    return np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)


def forms(pixels, folder):
    """The same picture in every form that people have it in."""
    Image.fromarray(pixels).save(folder / "m.png")
    rgb = np.repeat(pixels[..., None], 3, axis=2)
    Image.fromarray(rgb).save(folder / "rgb.png")
    np.save(folder / "m.npy", pixels)
    floats = torch.from_numpy(pixels).float() / 255
    Observation(floats[None], alphas=torch.tensor([0.5, 0.5])).save(folder / "m.npz")
    return {
        "batch": floats[None, None],
        "(h, w)": floats,
        "(1, h, w)": floats[None].numpy(),
        "(h, w, 1)": floats[..., None].numpy(),
        "uint8": pixels,
        "uint8 tensor": torch.from_numpy(pixels),
        "negative strides": pixels[::-1].copy()[::-1],
        "read only": np.frombuffer(pixels.tobytes(), np.uint8).reshape(8, 8),
        "byte order": (pixels / np.float32(255)).astype(">f4"),
        "double": floats.to(torch.float64),
        "RGB": rgb,
        "RGB, channels first": rgb.transpose(2, 0, 1)[None],
        "PIL": Image.fromarray(pixels),
        "PIL, RGB": Image.fromarray(rgb),
        "path": folder / "m.png",
        "str": str(folder / "m.png"),
        "RGB file": folder / "rgb.png",
        "npy": folder / "m.npy",
        "npz": folder / "m.npz",
        "read": read(folder / "m.npz"),
    }


def test_every_form_of_a_picture_is_the_same_observation(pixels, tmp_path):
    given = forms(pixels, tmp_path)
    for form, value in given.items():
        found = as_observation(value, (1, 8, 8))
        assert found.values.shape == (1, 1, 8, 8) and len(found) == 1, form
        assert torch.allclose(found.values.float(), given["batch"], atol=1e-6), form
        assert found.conversions == (("grey",) if "RGB" in form else ()), form
    assert as_observation(given["double"], (1, 8, 8)).values.dtype == torch.float64
    both = as_observation([given["path"], given["uint8"], given["npz"]], (1, 8, 8))
    assert both.values.shape == (3, 1, 8, 8) and both.alphas.tolist() == [0.5, 0.5]
    assert both.names == ("01-m", "02-01", "03-m") and len(both.paths) == 2


def test_read_keeps_the_shape_of_one_signal(pixels, tmp_path):
    given = forms(pixels, tmp_path)
    picture = basis.read(given["path"])
    assert picture.values.shape == (1, 8, 8) and picture.batched is False
    assert picture.names == ("m",) and picture.paths == (given["path"],)
    assert basis.read([given["path"]] * 2).values.shape == (2, 1, 8, 8)
    assert repr(picture) == "Observation(1x8x8; m)"
    sound = basis.read(np.zeros((5, 7)))  # its axes are decided by the prior
    assert as_observation(sound, (1, 7)).values.shape == (5, 1, 7)
    assert as_observation(sound, (5, 7)).values.shape == (1, 5, 7)
    assert as_observation(sound).names == ("01",)
    np.save(tmp_path / "five.npy", np.zeros((5, 7)))
    many = as_observation(tmp_path / "five.npy", (1, 7))
    assert many.names == tuple(f"five-{i:04d}" for i in range(1, 6))


@pytest.mark.parametrize(
    ("have", "shape", "found"),
    [
        ((5, 28, 28), (1, 28, 28), (5, 1, 28, 28)),
        ((4, 28, 28, 3), (3, 28, 28), (4, 3, 28, 28)),
        ((28, 30, 3), (3, 28, 28), (1, 3, 28, 30)),
        ((7,), (7,), (1, 7)),
        ((5, 7), (1, 7), (5, 1, 7)),
        ((2, 7), (2, 7), (1, 2, 7)),
        ((90,), (1, 7), (1, 1, 90)),
        ((5, 90), (1, 7), (5, 1, 90)),
        ((1, 90), (1, 7), (1, 1, 90)),
        ((2, 90), (2, 7), (1, 2, 90)),
        ((3, 2, 90), (2, 7), (3, 2, 90)),
        ((90,), None, (1, 1, 90)),
        ((2, 90), None, (1, 2, 90)),
        ((28, 28), None, (1, 1, 28, 28)),
        ((28, 28, 3), None, (1, 3, 28, 28)),
        ((5, 2, 90), None, (5, 2, 90)),
        ((2, 1, 4, 4, 4), None, (2, 1, 4, 4, 4)),
    ],
)
def test_axes(have, shape, found):
    assert as_observation(torch.zeros(have), shape).values.shape == found


@pytest.mark.parametrize(
    ("have", "found"),
    [
        ((9, 28, 28), (9, 1, 28, 28)),
        ((3, 28, 28), (3, 1, 28, 28)),
        ((9, 28, 28, 3), (9, 3, 28, 28)),
        ((9, 3, 28, 28), (9, 3, 28, 28)),
        ((9, 500), (9, 1, 500)),
        ((9, 2, 8), (9, 2, 8)),
        ((9, 12, 500), (9, 12, 500)),
        ((9, 1, 4, 4, 4), (9, 1, 4, 4, 4)),
    ],
)
def test_axes_of_training_data(have, found):
    assert training_data(np.random.default_rng(0).random(have)).values.shape == found


def test_types_of_values(tmp_path):
    """uint8, int16 and floats mean the same wherever an array is accepted."""
    sound = np.array([[0, 16384, -32768]], np.int16)
    wanted = torch.tensor([[0, 0.5, -1]])
    np.save(tmp_path / "sound.npy", sound)
    for given in (sound, torch.from_numpy(sound), sound.astype(">i2"), tmp_path / "sound.npy"):
        assert torch.equal(as_observation(given, (1, 3), (-1, 1)).values[0], wanted)
        assert torch.equal(as_observation(given, (1, 3)).values[0], wanted)
    assert torch.equal(basis.mix([sound, sound]).values[0], 2 * wanted)
    assert torch.equal(basis.mix(sound[None].repeat(2, 0)).values[0], 2 * wanted)
    assert torch.equal(basis.read(sound).values, wanted)
    assert torch.equal(training_data(sound[None].repeat(9, 0)).values[0], wanted)
    assert torch.equal(ArrayStream(sound[None]).read(0, 1).observation[0], wanted)
    with pytest.raises(BasisError, match="16-bit values stand for -1 to 1"):
        as_observation(sound, (1, 3), (0, 1))
    for use in (as_observation, training_data, lambda x: basis.mix([x]), ArrayStream):
        with pytest.raises(BasisError, match=r"int32.*uint8.*int16.*floats are accepted"):
            use(np.zeros((9, 1, 3), np.int32))


@pytest.mark.parametrize("have", [(9, 8, 8), (9, 1, 8, 8), (9, 8, 8, 1), (8, 8), (1, 8, 8)])
def test_jobs_take_the_same_arrays(tmp_path, have):
    array = np.random.default_rng(0).integers(0, 256, have, dtype=np.uint8)
    wanted = as_observation(array, (1, 8, 8)).values
    np.save(tmp_path / "m.npy", array)
    for given in (array, torch.from_numpy(array), tmp_path / "m.npy"):
        stream = as_stream(given, (1, 8, 8))
        assert torch.equal(stream.read(0, len(stream)).observation, wanted)


def test_mixtures_of_stacked_sources():
    pictures, sound = torch.rand(2, 3, 8, 8), torch.rand(2, 1, 90)
    assert torch.equal(basis.mix(pictures).values, pictures.sum(0, keepdim=True))
    assert torch.equal(basis.mix(pictures.numpy()).values, pictures.sum(0, keepdim=True))
    assert torch.equal(basis.mix(pictures.movedim(1, -1).numpy()).values[0], pictures.sum(0))
    assert torch.equal(basis.mix(sound).values, sound.sum(0, keepdim=True))
    assert torch.equal(basis.mix(sound[None].repeat(4, 1, 1, 1)).values[3], sound.sum(0))
    assert torch.equal(basis.mix(pictures[None].numpy()).values, pictures.sum(0, keepdim=True))
    for wrong in (None, [], "sample:3", 3):
        with pytest.raises(BasisError, match="sources must be a list"):
            basis.mix(wrong)
    with pytest.raises(BasisError, match="noise must be a number"):
        basis.mix(pictures, noise="0.1")


def test_check_and_colorize_take_the_same_arrays():
    digits = load_images("sample").images[:16, 0].numpy()
    reports = [
        str(basis.check("mnist", data))
        for data in (digits, digits[..., None], torch.from_numpy(digits)[:, None] / 255)
    ]
    assert len(set(reports)) == 1
    exact = GaussianMixture(torch.zeros(1, 1, 28, 28), torch.tensor([0.1]), value_range=(0.0, 1.0))
    energies = [measure_energies(exact, x, pairs=0).images for x in (digits, digits[..., None])]
    assert energies[0] == energies[1]
    for wrong in (3, [1, 2], np.full((16, 28, 28), np.nan)):
        with pytest.raises(BasisError):
            basis.check("mnist", wrong)
    prior = GaussianMixture(torch.full((1, 3, 8, 8), 0.5), torch.tensor([0.05]))
    for shape in ((8, 8), (8, 8, 3), (1, 8, 8), (3, 8, 8), (8, 8, 1)):
        photo = np.full(shape, 128, np.uint8)
        found = basis.colorize(photo, prior, method=Gibbs(steps=2))
        assert found.sources.shape == (1, 1, 3, 8, 8), shape


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.zeros((1, 1, 8, 8), np.int32), "int32"),
        (np.array([["a"]]), "<U1 values; uint8"),
        (np.array([[None]]), "object"),
        (np.full((8, 8), np.nan), "NaN"),
        (np.zeros((0, 8, 8)), "empty"),
        (np.zeros((3, 8, 8)), "one color picture or three grey ones"),
        (3.0, "float"),
        ([], "a path"),
        ({"a": 1}, "dict"),
        ([1.0, 2.0], "a path"),
        ("no-such-file.png", "no-such-file.png"),
        ([torch.zeros(1, 1, 8, 8), torch.zeros(1, 1, 9, 9)], r"\(1, 8, 8\) and \(1, 9, 9\)"),
    ],
)
def test_what_cannot_be_an_observation_is_rejected_in_one_line(given, says):
    with pytest.raises(BasisError, match=says) as caught:
        as_observation(given, (1, 8, 8))
    assert "\n" not in str(caught.value)


def test_8_bit_values_stand_for_0_to_1(pixels):
    with pytest.raises(BasisError, match="8-bit"):
        as_observation(pixels, (1, 8, 8), (-1, 1))
    assert as_observation(pixels, (1, 8, 8), (0, 1)).values.max() <= 1


def test_conversions(tmp_path):
    photo = np.random.default_rng(1).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    plain = read(tmp_path / "photo.png")
    assert plain.values.shape == (3, 16, 24) and plain.conversions == ()
    found = read(tmp_path / "photo.png", grey=True, size=8, invert=True)
    assert found.values.shape == (1, 8, 8) and found.names == ("photo",)
    assert found.conversions == ("grey", "size 8x8", "invert")
    luma = (photo / 255) @ [0.299, 0.587, 0.114]
    middle = luma[:, 4:20].reshape(8, 2, 8, 2)
    # Means of 2x2 blocks, up to the overlap of the antialiasing filter.
    assert abs((1 - found.values).mean().item() - middle.mean()) < 0.01
    color = read([luma, Image.fromarray(photo)], color=True, size=(4, 6))
    assert color.values.shape == (2, 3, 4, 6)
    # A mixture becomes the mixture of the sources converted in the same way.
    a, b = torch.rand(2, 3, 20, 31, dtype=torch.float64)
    mixed = read(0.3 * a + 0.7 * b, grey=True, size=8).values
    apart = [read(x, grey=True, size=8).values for x in (a, b)]
    assert torch.allclose(mixed, 0.3 * apart[0] + 0.7 * apart[1])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"grey": True, "color": True}, "not both"),
        ({"size": 0}, "size"),
        ({"size": (3, 4, 5)}, "size"),
        ({"size": 2.5}, "size"),
        ({"start": 3}, "start"),
    ],
)
def test_wrong_options_are_rejected(options, says):
    with pytest.raises(BasisError, match=says):
        read(np.zeros((8, 8)), **options)
    with pytest.raises(BasisError, match="from 0 to 1"):
        read(np.full((8, 8), 2.0), invert=True)
    with pytest.raises(BasisError, match="pictures"):
        read(np.zeros((1, 2, 50)), size=40)


def test_options_belong_to_formats(tmp_path, pixels):
    Image.fromarray(pixels).save(tmp_path / "m.png")
    assert read(tmp_path / "m.png", max_pixels=64).values.shape == (1, 8, 8)
    with pytest.raises(BasisError, match="8x8"):
        read(tmp_path / "m.png", max_pixels=63)
    with pytest.raises(BasisError, match="'start'; accepted: max_pixels"):
        read(tmp_path / "m.png", start=3)
    (tmp_path / "m.xyz").touch()
    with pytest.raises(BasisError, match=r"m\.xyz"):
        read(tmp_path / "m.xyz")


def test_mixture_files_keep_sources_and_alphas(tmp_path):
    sources, alphas = torch.rand(2, 2, 3, 4, 5), torch.tensor([0.3, 0.7])
    values = (alphas.view(2, 1, 1, 1) * sources).sum(1)
    observation = Observation(values, True, alphas=alphas, sources=sources)
    observation.save(tmp_path / "m.npz")
    found = read(tmp_path / "m.npz")
    assert torch.equal(found.values, values) and found.batched
    assert torch.equal(found.sources, sources) and torch.equal(found.alphas, alphas)
    assert "alphas 0.3 0.7; with sources" in repr(found)
    assert read(tmp_path / "m.npz", grey=True).sources is None
    joined = as_observation([found, found])
    assert joined.sources.shape == (4, 2, 3, 4, 5) and joined.alphas.tolist() == alphas.tolist()
    other = Observation(values, True, alphas=alphas.flip(0))
    with pytest.raises(BasisError, match="different alphas"):
        as_observation([found, other])
    observation.save(tmp_path / "m.npy")
    assert torch.equal(read(tmp_path / "m.npy").values, values)
    Observation(values[0], False).save(tmp_path / "m.png")
    assert (read(tmp_path / "m.png").values - values[0]).abs().max() <= 0.501 / 255
    for broken in (observation, Observation(values[0] + 1, False)):
        with pytest.raises(BasisError, match=r"n\.png"):
            broken.save(tmp_path / "n.png")
    with pytest.raises(BasisError, match=r"\.npz"):
        observation.save(tmp_path / "m.jpg")
    assert not (tmp_path / "n.png").exists()


def test_an_observation_checks_its_parts(tmp_path):
    values, sources = torch.zeros(2, 1, 4, 4), torch.zeros(2, 3, 1, 4, 4)
    for wrong, says in (
        ({"values": values.byte()}, "values"),
        ({"values": values * torch.nan}, "values"),
        ({"values": values, "alphas": torch.ones(1, 2)}, "alphas"),
        ({"values": values, "batched": True, "sources": sources[:1]}, "sources"),
        ({"values": values, "batched": True, "sources": sources[..., :3]}, "sources"),
        ({"values": values, "sources": sources}, "sources"),
        (
            {"values": values, "batched": True, "sources": sources, "alphas": torch.ones(2)},
            "2 alphas for 3",
        ),
    ):
        with pytest.raises(BasisError, match=says):
            Observation(**wrong)
    np.savez(tmp_path / "m.npz", observation=values, sources=sources, alphas=np.ones(5))
    with pytest.raises(BasisError, match=r"m\.npz: 5 alphas"):
        read(tmp_path / "m.npz")


def test_separate_takes_every_form(pixels, tmp_path, tiny_prior):
    given = forms(pixels, tmp_path)
    settings = {"alphas": (0.5, 0.5), "method": Gibbs(steps=2)}
    wanted = basis.separate(given["batch"], tiny_prior, **settings)
    for form in ("(h, w)", "uint8", "negative strides", "PIL", "path", "RGB"):
        found = basis.separate(given[form], tiny_prior, **settings)
        assert torch.equal(found.sources, wanted.sources), form
    photo = np.random.default_rng(1).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    with pytest.raises(BasisError, match="grey=True"):
        basis.separate(photo, tiny_prior, **settings)
    found = basis.separate(basis.read(photo, grey=True, size=8), tiny_prior, **settings)
    assert found.observation.shape == (1, 1, 8, 8)
