"""The command line: help, misspelled words, exit codes, outputs."""

import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from cli.conftest import fails, run
from PIL import Image

import basis.cli
from basis.samplers import SAMPLERS
from basis.settings import SAMPLER_NAMES

COMMANDS = list(basis.cli._COMMANDS)
QUICK = ["--method", "gibbs", "--steps", "2"]


def test_help_and_import_do_not_wait_for_torch():
    for command in (*COMMANDS, "lab bench"):
        text = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "basis", *command.split(), "--help"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        loaded = {line.rsplit("|", 1)[-1].strip() for line in text.stderr.splitlines()}
        assert not loaded & {"torch", "numpy", "matplotlib", "scipy", "gradio"}, command
    code = "import basis, sys; assert 'torch' not in sys.modules; basis.separate; basis.Prior"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("command", ["separate", "colorize", "mix", "train", "sample", "check"])
def test_help_begins_with_what_most_people_need(capsys, command):
    assert run(command, "--help") == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines[lines.index("positional arguments:") :]
    first = first[: [i for i, line in enumerate(first) if line.endswith(":")][2]]
    flags = [line.split()[0] for line in first if line.startswith("  -")]
    assert len(flags) <= 7, flags


def test_help_of_training_lists_all_settings_on_request(capsys):
    assert run("train", "--help-all") == 0
    text = capsys.readouterr().out
    for flag in ("--lr", "--cooldown", "--widths", "--embedding", "--flip"):
        assert flag in text
    assert run("train", "--help") == 0
    text = capsys.readouterr().out
    assert "--cooldown" not in text and text.count("\n  --") <= 12


def test_help_lists_commands_in_groups(capsys):
    assert run("--help") == 0
    text = capsys.readouterr().out
    assert [group for group in basis.cli._GROUPS if f"\n{group}:\n" in text] == [
        "separate", "your own models", "research",
    ]  # fmt: skip
    assert all(f"\n  {command} " in text for command in COMMANDS)


def test_the_priors_that_fit_a_file_are_listed(capsys, tmp_path, pictures):
    Image.new("RGB", (40, 40), (9, 99, 0)).save(tmp_path / "color.png")
    Image.new("RGB", (40, 40), (99, 99, 99)).save(tmp_path / "equal.png")
    (tmp_path / "folder").mkdir()
    Image.new("L", (28, 28), 50).save(tmp_path / "folder" / "a.png")
    for name, fit, other in [
        ("color.png", "cifar10", "mnist"),
        ("equal.png", "mnist", "cifar10"),
        ("folder", "mnist", "cifar10"),
    ]:
        assert run("separate", tmp_path / name, "--out", tmp_path / "out") == 2
        error = capsys.readouterr().err
        assert f"\n  {fit} " in error and other not in error and f"--prior {fit}" in error
    assert "8x8 grey" in fails(capsys, "separate", pictures / "a.png")
    quick = ["--alphas", 1, *QUICK, "--out", tmp_path / "o"]
    assert run("separate", "sample:3", *quick) == 0
    assert "mnist" in capsys.readouterr().out


def test_every_sampler_has_flags_for_its_settings(capsys):
    assert list(SAMPLER_NAMES) == list(SAMPLERS)
    parser = basis.cli.Parser()
    basis.cli.importlib.import_module("basis.cli.separate").add(parser)
    own = {action.dest for action in parser._actions}
    for name, kind in SAMPLERS.items():
        assert run("separate", "--method", name, "--help") == 0
        text = capsys.readouterr().out
        for field in dataclasses.fields(kind):
            assert "--" + field.name.replace("_", "-") in text
            assert field.name not in own  # they would be mistaken for each other


def test_misspelled_words(capsys):
    assert "separate" in fails(capsys, "seperate", "a.png")
    assert "--alphas" in fails(capsys, "separate", "--alfas", 1)
    assert "--alphas" in fails(capsys, "separate", "--alph", 1)  # no abbreviations
    assert "--method NAME" in fails(capsys, "separate", "--levels", 3)
    assert "xyzzy" in fails(capsys, "xyzzy")
    assert "show" in fails(capsys, "priors", "shwo")
    assert "--version" in fails(capsys, "--versoin")
    assert "--count" in fails(capsys, "lab", "bench", "--cout", 3)
    assert "--held-out" in fails(capsys, "priors", "measure", "mnist", "--hld-out", 3)
    assert "energy" in fails(capsys, "train", "x", "--out", "y", "--kind", "enrgy")
    assert "mean balanced" in fails(capsys, "separate", "sample", "--method", "balancd")
    assert "mean sample" in fails(capsys, "mix", "smple:1", "sample:2")
    assert "--stepz" in fails(capsys, "colorize", "sample-photos:1", "--stepz", 4)


