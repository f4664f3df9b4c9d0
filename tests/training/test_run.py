import json
import math
import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis.cli import main
from basis.errors import BasisError
from basis.nn.glow import Glow
from basis.signals.image_set import ImageSet
from basis.store.loading import load_prior
from basis.training.export import plot_log
from basis.training.ladder import train_ladder
from basis.training.run import train
from basis.training.state import read_state
from basis.training.trainer import Trainer


def waves(count=80, length=64, scale=1.0, shift=0.0):
    """Sines of random phase and frequency, with this standard deviation and mean."""
    g = torch.Generator().manual_seed(0)
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=g)
    turns = torch.randint(1, 4, (count, 1, 1), generator=g)
    time = torch.arange(length).view(1, 1, -1) / length
    return shift + scale * 2**0.5 * torch.sin(2 * math.pi * turns * time + phase)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, blobs, tiny):
    """The folder of a finished run, and its prior."""
    folder = tmp_path_factory.mktemp("run") / "a"
    settings = tiny | {"variance_images": 16, "energy_pairs": 4}
    return folder, train(blobs(), out=folder, **settings), settings


def test_a_run_makes_a_prior(finished):
    folder, prior, _ = finished
    assert (prior.value_range, prior.shape, prior.name) == ((0.0, 1.0), (1, 8, 8), "a")
    assert prior.card.data == {"name": "data", "images": 56}
    assert prior.errors[0.1] == prior.card.training["held_out_error_over_sigma2"]["0.1"]
    assert prior.card.training["images_seen"] == 64 and prior.card.architecture["variance"]
    assert prior.card.energies is not None and prior.card.spectrum is not None
    assert (folder / "curve.png").read_bytes()[:4] == b"\x89PNG"
    for p in (prior, load_prior(folder)):
        assert not p.training and not any(w.requires_grad for w in p.parameters())


def test_a_longer_run_continues(tmp_path, blobs, tiny, capsys):
    train(blobs(), out=tmp_path / "parts", **tiny | {"held_out": 7, "cooldown": 0.0})
    longer = tiny | {"images": 96, "cooldown": 0.0, "progress": True}
    del longer["held_out"]  # it continues with what it held out
    again = train(blobs(), out=tmp_path / "parts", **longer)
    assert "continuing from step 8 (64 images)" in capsys.readouterr().err
    assert again.card.training["images_seen"] == 96 and again.card.data["images"] == 57
    whole = train(blobs(), out=tmp_path / "whole", **longer | {"held_out": 7})
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(whole.denoise(x, 0.3), again.denoise(x, 0.3))


def test_data_may_be_a_folder_a_file_a_name_or_a_set(tmp_path, blobs, tiny):
    images = blobs()
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i, image in enumerate(images[:12]):
        Image.fromarray(image[0].numpy()).save(folder / f"{i:02d}.png")
    prior = basis.train(folder, out=tmp_path / "a", size=4, **tiny | {"held_out": None})
    assert prior.shape == (1, 4, 4) and prior.card.data == {"name": "pictures", "images": 11}
    np.save(tmp_path / "x.npy", images.numpy())
    from_file = basis.train(str(tmp_path / "x.npy"), out=tmp_path / "b", **tiny)
    from_set = train(ImageSet(images, None, "blobs", "made here"), out=tmp_path / "c", **tiny)
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(from_file.denoise(x, 0.3), from_set.denoise(x, 0.3))
    assert from_set.card.title == "score prior of blobs"
    some = basis.train("sample", out=tmp_path / "d", classes=[3, 1], name="some", **tiny)
    assert some.name == "some" and some.card.data["classes"] == [1, 3]
    assert some.card.data["images"] < 200


def test_the_callers_random_numbers_stay_as_they_are(tmp_path, blobs, tiny):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(blobs(), out=tmp_path, **tiny | {"variance_images": 8})
    assert torch.equal(torch.rand(3), expected)


def test_signals_of_one_axis_and_any_range(tmp_path, tiny):
    """A thousand times larger and far from zero: the same training in other units."""
    settings = {"images": 2400, "batch_size": 16, "warmup": 160, "adam_lr": 0.01, "held_out": 16}
    network = {"widths": (12, 24), "blocks": (1, 1), "attention": 1}
    scale, shift = 1000.0, 5000.0
    data = waves(200, scale=scale, shift=shift)
    settings = tiny | network | settings | {"variance_images": 64}
    prior = train(data.numpy(), out=tmp_path / "run", **settings)
    assert prior.shape == (1, 64) and (prior.low, prior.high) == (None, None)
    assert prior.std == pytest.approx(scale, rel=0.01)
    assert prior.center == pytest.approx(shift, rel=0.01)
    assert prior.sigma_min == pytest.approx(0.005 * scale / 0.3, rel=0.01)
    x = data[-16:]
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    sigma = 0.5 * scale
    mean, variance = prior.moments(x + sigma * noise, sigma)
    error = (mean - x).square().mean().item()
    linear = sigma**2 * scale**2 / (sigma**2 + scale**2)
    assert error < 0.5 * linear
    assert variance.shape == x.shape and (variance > 0).all()
    assert min(prior.errors) == pytest.approx(0.01 * scale / 0.3, rel=0.01)
    bounded = train(waves(), out=tmp_path / "b", value_range=(-2.0, 2.0), **tiny)
    assert bounded.value_range == (-2.0, 2.0)


