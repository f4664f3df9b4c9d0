import dataclasses
import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

from basis import metrics
from basis.cli import main
from basis.cli.sampling import sampler_names
from basis.samplers import SAMPLERS
from basis.signals.datasets import load_images
from basis.signals.observation import read
from basis.store.loading import find_prior, load_prior

QUICK = ["--sampler", "basis", "--levels", "2", "--steps", "2"]


def fails(capsys, *words):
    """Runs a command that must fail: exit code 2, one line, no traceback."""
    try:
        code = main([str(w) for w in words])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    error = captured.err.strip().splitlines()
    assert code == 2 and len(error) == 1, captured.err
    return error[0]


def test_mix_then_separate(tmp_path, capsys):
    mixture = tmp_path / "m.npz"
    assert (
        main(["mix", "sample:3", "sample:18", "--alphas", "1", "0.5", "--out", str(mixture)]) == 0
    )
    file = read(mixture)
    expected = file.sources[:, 0] + 0.5 * file.sources[:, 1]
    assert torch.allclose(file.values, expected) and file.alphas.tolist() == [1.0, 0.5]
    out = tmp_path / "out"
    assert main(["separate", str(mixture), "--out", str(out), "--seed", "5", *QUICK]) == 0
    assert "picture:" in capsys.readouterr().out
    record = json.loads((out / "run.json").read_text())
    assert record["seed"] == 5 and record["settings"]["mixing"]["matrix"] == [[1.0, 0.5]]
    assert record["evaluations_per_mixture"] == 2 * (2 * 2 + 1 + 3)  # three of each for the verdict
    assert record["mixtures"][0]["residual_rms"] < 1 / 255
    assert record["psnr"]["count"] == 1
    arrays = np.load(out / "sources.npz")
    assert arrays["sources"].shape == (1, 2, 1, 28, 28)
    saved = np.asarray(Image.open(out / "m-source1.png")) / 255
    assert np.abs(saved - arrays["sources"][0, 0, 0]).max() < 1 / 255
    assert {p.name for p in out.iterdir()} == {
        "panel.png", "run.json", "sources.npz", "m-source1.png", "m-source2.png",
    }  # fmt: skip


@pytest.mark.parametrize("k", [3, 4])
def test_sample_with_more_sources(tmp_path, k):
    out = tmp_path / "out"
    words = ["separate", "sample", "--k", k, "--count", 2, "--out", out, "--keep", 1.0, *QUICK]
    assert main([str(w) for w in words]) == 0
    assert np.load(out / "sources.npz")["sources"].shape == (2, k, 1, 28, 28)
    panel = Image.open(out / "panel.png")
    assert panel.width > (2 * k + 3) * 112 and panel.height > 2 * 112
    assert (out / "states.png").exists()


def test_picture_of_an_average(tmp_path):
    picture = tmp_path / "m.png"
    assert (
        main(["mix", "sample:1", "sample:2", "--alphas", "0.5", "0.5", "--out", str(picture)]) == 0
    )
    out = tmp_path / "o"
    words = ["separate", str(picture), "--alphas", "0.5", "0.5", "--out", str(out)]
    assert main([*words, "--sampler", "greedy", "--sigma", "0.02", "--steps", "3"]) == 0
    record = json.loads((out / "run.json").read_text())
    assert "psnr" not in record and record["mixtures"][0]["residual_rms"] < 1 / 255


def test_numpy_batch_mask_and_noise(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "m.npy", rng.random((3, 1, 28, 28)).astype(np.float32))
    mask = np.zeros((28, 28), np.uint8)
    mask[:, :14] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    out = tmp_path / "o"
    words = ["separate", tmp_path / "m.npy", "--mask", tmp_path / "mask.png", "--noise", "0.1"]
    assert main([str(w) for w in [*words, "--out", out, *QUICK]]) == 0
    record = json.loads((out / "run.json").read_text())
    assert len(record["mixtures"]) == 3
    assert record["settings"]["mixing"]["masked"] and record["settings"]["mixing"]["noise"] == 0.1


def test_evaluate_writes_its_figures(tmp_path, capsys):
    path = tmp_path / "e.json"
    words = ["evaluate", "--data", "sample", "--pairs", 3, "--samples", 2, "--json", path, *QUICK]
    assert main([str(w) for w in words]) == 0
    record = json.loads(path.read_text())
    assert record["pairs"] == 3 and len(record["psnr_each"]["basis"]) == 3
    assert 10 < record["psnr"]["average"]["mean"] < 20
    best, one = record["psnr_each"]["basis, best possible choice"], record["psnr_each"]["basis"]
    assert all(b >= o for b, o in zip(best, one, strict=True))
    assert "average" in capsys.readouterr().out


def test_a_run_named_as_the_prior_it_began_from_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--data", "sample", "--init", "mnist", "--out", "mnist", "--batch-size", 8]
    words += ["--held-out", 8, "--variance-images", 0, "--energy-pairs", 0]
    assert main([str(w) for w in [*words, "--images", 8]]) == 0
    assert main([str(w) for w in [*words, "--images", 16]]) == 0
    assert "going on from step 1" in capsys.readouterr().out