def test_exit_codes(capsys, monkeypatch):
    def stop(args):
        raise KeyboardInterrupt

    def broken(args):
        raise KeyError("two\nlines")

    monkeypatch.setattr("basis.cli.mix.run", stop)
    assert run("mix", "a", "b") == 130
    monkeypatch.setattr("basis.cli.mix.run", broken)
    assert run("mix", "a", "b") == 70
    error = capsys.readouterr().err.splitlines()[-1]
    assert "unexpected KeyError at " in error
    monkeypatch.setenv("BASIS_DEBUG", "1")
    with pytest.raises(KeyError):
        run("mix", "a", "b")


def test_everything_printed_is_escaped(capsys, monkeypatch):
    def prints(args):
        print("name\x1b[2J")
        print("name\x1b]0;x\x07", file=sys.stderr)

    monkeypatch.setattr("basis.cli.mix.run", prints)
    assert run("mix", "a\x1b[2J", "b") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("name\\x1b[2J\n", "name\\x1b]0;x\\x07\n")


def test_the_data_root_lasts_for_a_command(capsys, monkeypatch, priors):
    root = priors["tiny"].parent.parent
    assert run("priors", "list", "--data-root", root) == 0
    assert "tiny" in capsys.readouterr().out
    monkeypatch.delenv("BASIS_DATA", raising=False)
    assert run("priors", "list", "--data-root", root) == 0
    assert "BASIS_DATA" not in os.environ


def test_priors(capsys, tmp_path, priors):
    assert run("priors", "list", "--json", tmp_path / "p.json") == 0
    assert "mnist" in [p["name"] for p in json.loads((tmp_path / "p.json").read_text())["priors"]]
    assert run("priors", "show", "mnist") == 0
    assert "sha256" in capsys.readouterr().out
    root = tmp_path / "root"
    assert run("priors", "add", priors["tiny"], "--name", "mine", "--data-root", root) == 0
    data = tmp_path / "data.npy"
    np.save(data, np.random.default_rng(0).random((20, 1, 8, 8), dtype=np.float32))
    words = ["priors", "measure", "mine", "--data", data, "--pairs", 2, "--method", 30]
    assert run(*words, "--data-root", root) == 0
    assert "energies of separated: median" in capsys.readouterr().out
    assert run("priors", "show", "mine", "--data-root", root) == 0
    assert "pairs: 2" in capsys.readouterr().out
    assert "--data" in fails(capsys, "priors", "measure", "mine", "--spectrum")


def test_train_resumes_and_makes_a_prior(tmp_path, capsys):
    data, out = tmp_path / "data.npy", tmp_path / "run"
    np.save(data, np.random.default_rng(0).random((80, 1, 8, 8), dtype=np.float32))
    words = ["train", data, "--out", out, "--widths", 8, "--blocks", 1, "--batch-size", 8,
             "--held-out", 8, "--variance-images", 0, "--energy-pairs", 0]  # fmt: skip
    assert run(*words, "--images", 16) == 0
    assert run(*words, "--images", 24) == 0
    card = json.loads((out / "card.json").read_text())
    assert card["training"]["images_seen"] == 24 and card["shape"] == [1, 8, 8]
    assert run("sample", out, "--count", 2, "--steps", 1, "--out", tmp_path / "s") == 0
    assert "lr" in fails(capsys, *words, "--lr=-1")
    assert "--cooldwn" in fails(capsys, *words, "--cooldwn", 1)
    other = tmp_path / "other"
    words[words.index(out)] = other
    assert "sigma_min" in fails(capsys, *words, "--sigma-min", 5, "--sigma-max", 1)
    assert "at most" in fails(capsys, *words, "--threads", 999_999)
    assert not other.exists()


def test_a_color_photo_is_filled_in(tmp_path, priors, pictures):
    pixels = np.full((16, 16), 255, np.uint8)
    pixels[4:8, 4:8] = 0
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    words = ["separate", pictures / "paper.png", "--prior", priors["color"], *QUICK]
    words += ["--alphas", 1, "--mask", tmp_path / "mask.png", "--out"]
    for name, options in (("tiles", []), ("small", ["--size", 8]), ("job", ["--size", 8, "--job"])):
        assert run(*words, tmp_path / name, *options) == 0
    photo = np.asarray(Image.open(pictures / "paper.png")) / 255
    found = np.load(tmp_path / "tiles" / "sources.npz")["sources"][0, 0].transpose(1, 2, 0)
    assert np.abs(found - photo)[pixels > 0].max() < 1e-3 < np.abs(found - photo).max()
    small = np.load(tmp_path / "small" / "sources.npz")["sources"]
    assert np.abs(small - np.load(tmp_path / "job" / "sources.npy")).max() < 1e-4


# Outputs -----------------------------------------------------------------------------------------


