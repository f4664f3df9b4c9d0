"""Hostile input: each kind of it ends in one line, loses nothing and touches nothing else."""

import gzip
import json
import os
import stat
import struct
import sys
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import run_forked
from PIL import Image
from safetensors.torch import save_file
from test_cli import fails as refused

from basis.cli import main
from basis.errors import BasisError, markdown_cell, printable, shown
from basis.files import check_disk_space, sha256, write_text
from basis.signals.datasets import load_images
from basis.signals.observation import read
from basis.store.folder import save_prior, write_prior
from basis.store.loading import add_prior, list_priors, load_prior
from basis.training.state import read_log

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux files")


def forked(folder, work, **settings):
    """What becomes of `work` in a process of its own, which may crash."""

    def alone():
        torch.set_num_threads(1)  # the threads of this process are not in a fork of it
        return work() or 0

    folder.mkdir(exist_ok=True)
    return run_forked(alone, folder, seconds=60, **settings)


def in_time(seconds, work):
    """What `work` raised; a test that hangs fails instead."""
    found = []

    def guarded():
        try:
            work()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"not done in {seconds} s"
    return found[0] if found else None


# Pickles -----------------------------------------------------------------------------------------


# Outputs -----------------------------------------------------------------------------------------


@LINUX
def test_devices_and_pipes_are_written_through(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    time.sleep(0.2)
    write_text(pipe, "hello\n")
    reader.join(5)
    assert read == ["hello\n"] and stat.S_ISFIFO(pipe.stat().st_mode)
    error = in_time(5, lambda: write_text(pipe, "nobody reads"))
    assert isinstance(error, BasisError) and str(pipe) in str(error)
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


@LINUX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root replaces devices")
def test_a_device_stays_a_device(tmp_path, capsys):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_bytes(b"x")
    except OSError:
        pytest.skip("no devices can be made here")
    assert main(["priors", "--json", str(device)]) == 0
    assert stat.S_ISCHR(device.stat().st_mode)
    done = forked(tmp_path / "fork", lambda: main(["data", "--json", "/dev/stdout"]))
    assert done.code == 0 and '"data"' in done.out
    assert os.path.islink("/dev/stdout")


def test_outputs_never_replace_inputs(tmp_path, capsys):
    mixture = tmp_path / "m.npz"
    assert main(["mix", "sample:1", "sample:2", "--out", str(mixture)]) == 0
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("a.png", "a-colours1.png"):
        Image.new("L", (32, 32), 99).save(photos / name)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    link = tmp_path / "link.json"
    link.symlink_to(mixture)
    words = ["check", "mnist", "--data", mixture, "--json"]
    assert "are read" in refused(capsys, *words, mixture)
    assert "are read" in refused(capsys, *words, link)
    words = ["colorize", photos / "a.png", photos / "a-colours1.png", "--out", photos]
    (photos / "1-a-colours1.png").symlink_to("a.png")
    assert "are read" in refused(capsys, *words)
    train = ["train", "--data", photos, "--held-out", 1, "--out", photos]
    assert "is read as input" in refused(capsys, *train)
    own = tmp_path / "m-source1.png"
    Image.new("L", (28, 28), 9).save(own)
    words = ["separate", mixture, "--mask", own, "--out", tmp_path]
    assert "are read" in refused(capsys, *words)
    assert {p: p.read_bytes() for p in before} == before


def test_a_folder_may_be_called_like_a_word(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cost").mkdir()
    words = ["study", "cost", "--prior", "mnist", "--sampler", "gibbs", "--steps", "2"]
    assert main([*words, "--out", "cost"]) == 0


@LINUX
def test_commands_on_a_full_disk_end_in_one_line(tmp_path):
    """A limit on the size of files stands for the disk: the same errors, without mounting one."""
    import resource

    def small():
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    train = ["train", "--data", "sample", "--widths", 12, 24, "--blocks", 1, 1, "--images", 32]
    for words in (
        [*train, "--batch-size", 16, "--held-out", 64, "--out", tmp_path / "run"],
        ["classifier", "--data", "sample", "--epochs", 0.1, "--out", tmp_path / "c"],
        ["priors", "add", load_prior_folder(), "--name", "x", "--data-root", tmp_path / "root"],
        ["separate", "sample", "--effort", 20, "--count", 1, "--out", tmp_path / "s"],
    ):
        done = forked(tmp_path / "fork", lambda words=words: small() or main([*map(str, words)]))
        assert done.code == 2, done.err
        *told, last = done.err.splitlines()
        assert "cannot write" in last and all("images seen" in line for line in told), done.err
    assert not list((tmp_path / "root" / "priors").iterdir())


@LINUX
def test_results_and_conversions_on_a_full_disk_end_in_one_line(tmp_path):
    """What `reproduce` keeps and what `convert` writes are files of tensors as well."""
    import resource
    import signal

    from basis.lab.cache import CachedResult, ResultCache
    from basis.nn.ncsn import NCSN, NCSNConfig

    network = NCSN(NCSNConfig(size=8, width=4, levels=3))
    torch.save([{f"module.{n}": t for n, t in network.state_dict().items()}], tmp_path / "n.pth")

    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    def convert():
        small()
        words = [
            "lab",
            "convert",
            "ncsn",
            tmp_path / "n.pth",
            "--size",
            8,
            "--out",
            tmp_path / "prior",
        ]
        return main([*map(str, words)])

    def keep():
        small()
        made = CachedResult({"a": torch.zeros(4000)})
        with pytest.raises(BasisError, match="cannot write"):
            ResultCache(tmp_path / "cache").get("table", {}, lambda: made)

    done = forked(tmp_path / "fork", convert)
    assert done.code == 2 and "cannot write" in done.err and done.err.count("\n") == 1, done.err
    assert not (tmp_path / "prior" / "card.json").exists()
    done = forked(tmp_path / "fork", keep)
    assert done.code == 0, done.err


@LINUX
def test_memory_does_not_grow_with_the_number_of_mixtures(tmp_path, tiny_prior):
    """48 kB of each were kept; a job keeps 16 bytes. Both numbers of mixtures make a job."""
    import resource

    prior = write_prior(tiny_prior, tmp_path / "prior")
    peaks = []
    for count in (1_010, 2_020):
        given = np.random.default_rng(0).random((count, 1, 8, 8), dtype=np.float32)
        np.save(tmp_path / "many.npy", np.minimum(given, 1))
        words = ["separate", tmp_path / "many.npy", "--prior", prior, "--sampler", "gibbs",
                 "--steps", 1, "--samples", 16, "--out", tmp_path / f"{count}"]  # fmt: skip

        def work(words=words):
            assert main([*map(str, words)]) == 0
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
            return 0

        done = forked(tmp_path / "fork", work)
        assert done.code == 0, done.err
        peaks.append(int(done.out.split()[-1]))
    grown = 1024 * (peaks[1] - peaks[0]) / 1_010
    assert grown < 8_000, f"{grown:.0f} bytes of each mixture stay in memory"


def load_prior_folder() -> Path:
    from basis.store.loading import EMBEDDED

    return EMBEDDED / "mnist-vae"


def test_room_is_looked_at_before_the_work(tmp_path, capsys, monkeypatch):
    import shutil

    check_disk_space(tmp_path, 1000)
    with pytest.raises(BasisError, match="are free there"):
        check_disk_space(tmp_path / "not" / "there", 10**18)
    few = shutil.disk_usage(tmp_path)._replace(free=2 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: few)
    monkeypatch.setattr("basis.training.trainer.Trainer.run", lambda *a, **s: pytest.fail("ran"))
    monkeypatch.setattr("basis.separate", lambda *a, **s: pytest.fail("ran"))
    words = ["train", "--data", "sample", "--held-out", 64, "--out", tmp_path / "run"]
    assert "are free there" in refused(capsys, *words)
    words = ["separate", "sample", "--count", 512, "--out", tmp_path / "s"]
    assert "are free there" in refused(capsys, *words)


# Priors ------------------------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path, tiny_prior, monkeypatch):
    """A data root with a good prior on it."""
    monkeypatch.setenv("BASIS_DATA", str(tmp_path / "root"))
    write_prior(tiny_prior, tmp_path / "root" / "priors" / "good")
    return tmp_path / "root" / "priors"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '"x"', "[" * 5000, "\x00", '{"name": 1e999}'])