def test_train_resumes_and_makes_a_prior(tmp_path, capsys):
    run = tmp_path / "run"
    training = [
        "train", "--data", "sample", "--widths", 12, 24, "--blocks", 1, 1, "--batch-size", 16,
        "--warmup", 32, "--held-out", 64, "--variance-images", 1000,
    ]  # fmt: skip
    words = [*training, "--out", run]
    assert main([str(w) for w in [*words, "--images", 64]]) == 0
    assert main([str(w) for w in [*words, "--images", 96]]) == 0
    assert "going on from step 4" in capsys.readouterr().out
    card = json.loads((run / "card.json").read_text())
    assert card["training"]["images_seen"] == 96 and card["shape"] == [1, 28, 28]
    assert (run / "curve.png").exists()
    out = tmp_path / "o"
    words = ["separate", "sample", "--count", 1, "--prior", run, "--out", out, *QUICK]
    assert main([str(w) for w in words]) == 0
    assert main(["priors", str(run)]) == 0
    assert "images_seen: 96" in capsys.readouterr().out
    tuned = tmp_path / "tuned"
    start = ["--init", run, "--out", tuned, "--images", 16, "--lr", 1e-9, "--adam-lr", 1e-9]
    assert main([str(w) for w in [*training, *start]]) == 0
    x = torch.rand(1, 1, 28, 28)
    old, new = (load_prior(folder).denoise(x, 0.3) for folder in (run, tuned))
    assert torch.allclose(old, new, atol=1e-3)
    # How sure it is goes on from what it was, and a short trial does not wait for a long fit.
    tuned_card = json.loads((tuned / "card.json").read_text())
    assert tuned_card["training"]["variance"]["images"] == 16
    old, new = (load_prior(folder).moments(x, 0.3)[1] for folder in (run, tuned))
    assert torch.allclose(old, new, rtol=0.05)
    other = [*training, *start, "--widths", 16, 24]
    capsys.readouterr()
    assert "does not fit into this network" in fails(capsys, *other)


def test_train_the_published_network(tmp_path):
    words = ["train", "--data", "sample", "--kind", "ncsn", "--width", 4, "--images", 8,
             "--batch-size", 4, "--held-out", 16, "--out", tmp_path]  # fmt: skip
    assert main([str(w) for w in words]) == 0
    card = json.loads((tmp_path / "card.json").read_text())
    assert (card["sigma_min"], card["sigma_max"]) == pytest.approx((0.01, 1.0))


def test_lists(capsys, tmp_path):
    assert main(["priors", "--json", str(tmp_path / "p.json")]) == 0
    assert "mnist" in [p["name"] for p in json.loads((tmp_path / "p.json").read_text())["priors"]]
    assert main(["data", "--json", str(tmp_path / "d.json")]) == 0
    assert "basis data download mnist" in capsys.readouterr().out
    assert main(["priors", "mnist"]) == 0
    assert "sha256" in capsys.readouterr().out


def test_bad_input(tmp_path, capsys):
    text = tmp_path / "text.png"
    text.write_text("hello")
    colour = tmp_path / "colour.png"
    Image.new("RGB", (28, 28), (200, 100, 0)).save(colour)
    nan = tmp_path / "nan.npy"
    np.save(nan, np.full((1, 28, 28), np.nan, np.float32))
    small = tmp_path / "small.npy"
    np.save(small, np.zeros((1, 1, 5, 5), np.float32))
    main(["mix", "sample:0", "sample:1", "--out", str(tmp_path / "m.npz")])
    good, out = tmp_path / "m.npz", tmp_path / "out"
    capsys.readouterr()

    def separate_fails(*words):
        return fails(capsys, "separate", *words, "--out", out, *QUICK)

    assert "nowhere.png" in separate_fails(tmp_path / "nowhere.png")
    assert "not an image" in separate_fails(text)
    assert "(batch, 1, 28, 28)" in separate_fails(colour)
    assert "NaN" in separate_fails(nan)
    assert "(batch, 1, 28, 28)" in separate_fails(small)
    assert "one alpha per source" in separate_fails(good, "--alphas", "1", "1", "1")
    assert "k = 3" in separate_fails(good, "--k", "3")
    assert "one alpha per source" in separate_fails("sample", "--alphas", "1", "1", "--k", "3")
    assert "outside the prior's range" in separate_fails(good, "--sigma-max", "50")
    assert "outside the prior's range" in separate_fails(good, "--sigma-min", "0.0001")
    assert "unknown prior 'minst'" in separate_fails(good, "--prior", "minst")
    greedy = ("separate", good, "--sampler", "greedy", "--delta", "1", "--out", out)
    assert "--delta is no setting of what runs here" in fails(capsys, *greedy)
    assert "'uniform', 'normal', 'zeros'" in separate_fails(good, "--start", "ones")
    assert "must be a whole number" in separate_fails(good, "--steps", "many")
    damaged = tmp_path / "damaged"
    shutil.copytree(find_prior("mnist"), damaged)
    (damaged / "weights.safetensors").write_bytes(b"not weights")
    assert "is damaged" in separate_fails(good, "--prior", damaged)
    assert "finite number" in separate_fails(good, "--alphas", "1", "nan")
    assert "unrecognized" in separate_fails(good, "--stepz", "3")
    assert "cannot be used" in separate_fails(good, "--device", "tpu9")
    assert "at least 1" in separate_fails(good, "--samples", "0")
    assert "basis data download mnist" in separate_fails("mnist")
    assert not out.exists()
    assert "one alpha per image" in fails(capsys, "mix", "sample:0", "sample:1", "--alphas", "1")
    assert "0 to 511" in fails(capsys, "mix", "sample:0", "sample:512")
    assert "unknown" in fails(capsys, "mix", "simple:0", "sample:1")
    over = tmp_path / "over.png"
    assert "over.png" in fails(capsys, "mix", "sample:0", "sample:1", "--out", over)
    assert not over.exists()
    assert "is a file" in fails(capsys, "separate", good, "--out", text, *QUICK)
    assert text.read_text() == "hello"
    assert "invalid choice" in fails(capsys, "frobnicate")