def test_flows_of_floats_have_their_own_code_length(tmp_path):
    """Without 8-bit steps bits are those of the density: of white noise, log2(sqrt(2 pi e) s)."""
    data = 50 * torch.randn(600, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    prior = train(
        data, out=tmp_path, kind="glow", levels=1, depth=1, width=8, sigma=0.0, images=3200,
        batch_size=32, warmup=160, adam_lr=3e-3, score_weight=0.0, held_out=100, progress=False,
    )  # fmt: skip
    assert isinstance(prior.module, Glow) and not prior.module.config.conditioned
    bits = prior.card.training["held_out_bits_per_dimension"]["0"]
    assert bits == pytest.approx(math.log2(math.sqrt(2 * math.pi * math.e) * 50), abs=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": torch.zeros(9, dtype=torch.int64)}, "int64 values; uint8"),
        ({"data": np.full((9, 1, 8), np.nan)}, "NaN or infinite"),
        ({"data": torch.ones(90, 1, 8)}, "are the same"),
        ({"data": waves(), "value_range": (None, 0.5)}, "outside of value_range"),
        ({"data": "nowhere"}, "nowhere"),
        ({"data": "sample", "classes": [17]}, "17"),
        ({"classes": [1]}, "an array has none"),
        ({"size": 4}, "size"),
        ({"value_range": (-1.0, 1.0)}, "8-bit values stand for"),
        ({"held_out": 64}, "64 items; training needs more than the 64"),
        ({"kind": "unett"}, "accepted: unet, energy, glow, ncsn"),
        ({"kind": "ncsn", "data": torch.rand(90, 1, 8, 8)}, "value_range"),
        ({"kind": "glow", "levels": 4}, "divisible by 16"),
        ({"widths": (12, 12), "blocks": (1, 1), "data": waves(length=66)}, "multiples of 4"),
        ({"widths": (12, 12)}, "one entry per level"),
        ({"depth": 3}, "no setting 'depth'"),
        ({"channels": 3}, "no setting 'channels'"),
        ({"widths": 7}, "widths"),
        ({"sigma": 0.1}, "glow"),
        ({"hours": 1.0}, "images or hours"),
        ({"images": 0}, "init"),
        ({"conditional": True}, "no labels"),
        ({"init": "nobody"}, "nobody"),
    ],
)
def test_what_cannot_be_trained_is_one_line(tmp_path, blobs, tiny, changes, message):
    settings = {"data": blobs(), **tiny, **changes}
    if "kind" in changes:
        for name in ("widths", "blocks", "attention", "embedding"):
            settings.pop(name)
    with pytest.raises(BasisError, match=message) as caught:
        train(settings.pop("data"), out=tmp_path / "run", **settings)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_a_folder_with_a_prior_but_no_run_is_refused(tmp_path, tiny_prior, blobs, tiny):
    tiny_prior.save(tmp_path)
    before = (tmp_path / "weights.safetensors").read_bytes()
    with pytest.raises(BasisError, match="holds a prior without the state"):
        train(blobs(), out=tmp_path, **tiny)
    with pytest.raises(BasisError, match="holds a prior without the state"):
        train_ladder(blobs(), out=tmp_path, held_out=8, progress=False)
    assert (tmp_path / "weights.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "out='runs/mine', not None"),
        ({"out": 3}, "not 3"),
        ({"out": "x", "data": None}, "not NoneType"),
        ({"out": "x", "data": [1, 2]}, "not list"),
        ({"out": "x", "data": torch.rand(9, 1, 4, 4), "value_range": 3}, "value_range .* not 3"),
        ({"out": "x", "data": torch.rand(9)}, r"\(n, channels, \*size\)"),
    ],
)
def test_arguments_of_a_first_attempt(tmp_path, monkeypatch, settings, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BasisError, match=says):
        basis.train(**{"data": "sample"} | settings)
    assert not list(tmp_path.iterdir())


def test_a_run_starts_from_a_prior_with_its_head(tmp_path, finished, blobs):
    _, first, settings = finished
    network = {"widths", "blocks", "attention", "embedding"}
    still = {k: v for k, v in settings.items() if k not in network}  # those of the first prior
    still |= {"images": 8, "lr": 1e-9, "adam_lr": 1e-9, "init": first, "variance_images": 64}
    tuned = train(blobs(), out=tmp_path, **still)
    x = torch.rand(2, 1, 8, 8)
    assert torch.allclose(tuned.denoise(x, 0.3), first.denoise(x, 0.3), atol=1e-3)
    assert torch.allclose(tuned.moments(x, 0.3)[1], first.moments(x, 0.3)[1], rtol=0.1)
    assert tuned.module.network.config.widths == (12,)