def test_one_bad_card_takes_no_other_prior_away(shelf, capsys, text):
    (shelf / "bad").mkdir()
    (shelf / "bad" / "card.json").write_text(text)
    names = {entry.name: entry.problem for entry in list_priors()}
    assert names["bad"] and not names["good"] and not names["mnist"]
    assert load_prior("good").shape == (1, 8, 8)
    assert main(["priors"]) == 0
    assert "cannot be used" in capsys.readouterr().out
    assert "prior 'bad' cannot be used" in refused(capsys, "priors", "bad")


@LINUX
def test_pipes_instead_of_files_are_refused_at_once(shelf, tmp_path):
    (shelf / "pipe").mkdir()
    os.mkfifo(shelf / "pipe" / "card.json")
    assert in_time(20, lambda: load_prior("good")) is None
    for name in ("data", "a.npy", "a.png", "log.jsonl", "state.safetensors", "m.ckpt.index"):
        os.mkfifo(tmp_path / name)
    from basis.adapters.glow import from_glow
    from basis.training.state import read_state

    for work in (
        lambda: load_prior(shelf / "pipe"),
        lambda: load_images(tmp_path / "data"),
        lambda: load_images(tmp_path / "a.npy"),
        lambda: read(tmp_path / "a.png"),
        lambda: read_log(tmp_path),
        lambda: read_state(tmp_path),
        lambda: from_glow(tmp_path / "m.ckpt", size=8),
    ):
        assert isinstance(in_time(20, work), BasisError)