def test_a_failed_run_loses_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["separate", "sample", "--count", "1", "--out", str(out), *QUICK]) == 0
    capsys.readouterr()  # a few steps are not plausible, and said so
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    words = (
        "sample",
        "--count",
        "1",
        "--sampler",
        "basis",
        "--delta",
        "0.5",
        "--out",
        out,
        "--levels",
        "1",
        "--steps",
        "60",
    )
    assert "diverged" in fails(capsys, "separate", *words)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_the_parser_knows_every_sampler_and_its_settings(capsys):
    assert sampler_names() == list(SAMPLERS)
    for name, kind in SAMPLERS.items():
        with pytest.raises(SystemExit) as stop:
            main(["separate", "--sampler", name, "--help"])
        text = capsys.readouterr().out
        assert stop.value.code == 0
        for field in dataclasses.fields(kind):
            assert "--" + field.name.replace("_", "-") in text
            assert field.metadata["help"].split()[0] in text


def test_several_mixtures_of_the_same_sources(tmp_path, capsys):
    """Two pictures, each another mixture of two digits, are one observation."""
    for name, weights in (("a", ("0.7", "0.3")), ("b", ("0.3", "0.7"))):
        words = ["mix", "sample:3", "sample:18", "--alphas", *weights]
        assert main([*words, "--out", str(tmp_path / f"{name}.png")]) == 0
    rows = ["--alphas", "0.7", "0.3", "--alphas", "0.3", "0.7"]
    inputs = [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    out = tmp_path / "o"
    words = ["separate", *inputs, *rows, "--sampler", "gibbs", "--steps", "6", "--out", str(out)]
    assert main(words) == 0
    sources = torch.from_numpy(np.load(out / "sources.npz")["sources"])
    truth = load_images("sample").floats(torch.tensor([3, 18]))[None]
    # Two mixtures of two sources leave nothing open but the rounding of their pixels.
    assert metrics.psnr(sources, truth, permute=True).item() > 35
    assert main(["separate", "sample", "--count", "2", *rows, *QUICK, "--out", str(out)]) == 0
    one = fails(capsys, "separate", inputs[0], *rows, "--out", out)
    assert "give 2 mixtures of the same sources" in one
    # Files that say what they were mixed with are held to the rows.
    for name, weights in (("a", rows[1:3]), ("b", rows[4:6]), ("c", ("1", "1"))):
        words = ["mix", "sample:3", "sample:18", "--alphas", *weights]
        assert main([*words, "--out", str(tmp_path / f"{name}.npz")]) == 0
    arrays = [str(tmp_path / f"{name}.npz") for name in "abc"]
    assert main(["separate", *arrays[:2], *rows, *QUICK, "--out", str(out)]) == 0
    other = fails(capsys, "separate", arrays[0], arrays[2], *rows, "--out", out)
    assert "c.npz was mixed with alphas 1 1, which is no row of --alphas" in other
    uneven = fails(capsys, "separate", *inputs, "--alphas", 1, "--alphas", 1, 1, "--out", out)
    assert "equally many" in uneven


def test_help_and_import_are_quick():
    started = time.perf_counter()
    text = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "basis", "train", "--help"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert time.perf_counter() - started < 2
    assert "--kind" in text.stdout
    loaded = {line.rsplit("|", 1)[-1].strip() for line in text.stderr.splitlines()}
    assert not loaded & {"torch", "numpy", "matplotlib", "scipy"}
    code = "import basis, sys; assert 'torch' not in sys.modules; basis.separate; basis.load_prior"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_source_may_have_a_prior_of_its_own(tmp_path, capsys):
    words = ["separate", "sample", "--count", "1", "--sampler", "gibbs", "--steps", "12"]
    both = ["--prior", "mnist", "--prior", "mnist-glow", "--out", str(tmp_path / "two")]
    assert main([*words, *both]) == 0
    assert (tmp_path / "two" / "panel.png").exists()
    three = [*both, "--prior", "mnist", "--k", "2"]
    assert main([*words, *three]) == 2
    assert "prior" in capsys.readouterr().err
