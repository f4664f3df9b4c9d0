"""Bad input of commands: exit code 2, one line that names what is wrong, no output."""

import shutil

import numpy as np
import pytest
from cli.conftest import fails, run
from PIL import Image

from basis.store.loading import find_prior

QUICK = ["--method", "gibbs", "--steps", "2"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "text.png").write_text("hello")
    Image.new("RGB", (28, 28), (200, 100, 0)).save(folder / "color.png")
    np.save(folder / "nan.npy", np.full((1, 28, 28), np.nan, np.float32))
    np.save(folder / "small.npy", np.zeros((1, 1, 5, 5), np.float32))
    np.save(folder / "bright.npy", np.full((1, 1, 28, 28), 200, np.float32))
    (folder / "empty").mkdir()
    shutil.copytree(find_prior("mnist"), folder / "damaged")
    (folder / "damaged" / "weights.safetensors").write_bytes(b"not weights")
    assert run("mix", "sample:0", "sample:1", "--out", folder / "m.npz") == 0
    return folder


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nowhere.png"], "nowhere.png"),
        (["text.png"], "text.png"),
        (["color.png"], "--grey"),
        (["nan.npy"], "NaN"),
        (["small.npy"], "(1, 28, 28)"),
        (["bright.npy"], "200"),
        (["empty"], "empty"),
        (["m.npz", "--alphas", 1, 1, 1, "--sources", 2], "3 alphas for 2 sources"),
        (["m.npz", "--alphas", 1, "nan"], "nan"),
        (["m.npz", "--alphas", 1, "--alphas", 1, 1], "alphas"),
        (["m.npz", "--sources", 0], "0"),
        (["m.npz", "--method", "gibs"], "gibs"),
        (["m.npz", "--method", 0], "0"),
        (["m.npz", "--method", "gibbs", "--sigma-max", 50], "50"),
        (["m.npz", "--method", "basis", "--start", "ones"], "ones"),
        (["m.npz", "--method", "gibbs", "--steps", "many"], "many"),
        (["m.npz", "--estimate", "best"], "best"),
        (["m.npz", "--prior", "minst"], "minst"),
        (["m.npz", "--prior", "./nothing"], "./nothing"),
        (["m.npz", "--prior", "damaged"], "damaged"),
        (["m.npz", "--prior", "mnist", "--prior", "mnist", "--prior", "mnist"], "3 priors"),
        (["m.npz", "--autoguidance", "cifar10-small"], "shape"),
        (["m.npz", "--device", "tpu9"], "tpu9"),
        (["m.npz", "--samples", 0], "0"),
        (["m.npz", "--seed", 10**23], "2^63"),
        (["m.npz", "--seed", -1], "-1"),
        (["m.npz", "--noise=-1"], "noise"),
        (["m.npz", "--mask", "none.png"], "none.png"),
        (["m.npz", "--out", "text.png"], "text.png"),
        (["m.npz", "--out", "text.png/below"], "text.png"),
        (["m.npz", "--out", "/proc/x"], "/proc"),
        (["m.npz", "--scheduler", "tcp://x:1", "--workers", 2], "not both"),
        (["m.npz", "--workers", 999_999], "at most"),
        (["mnist"], "mnist"),
        (["sample", "--count", 1.5], "1.5"),
        (["sample", "--count", 10**9], "memory"),
    ],
)
def test_separate(files, capsys, monkeypatch, words, named):
    monkeypatch.chdir(files)
    method = [] if "--method" in words else QUICK
    if "--prior" not in words and words[0] != "sample":
        words = [*words, "--prior", "mnist"]
    before = sorted(files.rglob("*"))
    assert named in fails(capsys, "separate", *words, *method)
    assert sorted(files.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["mix", "sample:0", "sample:1", "--alphas", 1], "1 alphas for 2 sources"),
        (["mix", "sample:0", "sample:512"], "0 to 511"),
        (["mix", "simple:0", "sample:1"], "simple"),
        (["mix", "sample:0", "sample:1", "--out", "over.png"], "over.png"),
        (["mix", "sample:0", "sample:1", "--out", "m.txt"], "m.txt"),
        (["colorize", "color.png", "--prior", "mnist"], "mnist"),
        (["colorize", "color.png", "--diverse"], "samples"),
        (["colorize", "color.png", "--saturation=-1"], "saturation"),
        (["colorize", "text.png"], "text.png"),
        (["sample", "mnist", "--count", 10**13], "memory"),
        (["sample", "mnist:7"], "mnist"),
        (["sample", "mnist", "--guidance", 1], "class"),
        (["sample", "mnist", "--each-class"], "class"),
        (["check", "mnist", "--count", 1], "8"),
        (["check", "mnist", "--data", "nowhere"], "nowhere"),
        (["check", "mnist", "--json", "empty"], "empty"),
        (["priors", "show", "minst"], "minst"),
        (["priors", "add", "owner/name"], "owner/name"),
        (["priors"], "list"),
        (["train", "sample"], "--out"),
        (["train", "nowhere", "--out", "run"], "nowhere"),
        (["train", "sample", "--kind", "vae", "--out", "run"], "vae"),
        (["train", "sample", "--hours", 1, "--images", 5, "--out", "run"], "images or hours"),
        (["train", "sample", "--clip", 0, "--out", "run"], "clip"),
        (["train", "sample", "--dropout", 1.5, "--out", "run"], "dropout"),
        (["train", "sample", "--average", "nan", "--out", "run"], "nan"),
        (["train", "sample", "--device", "meta", "--out", "run"], "meta"),
        (["train", "sample", "--seed", 2**63, "--out", "run"], "2^63"),
        ([], "COMMAND"),
    ],
)
def test_other_commands(files, capsys, monkeypatch, words, named):
    monkeypatch.chdir(files)
    before = sorted(files.rglob("*"))
    assert named in fails(capsys, *words)
    assert sorted(files.rglob("*")) == before