def changed(card, path, value):
    """The card with one entry changed; a path is keys with dots between them."""
    card = json.loads(json.dumps(card))
    *place, last = path.split(".")
    at = card
    for key in place:
        at = at[key]
    at[last] = value
    return card


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("architecture.network.widths", [10**9, 10**9]),
        ("architecture.network.widths", "wide"),
        ("architecture.network.widths", []),
        ("architecture.network.blocks", [10**6, 10**6]),
        ("architecture.network.blocks", [60_000, 60_000]),
        ("architecture.network.embedding", 60_000),
        ("architecture.network.embedding", 1.5),
        ("architecture.network.dims", 0),
        ("architecture.network.channels", 3),
        ("architecture.network", 7),
        ("architecture.std", 0),
        ("architecture.mean", "x"),
        ("architecture.kind", ["unet"]),
        ("architecture", {}),
        ("shape", [1, 2**20, 2**20]),
        ("shape", [1, 9, 9]),
        ("sigma_min", -1),
        ("sigma_min", 10**400),
        ("sigma_max", 0.001),
        ("std", 0),
        ("value_range", [2, 1]),
        ("errors", {"0.1": "a"}),
        ("errors", {"a": 1}),
        ("name", "two\nlines"),
        ("name", "\x1b[31mred"),
        ("parameters", -1),
    ],
)
def test_cards_are_checked_before_anything_is_built(tiny_prior, tmp_path, path, value):
    folder = write_prior(tiny_prior, tmp_path / "p")
    card = changed(json.loads((folder / "card.json").read_text()), path, value)
    (folder / "card.json").write_text(json.dumps(card))
    error = in_time(20, lambda: load_prior(folder))
    assert isinstance(error, BasisError) and "\n" not in printable(error)