def test_held_out_items_are_of_every_class(tmp_path, blobs, tiny):
    images = blobs(60)
    labels = torch.arange(60) % 3
    order = labels.argsort(stable=True)  # as a folder is sorted
    mixed = ImageSet(images, labels, "s", "made here", ("a", "b", "c"))
    by_class = ImageSet(images[order], labels[order], "s", "made here", ("a", "b", "c"))
    short, longer = (tiny | {"held_out": 6, "images": n} for n in (8, 16))
    train(by_class, out=tmp_path / "new", **short)
    again = train(mixed, out=tmp_path / "new", **longer)  # the same data, so that it continues
    assert again.card.training["steps"] == 2


def test_progress_is_printed_without_a_terminal(tmp_path, blobs, tiny, capsys):
    train(blobs(), out=tmp_path / "a", **tiny | {"progress": True, "variance_images": 32})
    lines = capsys.readouterr().err
    assert "training:" in lines and "100%" in lines
    assert "variance: " in lines
    train(blobs(), out=tmp_path / "b", **tiny | {"variance_images": 32})
    assert capsys.readouterr().err == ""


# ------------------------------------------------------------------------ the end of a run


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_a_finished_run_is_left_as_it_is(finished, blobs, capsys, monkeypatch):
    folder, _, settings = finished
    before = contents(folder)
    again = train(blobs(), out=folder, **settings | {"progress": True})
    assert again.card.training["images_seen"] == 64
    assert "finished already, after 64 images" in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize(
    "stage", ["fit_variance", "measure_energies", "measure_spectrum", "update_card", "plot_log"]
)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_stopped_at_its_end_does_what_is_missing(
    tmp_path, finished, blobs, monkeypatch, capsys, stage, how
):
    """A kill is an exception that nothing handles."""
    whole, _, settings = finished
    with monkeypatch.context() as patch:

        def stopped(*args, **options):
            if how == signal.SIGKILL:
                raise SystemError("killed")
            os.kill(os.getpid(), how)
            return pytest.fail("the signal did nothing")

        patch.setattr(f"basis.training.export.{stage}", stopped)
        kind = SystemError if how == signal.SIGKILL else KeyboardInterrupt
        with pytest.raises(kind) as stop:
            train(blobs(), out=tmp_path / "a", **settings)
    if how != signal.SIGKILL:
        assert str(tmp_path / "a") in str(stop.value) and "continue" in str(stop.value)
    assert read_state(tmp_path / "a")[0].step == 8
    assert load_prior(tmp_path / "a").card.name == "a"  # never without a prior
    done = []
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", lambda self: pytest.fail("trained"))
        for name in ("fit_variance", "measure_energies"):
            original = getattr(basis.training.export, name)
            patch.setattr(
                f"basis.training.export.{name}",
                lambda *a, n=name, f=original, **k: (done.append(n), f(*a, **k))[1],
            )
        train(blobs(), out=tmp_path / "a", **settings | {"progress": True})
    said = capsys.readouterr().err
    for name, what in (("fit_variance", "the variance"), ("measure_energies", "typical energies")):
        assert (name in done) == (what in said)
    assert ("fit_variance" in done) == (stage == "fit_variance")
    assert ("measure_energies" in done) == (stage != "plot_log")
    ours, theirs = (json.loads((f / "card.json").read_text()) for f in (tmp_path / "a", whole))
    assert ours["energies"] == theirs["energies"] and ours["spectrum"] == theirs["spectrum"]
    assert ours["sha256"] == theirs["sha256"]
    assert (tmp_path / "a" / "curve.png").exists()


def test_another_name_or_measurement_is_added_later(tmp_path, blobs, tiny):
    train(blobs(), out=tmp_path, **tiny)
    named = train(blobs(), out=tmp_path, **tiny | {"name": "other", "variance_images": 16})
    assert named.name == "other" and named.card.architecture["variance"]
    assert named.card.energies is None
    assert train(blobs(), out=tmp_path, **tiny | {"name": "other", "energy_pairs": 2}).card.energies


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_command_says_how_to_continue(tmp_path, capsys, monkeypatch, blobs, how):
    np.save(tmp_path / "data.npy", blobs().numpy())
    out = tmp_path / "run"
    words = ["train", str(tmp_path / "data.npy"), "--out", str(out), "--images", "64"]
    words += ["--batch-size", "8", "--widths", "12", "--blocks", "1", "--attention", "0"]
    words += ["--variance-images", "0", "--energy-pairs", "0"]
    step = Trainer.train_step

    def stopped(self):
        if self.step == 3:
            os.kill(os.getpid(), how)
        return step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", stopped)
        patched.setattr("basis.training.run.finish", lambda *a, **s: pytest.fail("exported"))
        assert main(words) == 130
    printed = capsys.readouterr().err
    assert "after 32 images" in printed and str(out) in printed and "continue" in printed
    assert read_state(out)[0].step == 4 and not (out / "card.json").exists()
    assert main(words) == 0
    assert load_prior(out).card.training["images_seen"] == 64


def test_plots_need_a_log(tmp_path):
    with pytest.raises(BasisError, match="no training log"):
        plot_log(tmp_path / "empty")
