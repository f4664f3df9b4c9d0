"""Mistakes that people make: each gets one line that names it, and loses nothing."""

import json

import numpy as np
import pytest
import torch
from test_cli import fails as refused

from basis._check import check_prior
from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.priors.prior import Prior
from basis.store.folder import write_prior
from basis.store.loading import load_prior
from basis.training.config import TrainConfig


@pytest.mark.parametrize("way", [{"sampler": "gibbs"}, {"sampler": "basis"}, {"effort": 100}])
def test_a_prior_that_blows_up_is_told(way):
    prior = Prior.from_denoiser(lambda x, sigma: 1e12 * x**3, (1, 4, 4), 0.01, 10.0)
    with pytest.raises(BasisError, match="diverged"):
        separate(torch.rand(1, 1, 4, 4), prior, **way)


def test_an_effort_of_nothing_is_refused(capsys, tiny_prior):
    with pytest.raises(BasisError, match="too small"):
        separate(torch.rand(1, 1, 8, 8), tiny_prior, effort=0)
    assert "too small" in refused(capsys, "separate", "sample", "--effort", 0)


def test_one_weight_is_no_mixture(capsys, tmp_path):
    said = refused(capsys, "separate", "sample", "--alphas", 0.5, "--out", tmp_path / "o")
    assert "--alphas 0.5 is one source" in said and "a weight for each source" in said
    assert not (tmp_path / "o").exists()


def test_flags_that_a_command_does_not_know_are_its_own(capsys):
    said = refused(capsys, "colorize", "sample-photos:1", "--stepz", 4)
    assert "unrecognized arguments: --stepz 4 (see basis colorize --help)" in said


def test_a_prior_is_checked_with_images_of_its_kind(capsys, tmp_path, tiny_prior):
    assert main(["check", "cifar10", "--count", "16"]) == 0
    write_prior(tiny_prior, tmp_path / "tiny")
    assert "give --data, held-out images" in refused(capsys, "check", tmp_path / "tiny")


def test_values_that_cannot_be_a_mixture(capsys, tmp_path, tiny_prior):
    with pytest.raises(
        BasisError, match=r"go from 0 to 200, where sources in \[0, 1\] make 0 to 2"
    ):
        separate(torch.tensor([0.0, 200.0] * 32).view(1, 1, 8, 8), tiny_prior)
    np.save(tmp_path / "m.npy", np.full((1, 1, 28, 28), 1.5, dtype="float32"))
    out = tmp_path / "o"
    words = ["separate", tmp_path / "m.npy", "--alphas", 0.5, 0.5, "--effort", 20, "--out", out]
    assert main([str(w) for w in words]) == 0
    assert "warning: no sources in [0, 1] make this mixture" in capsys.readouterr().err
    masked = torch.full((1, 1, 8, 8), 9e9)
    masked[..., :4] = 1
    from basis.mixings.matrix import mixture

    mixing = mixture((1.0, 1.0)).replace(mask=(masked < 2).double()[0])
    assert separate(masked, tiny_prior, mixing=mixing, effort=20).sources.isfinite().all()


def test_numpy_is_taken_and_lists_are_not(tiny_prior):
    m = np.random.default_rng(0).random((2, 1, 8, 8))
    ours = separate(m, tiny_prior, effort=20).sources
    assert torch.equal(ours, separate(torch.from_numpy(m), tiny_prior, effort=20).sources)
    with pytest.raises(BasisError, match=r"numpy array or a tensor .*, not list"):
        separate([[0.0]], tiny_prior)


def test_places_are_looked_at_before_the_work(capsys, tmp_path):
    (tmp_path / "file").write_text("here")
    below = tmp_path / "file" / "sub"
    assert "is a file" in refused(capsys, "separate", "sample", "--out", below)
    assert "is a folder" in refused(capsys, "check", "mnist", "--json", tmp_path)
    assert "holds no pictures" in refused(capsys, "separate", tmp_path)
    assert (tmp_path / "file").read_text() == "here"