def test_what_a_card_describes_is_bounded_by_its_weights(tmp_path):
    """Small weights under a card that asks for gigabytes: given up at the first large layer."""
    import resource

    save_file({"a": torch.zeros(3)}, tmp_path / "weights.safetensors")
    card = {
        "name": "big",
        "architecture": {
            "kind": "unet",
            "network": {"widths": [4096, 8192], "blocks": [200, 200]},
            "mean": 0.0,
            "std": 1.0,
        },
        "shape": [1, 8, 8],
        "sigma_min": 0.01,
        "sigma_max": 1.0,
        "sha256": sha256(tmp_path / "weights.safetensors"),
    }
    (tmp_path / "card.json").write_text(json.dumps(card))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BasisError, match="more weights than the file holds"):
        load_prior(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_weights_that_are_no_numbers_are_not_saved(tiny_prior, tmp_path):
    weights = {n: p.clone() for n, p in tiny_prior.module.named_parameters()}
    entries = json.loads((write_prior(tiny_prior, tmp_path / "p") / "card.json").read_text())
    next(iter(weights.values())).fill_(float("nan"))
    with pytest.raises(BasisError, match="no finite numbers"):
        save_prior(tmp_path / "q", weights, entries)
    assert not (tmp_path / "q" / "weights.safetensors").exists()


def test_card_text_is_shown_and_not_obeyed(shelf, capsys):
    card = json.loads((shelf / "good" / "card.json").read_text())
    card |= {"title": "\x1b[2Jgone\nmnist  trusted", "note": "a\u202eb"}
    (shelf / "good" / "card.json").write_text(json.dumps(card))
    assert main(["priors"]) == 0 and main(["priors", "good"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\u202e" not in said and r"\x1b[2Jgone\nmnist" in said
    assert markdown_cell("a|b\n![x](http://y)<b>`") == r"a\|b\n![x\](http://y)&lt;b>\`"


def test_a_path_is_never_a_name_on_the_hub(tmp_path, monkeypatch, capsys):
    hub = pytest.importorskip("huggingface_hub")
    asked = []
    monkeypatch.setattr(hub, "snapshot_download", lambda *a, **s: asked.append((a, s)))
    monkeypatch.chdir(tmp_path)
    assert "unknown prior 'runs/photos'" in refused(
        capsys, "separate", "sample", "--prior", "runs/photos"
    )
    assert "@revision" in refused(capsys, "priors", "add", "hf:owner/name")
    assert not asked
    with pytest.raises(BasisError, match="cannot be had"):  # our stand-in returns no folder
        load_prior("hf:owner/name@v1")
    assert asked[0][0] == ("owner/name",) and asked[0][1]["revision"] == "v1"


# Training ----------------------------------------------------------------------------------------

TRAIN = ["train", "--data", "sample", "--widths", 12, "--blocks", 1, "--batch-size", 8,
         "--held-out", 64, "--images", 16, "--variance-images", 0]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ["--sigma-min", 0],
        ["--sigma-focus", 0],
        ["--dropout", 1.5],
        ["--average", -5],
        ["--average", "nan"],
        ["--clip", 0],
        ["--sigma-uniform", 2],
        ["--embedding", 10**7],
        ["--seed", 2**63],
        ["--device", "meta"],
        ["--threads", 999_999],
    ],
)
def test_training_settings_out_of_range(tmp_path, capsys, words):
    refused(capsys, *TRAIN, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Arrays and pictures -----------------------------------------------------------------------------


def test_compressed_arrays_are_looked_at_before_they_are_unfolded(tmp_path, monkeypatch):
    header = bytes([0, 0, 8, 3]) + struct.pack(">III", 10**6, 28, 28)
    (tmp_path / "x-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(100)))
    with pytest.raises(BasisError, match="announces 784000000 bytes"):
        load_images(tmp_path / "x-images-idx3-ubyte.gz")
    with zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    from basis.adapters.ncsn import from_ncsn

    with pytest.raises(BasisError, match="unfolds to"):
        from_ncsn(tmp_path / "bomb.pth")
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros((100, 28, 28), "uint8"))
    assert len(load_images(tmp_path / "a.npz")) == 100
    monkeypatch.setattr("basis.files.memory_left", lambda: 100_000)
    with pytest.raises(BasisError, match="of memory are left"):
        load_images(tmp_path / "a.npz")


def test_sources_of_another_shape_are_told_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("basis.separate", lambda *a, **s: pytest.fail("worked in vain"))
    for sources in (np.zeros((1, 3, 1, 28, 28)), np.zeros((1, 2, 3, 28, 28))):
        np.savez(tmp_path / "m.npz", mixture=np.zeros((1, 1, 28, 28)), sources=sources)
        words = ["separate", tmp_path / "m.npz", "--out", tmp_path / "o"]
        assert "the file's sources have shape" in refused(capsys, *words)


# Names, terminals and mistakes -------------------------------------------------------------------


def test_distances_and_studies_of_other_shapes(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((4, 1, 20, 20)))
    assert "28x28" in refused(capsys, "distance", tmp_path / "a.npy", tmp_path / "a.npy")
    words = ["study", "gradients", "--prior", "cifar10", "--data", "sample", "--pairs", 2]
    assert "shape (3, 32, 32)" in refused(capsys, *words, "--out", tmp_path / "s")
    words[1:4] = ["likelihoods", "--prior", "cifar10-glow"]
    refused(capsys, *words, "--effort", 20, "--out", tmp_path / "s")


@LINUX
def test_names_with_new_lines_and_other_bytes(tmp_path):
    odd = Path(os.fsdecode(bytes(tmp_path) + b"/line\nbreak-\xff\x1b[31m"))
    odd.mkdir()
    picture = odd / "a\nb.png"
    Image.new("L", (28, 28), 50).save(picture)
    for words, code in (
        (["separate", picture, "--effort", 20, "--out", odd / "o\n1"], 0),
        (["mix", picture, picture, "--out", odd / "m\n.npz"], 0),
        (["separate", odd / "none\n.png", "--out", odd / "o2"], 2),
        (["priors", odd], 2),
        (["train", "--data", odd / "none\n", "--out", odd / "r\n"], 2),
        (["data", "--data-root", odd], 0),
        (["study", "cost", "--prior", "mnist", "--out", odd / "s\n"], 0),
    ):
        work = lambda words=words: main([*map(str, words)])  # noqa: E731
        done = forked(tmp_path / "fork", work, encoding="ascii")
        assert done.code == code and not done.complaints(), done.err


def test_a_fault_of_ours_is_one_line_too(capsys, monkeypatch):
    def broken(root=None):
        raise KeyError("two\nlines")

    monkeypatch.setattr("basis.store.list_priors", broken)
    assert main(["priors"]) == 70
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "unexpected KeyError at _priors_command.py" in said
    monkeypatch.setenv("BASIS_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["priors"])


def test_matrices_without_a_solution_are_told_in_a_line(capsys, monkeypatch):
    """Damaged weights make features and flows whose matrices cannot be taken apart."""
    from basis.lab.features import frechet_distance, gaussian_of

    wild = gaussian_of(torch.tensor([[1e200, -1e200, 3.0], [0.0, 1.0, 2.0], [1e200, 4.0, -1e200]]))
    with pytest.raises(BasisError, match="have no distance"):
        frechet_distance(wild, wild)

    def broken(root=None):
        torch.linalg.inv(torch.zeros(2, 2))

    monkeypatch.setattr("basis.store.list_priors", broken)
    assert "a matrix has no solution" in refused(capsys, "priors")


def test_adding_takes_the_revision_along(tmp_path, monkeypatch, tiny_prior):
    hub = pytest.importorskip("huggingface_hub")
    folder = write_prior(tiny_prior, tmp_path / "fetched")
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **settings: str(folder))
    assert add_prior("hf:someone/digits@main", root=tmp_path / "root").name == "digits"


@pytest.mark.parametrize("name", ["cifar-agnostic", "colour", "uncurated"])
def test_tables_of_photos_take_the_photos_that_ship(tmp_path, name):
    from basis.lab.cache import ResultCache
    from basis.lab.context import Context
    from basis.lab.report import build_report
    from basis.nn.unet import Denoiser, UNet, UNetConfig
    from basis.priors.denoiser import DenoiserPrior

    network = UNet(UNetConfig(channels=3, widths=(8, 12), blocks=(1, 1), embedding=16))
    prior = DenoiserPrior(
        Denoiser(network, 0.47, 0.25),
        (3, 32, 32),
        0.005,
        10.0,
        name="cifar10",
        value_range=(0.0, 1.0),
    )
    ctx = Context(ResultCache(tmp_path / "cache"), data="sample", miniature=True)
    assert ctx.photos == "sample-photos"
    ctx.priors |= {"cifar10": prior, "cifar10-glow": prior}
    (section,) = build_report([name], ctx, tmp_path, size=1e-6)
    assert section.tables or section.pictures


def test_sources_that_are_no_numbers_are_matched_last():
    from basis import metrics

    truth = torch.eye(2)[None, :, None, None, :].expand(1, 2, 1, 1, 2)
    wrong = truth.clone()
    wrong[0, 0] = float("nan")
    assert metrics.reorder(wrong.flip(1), truth)[0, 1].equal(truth[0, 1])


def test_a_scheduler_without_noise_levels_is_refused():
    diffusers = pytest.importorskip("diffusers")
    from basis.adapters.diffusers import DiffusersDenoiser, from_diffusers

    network = diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(4, 4),
        norm_num_groups=2, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2,
    )  # fmt: skip
    DiffusersDenoiser(network, diffusers.DDPMScheduler())
    for wrong in (1.5, "8", [8], [8, 8, 8], [8, "x"], True, -8, 2**40, {"a": 8}):
        network.register_to_config(sample_size=wrong)
        with pytest.raises(BasisError, match="sample_size"):
            from_diffusers(network, diffusers.DDPMScheduler())
    with pytest.raises(BasisError, match="do not rise"):
        DiffusersDenoiser(network, diffusers.DDPMScheduler(beta_start=0.0, beta_end=0.0))


# Files of others that are larger or odder than they look ---------------------------------------


def test_text_reaches_the_terminal_without_its_codes(tmp_path, capsys):
    assert shown("a\x1b[2J\x9b1m\u202eb\n\tc") == "a\\x1b[2J\\x9b1m\\u202eb\n\tc"
    assert shown("50 %\rall is well") == "50 %\\rall is well"
    for bar in ("\r 50%|████    | 1/2", "\x1b[A", "\n\n", "\r      \r"):
        assert shown(bar) == bar
    out = sys.stdout
    assert main(["separate", str(tmp_path / "a\x1b[2J.png")]) == 2
    assert sys.stdout is out and "\x1b" not in capsys.readouterr().err


def test_everything_that_a_command_prints_is_escaped(capsys, monkeypatch):
    def run(args):
        print("name\x1b[2J")
        print("name\x1b]0;x\x07", file=sys.stderr)

    monkeypatch.setattr("basis.cli.data.run", run)
    assert main(["data"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("name\\x1b[2J\n", "name\\x1b]0;x\\x07\n")


@pytest.mark.parametrize(
    "make",
    [lambda t: t.to_sparse(), lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
     lambda t: t.to(torch.complex64)],
    ids=["sparse", "quantized", "complex"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["begin_conv.weight", "normalizer.embed.weight"])
@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_not_dense_numbers_are_refused(tmp_path, capsys, make, name):
    from basis.nn.ncsn import NCSN, NCSNConfig

    state = dict(NCSN(NCSNConfig(size=8, width=4, levels=3)).state_dict())
    state[name] = make(state[name])
    torch.save([{f"module.{n}": t for n, t in state.items()}], tmp_path / "n.pth")
    told = refused(capsys, "lab", "convert", "ncsn", tmp_path / "n.pth", "--out", tmp_path / "o")
    assert "is sparse, quantized, complex" in told


def test_conversions_replace_no_other_prior(tmp_path, capsys):
    from basis.nn.ncsn import NCSN, NCSNConfig

    network = NCSN(NCSNConfig(size=8, width=4, levels=3))
    torch.save([{f"module.{n}": t for n, t in network.state_dict().items()}], tmp_path / "n.pth")
    words = ["lab", "convert", "ncsn", tmp_path / "n.pth", "--size", 8, "--out", tmp_path / "o"]
    assert main([str(word) for word in words]) == 0
    capsys.readouterr()
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    assert "already contains a prior" in refused(capsys, *words)
    glow = ["lab", "convert", "glow", tmp_path / "none", "--size", 8, "--out", tmp_path / "o"]
    assert "already contains a prior" in refused(capsys, *glow)
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before


@pytest.mark.parametrize("steps", [10**9, 0, -5, 1e9, "x", True])
def test_schedulers_of_any_number_of_steps_are_refused(steps):
    pytest.importorskip("diffusers")
    from basis.adapters.diffusers import build_diffusers

    network = {"sample_size": 8, "in_channels": 1, "out_channels": 1, "norm_num_groups": 4,
               "block_out_channels": [8], "layers_per_block": 1, "add_attention": False,
               "down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"]}  # fmt: skip
    scheduler = {"_class_name": "DDPMScheduler", "num_train_timesteps": steps}
    found = in_time(20, lambda: build_diffusers(network, scheduler))
    assert isinstance(found, BasisError) and "from 1 to 100,000" in str(found)
    assert len(build_diffusers(network, scheduler | {"num_train_timesteps": 50}).table) == 50