def test_files_of_an_earlier_run_do_not_stay(tmp_path, priors, pictures):
    out = tmp_path / "out"
    words = ["--prior", priors["tiny"], *QUICK, "--out", out]
    many = ["separate", pictures / "many.npy", "--sources", 3, "--trajectory", 1.0]
    assert run(*many, *words) == 0
    assert {"many-0003-source3.png", "trajectory.png"} <= {p.name for p in out.iterdir()}
    (out / "mine-source1.png").write_bytes(b"not of a run")
    assert run("separate", pictures / "a.png", *words) == 0
    assert {p.name for p in out.iterdir()} == {
        "a-source1.png", "a-source2.png", "panel.png", "run.json", "sources.npz",
        "mine-source1.png",
    }  # fmt: skip
    record = json.loads((out / "run.json").read_text())
    assert record["command"].startswith("basis separate ") and record["items"][0]["name"] == "a"


def test_a_failed_run_changes_nothing(tmp_path, priors, pictures, capsys):
    out = tmp_path / "out"
    words = ["separate", pictures / "a.png", "--prior", priors["tiny"], "--out", out]
    assert run(*words, *QUICK) == 0
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    diverging = ["--method", "basis", "--delta", 0.5, "--levels", 1, "--steps", 60]
    assert "diverged" in fails(capsys, *words, *diverging)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_runs_and_jobs_do_not_mix(tmp_path, priors, pictures, capsys):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "m.png").write_bytes((pictures / "a.png").read_bytes())
    words = ["--prior", priors["tiny"], *QUICK, "--out", folder / "out"]
    assert run("separate", folder / "m.png", *words) == 0
    # What the first run wrote lies below the folder that the job reads, and is not read.
    assert run("separate", folder, *words) == 0
    assert "1 of 1 observations" in capsys.readouterr().out
    left = {p.name for p in (folder / "out").iterdir()}
    assert {"store.json", "sources.npy", "panel.png"} < left and "m-source1.png" not in left
    assert "a job" in fails(capsys, "separate", folder / "m.png", *words)
    assert "seed 0 -> 1" in fails(capsys, "separate", folder, *words, "--seed", 1)


def test_outputs_never_replace_inputs(tmp_path, priors, capsys):
    for name in ("a.png", "b.png", "a-source1.png"):
        Image.new("L", (8, 8), 99).save(tmp_path / name)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    a, b, own = (tmp_path / name for name in ("a.png", "b.png", "a-source1.png"))
    assert str(a) in fails(capsys, "mix", a, b, "--alphas", 0.5, 0.5, "--out", a)
    words = ["separate", a, "--prior", priors["tiny"], *QUICK, "--out", tmp_path]
    assert str(own) in fails(capsys, *words, "--mask", own)
    link = tmp_path / "link.json"
    link.symlink_to(a)
    assert "link.json" in fails(capsys, "check", priors["tiny"], "--data", a, "--json", link)
    assert "input" in fails(capsys, "train", tmp_path, "--held-out", 1, "--out", tmp_path)
    assert {p: p.read_bytes() for p in before} == before


def test_a_linked_folder_of_pictures_is_refused(tmp_path, priors, pictures, capsys):
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    out.mkdir()
    (out / "pictures").symlink_to(elsewhere)
    words = ["--prior", priors["tiny"], *QUICK, "--pictures", "--out", out]
    assert "symbolic link" in fails(capsys, "separate", pictures / "all", *words)
    assert not list(elsewhere.iterdir())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="file names of any bytes")
def test_names_of_any_bytes_reach_neither_terminal_nor_parser(tmp_path, priors, capsys):
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/line\nbreak-\xff\x1b[31m"))
    odd.mkdir()
    Image.new("L", (8, 8), 50).save(odd / "a\nb.png")
    (odd / "broken\x1b[2J.png").write_bytes(b"no picture")
    words = ["--prior", priors["tiny"], *QUICK]
    assert run("separate", odd / "a\nb.png", *words, "--out", tmp_path / "o\n1") == 0
    assert run("separate", odd, *words, "--out", tmp_path / "o2") == 0
    assert run("separate", odd / "none\n.png", *words, "--out", tmp_path / "o3") == 2
    printed = capsys.readouterr()
    assert "1 of 2 could not be used" in printed.out
    assert "\x1b" not in printed.out + printed.err


def test_separating_a_picture_runs_few_files(tmp_path, monkeypatch):
    """Functions of this many files of the package run; modules are imported before."""
    monkeypatch.chdir(tmp_path)
    assert run("mix", "sample:3", "sample:18", "--alphas", 0.5, 0.5, "--out", "mixture.png") == 0
    words = ["separate", "mixture.png", "--prior", "mnist", "--alphas", 0.5, 0.5, "--method", 20]
    assert run(*words) == 0
    package, files = os.path.dirname(basis.__file__), set()

    def profile(frame, event, arg):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package):
            files.add(os.path.relpath(code.co_filename, package))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        assert run(*words) == 0
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert len(files) <= 38, sorted(files)