def test_a_mixture_does_not_replace_its_images(capsys, tmp_path):
    image = tmp_path / "a.npz"
    assert main(["mix", "sample:1", "sample:2", "--out", str(image)]) == 0
    from PIL import Image

    for name in ("a.png", "b.png"):
        Image.new("L", (28, 28), 100).save(tmp_path / name)
    before = (tmp_path / "a.png").read_bytes()
    words = ["mix", tmp_path / "a.png", tmp_path / "b.png", "--alphas", 0.5, 0.5]
    assert "one of the images" in refused(capsys, *words, "--out", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == before


def test_numbers_out_of_range(capsys, tmp_path):
    assert "2^63" in refused(capsys, "separate", "sample", "--seed", 10**23)
    assert "at least 8 images" in refused(capsys, "check", "mnist", "--count", 1)
    train = ["train", "--data", "sample", "--out", tmp_path / "run"]
    assert "lr must be" in refused(capsys, *train, "--lr=-1")
    assert "cooldown" in refused(capsys, *train, "--cooldown", 3)
    assert "sigma_min <= sigma_max" in refused(capsys, *train, "--sigma-min", 5, "--sigma-max", 1)
    assert not (tmp_path / "run").exists()
    with pytest.raises(BasisError, match="sigma_min"):
        TrainConfig(sigma_min=-1.0)
    with pytest.raises(BasisError, match="at least 8"):
        check_prior(load_prior("mnist"), torch.rand(2, 1, 28, 28))
    with pytest.raises(BasisError, match="function"):
        Prior.from_denoiser(3, (1, 4, 4), 0.01, 1.0)
    for shape in ((), (0, 4), ("a", 4)):
        with pytest.raises(BasisError, match=r"shape must be \(channels, \*size\)"):
            Prior.from_denoiser(lambda x, s: x, shape, 0.01, 1.0)


def test_cards_that_lie_are_refused(tiny_prior, tmp_path):
    folder = write_prior(tiny_prior, tmp_path / "p")
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | {"sigma_min": "low"}))
    with pytest.raises(BasisError, match="sigma_min must be a number"):
        load_prior(folder)
    card["architecture"]["network"]["widths"] = [10**9, 10**9]
    (folder / "card.json").write_text(json.dumps(card))
    with pytest.raises(BasisError, match="widths must be a whole number"):
        load_prior(folder)


def test_one_mixture_has_no_standard_error(capsys, tmp_path):
    out = tmp_path / "o"
    words = ["separate", "sample", "--count", "1", "--effort", "20", "--out", str(out)]
    assert main(words) == 0
    assert "nan" not in capsys.readouterr().out
    assert json.loads((out / "run.json").read_text())["psnr"]["stderr"] is None


def test_numbers_that_are_none(capsys, tmp_path):
    for words in (["--count", "1.5"], ["--seed", "x"], ["--alphas", "nan"]):
        said = refused(capsys, "separate", "sample", *words, "--out", tmp_path / "o")
        assert "number, not" in said and words[1] in said


def test_memory_that_is_not_there(capsys, tmp_path):
    said = refused(capsys, "sample", "mnist", "--count", 10**13, "--out", tmp_path / "o")
    assert "more memory than there is" in said and not (tmp_path / "o").exists()


def test_a_folder_that_takes_no_files_is_told_first(capsys, monkeypatch):
    monkeypatch.setattr("basis.sample", lambda *a, **k: pytest.fail("worked in vain"))
    assert "nothing can be written to /proc" in refused(
        capsys, "sample", "mnist", "--out", "/proc/x"
    )


def test_a_missing_folder_is_not_looked_for_on_the_hub(capsys):
    said = refused(capsys, "separate", "sample", "--prior", "./nothing")
    assert "unknown prior './nothing': give a folder" in said


def test_colour_is_told_where_to_go(capsys, tmp_path):
    out = tmp_path / "o"
    assert "cifar10" in refused(capsys, "separate", "sample-photos", "--out", out)
    assert "--network" in refused(capsys, "distance", "sample-photos", "sample-photos")


def test_what_the_commands_leave_can_be_compared(capsys, tmp_path):
    out = tmp_path / "separated"
    assert main(["separate", "sample", "--count", "2", "--effort", "20", "--out", str(out)]) == 0
    told = []
    for what in (out, out / "sources.npz"):
        assert main(["distance", str(what), "sample", "--splits", "1"]) == 0
        told.append(capsys.readouterr().out.splitlines()[-2])
    assert told[0] == told[1] and "(4 images, 512 of reference)" in told[0]
    drawn = tmp_path / "drawn"
    assert main(["sample", "mnist", "--count", "3", "--steps", "1", "--out", str(drawn)]) == 0
    assert main(["distance", str(drawn), "sample", "--splits", "1"]) == 0
    assert "(3 images," in capsys.readouterr().out


def test_sound_where_pictures_are_needed(capsys, tmp_path):
    sound = tmp_path / "sound.npz"
    np.savez(sound, images=np.zeros((8, 1, 50), "float32"), labels=np.arange(8) % 2)
    assert "takes pictures" in refused(capsys, "distance", sound, "sample")
    words = ["classifier", "--data", sound, "--out", tmp_path / "o"]
    assert "trained on pictures" in refused(capsys, *words)
    assert "pictures only" in refused(capsys, "distance", sound, "sample", "--size", 8)
    loud = tmp_path / "loud.npy"
    np.save(loud, np.full((1, 50), 3.0))
    out = tmp_path / "m.npz"
    assert "--dims 1" in refused(capsys, "mix", loud, loud, "--out", out)
    assert not out.exists() and not (tmp_path / "o").exists()


def test_an_offline_download_says_what_to_do(capsys, tmp_path, monkeypatch):
    import requests

    def offline(*args, **settings):
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(requests, "get", offline)
    said = refused(capsys, "data", "download", "cifar10", "--data-root", tmp_path)
    assert "(no connection)" in said and "fetch it by hand" in said
    monkeypatch.setattr(requests, "get", lambda *a, **s: (_ for _ in ()).throw(requests.Timeout()))
    assert "no answer in 30 s" in refused(
        capsys, "data", "download", "mnist", "--data-root", tmp_path
    )
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
