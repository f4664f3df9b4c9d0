import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import basis
from basis.errors import BasisError
from basis.nn.glow import Glow
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.signals.image_set import ImageSet
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.export import plot_log
from basis.training.ladder import train_ladder
from basis.training.muon import Muon, orthogonalise
from basis.training.objectives import Likelihood, discrete_sigmas, focused_sigmas
from basis.training.run import train
from basis.training.state import read_log, read_state
from basis.training.trainer import Trainer

CONFIG = TrainConfig(images=80, batch=8, warmup=16, seed=3)


def blobs(count=64):
    g = torch.Generator().manual_seed(0)
    images = torch.zeros(count, 1, 8, 8)
    corner = torch.randint(4, (count, 2), generator=g)
    for image, (i, j) in zip(images, corner, strict=True):
        image[0, i : i + 4, j : j + 4] = 255
    return images.to(torch.uint8)


def trainer(folder, config=CONFIG, dropout=0.1):
    torch.manual_seed(config.seed)
    network = UNet(UNetConfig(widths=(12, 24), blocks=(1, 1), embedding=16, dropout=dropout))
    return Trainer(Denoiser(network, 0.25, 0.43), blobs(), folder, config, held_out=blobs(8))


def test_a_run_stopped_and_resumed_is_the_run_never_stopped(tmp_path):
    whole = trainer(tmp_path / "whole")
    assert whole.run(progress=False, log_every=1)
    first = trainer(tmp_path / "parts")
    for _ in range(4):
        first.train_step()
    first.save()
    first.train_step()  # lost, as in a crash after the last save
    second = trainer(tmp_path / "parts")
    assert second.step == 4
    assert second.run(progress=False, log_every=1)
    for name, p in whole.model.named_parameters():
        assert torch.equal(p, second.model.get_parameter(name)), name
        averages = (t.average.module.get_parameter(name) for t in (whole, second))
        assert torch.equal(*averages), name
    a, b = read_state(tmp_path / "whole")[1], read_state(tmp_path / "parts")[1]
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_the_log_forgets_what_the_state_does_not_know(tmp_path):
    t = trainer(tmp_path)
    t.run(progress=False, log_every=1, validate_every=16)
    rows = read_log(tmp_path)
    assert [r["step"] for r in rows if "loss" in r] == list(range(1, 11))
    assert len([r for r in rows if "held_out" in r]) == 5
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write(json.dumps({"step": 99, "images": 1, "loss": 1.0}) + "\n{cut off")
    trainer(tmp_path)
    assert max(r["step"] for r in read_log(tmp_path)) == 10
    picture = plot_log(tmp_path)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(BasisError, match="no training log"):
        plot_log(tmp_path / "empty")


def test_more_images_may_be_asked_for_but_nothing_else_changed(tmp_path):
    trainer(tmp_path).run(progress=False)
    longer = trainer(tmp_path, dataclasses.replace(CONFIG, images=96, cooldown=0.5))
    assert longer.step == 10 and longer.run(progress=False) and longer.step == 12
    with pytest.raises(BasisError, match=r"lr 0\.03 -> 0\.5"):
        trainer(tmp_path, dataclasses.replace(CONFIG, lr=0.5))


def test_a_stop_signal_saves_and_says_so(tmp_path):
    import os
    import signal

    t = trainer(tmp_path, dataclasses.replace(CONFIG, images=80_000))
    step = t.train_step

    def interrupted():
        if t.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step()

    t.train_step = interrupted
    assert not t.run(progress=False)
    assert read_state(tmp_path)[0]["step"] == t.step == 4


def test_a_stop_signal_ends_a_measurement_on_the_held_out_data(tmp_path):
    """Which may take longer than the time that a scheduler gives."""
    import signal

    t = trainer(tmp_path, dataclasses.replace(CONFIG, images=80_000))
    figure, measured = t.objective.validate, []

    def interrupted(*batch):
        measured.append(batch)
        os.kill(os.getpid(), signal.SIGTERM)
        return figure(*batch)

    t.objective.validate = interrupted
    assert len(t.objective.levels(t.config)) > 1
    assert not t.run(progress=False, validate_every=8)
    assert len(measured) == 1 and read_state(tmp_path)[0]["step"] == t.step == 1
    assert not any("held_out" in row for row in read_log(tmp_path))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_stopped_run_exports_nothing_and_can_be_finished(tmp_path, capsys, monkeypatch, name):
    import signal

    from basis.cli import main

    np.save(tmp_path / "data.npy", blobs().numpy())
    out = tmp_path / "run"
    words = ["train", "--data", str(tmp_path / "data.npy"), "--out", str(out), "--images", "64"]
    words += ["--batch", "8", "--widths", "12", "24", "--blocks", "1", "1", "--embedding", "16"]
    words += ["--variance-images", "0", "--energy-pairs", "0"]
    step = Trainer.train_step

    def stopped(self):
        if self.step == 3:
            os.kill(os.getpid(), getattr(signal, name))
        return step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train_step", stopped)
        patched.setattr("basis.training.run.export_prior", lambda *a, **s: pytest.fail("exported"))
        with pytest.raises(SystemExit) as end:
            main(words)
    assert end.value.code == 130
    told = capsys.readouterr().out
    assert "stopped at 32 of 64 images; the state is saved, and the same command goes on" in told
    assert read_state(out)[0]["step"] == 4 and not (out / "card.json").exists()
    assert main(words) == 0
    assert load_prior(out).card.training["images_seen"] == 64


def test_schedule():
    t = Trainer.__new__(Trainer)
    t.config = TrainConfig(images=1000, batch=10, warmup=100, cooldown=0.5)
    factors = []
    for t.step in (0, 4, 9, 40, 50, 75, 100):
        factors.append(t.factor())
    assert factors == pytest.approx([0.1, 0.5, 1, 1, 1, 0.5, 0])


def test_training_learns(tmp_path):
    config = TrainConfig(images=3000, batch=20, warmup=100, adam_lr=0.01, sigma_min=0.05)
    t = trainer(tmp_path, config, dropout=0.0)
    before = t.validate()
    t.run(progress=False)
    after = t.validate()
    assert after["0.1"] < 0.7 * before["0.1"] and after["0.4"] < 0.7 * before["0.4"]


def test_muon_orthogonalises_and_minimises():
    g = torch.Generator().manual_seed(0)
    for shape in ((40, 90), (90, 40)):
        singular = torch.linalg.svdvals(orthogonalise(torch.randn(shape, generator=g)))
        assert singular.min() > 0.5 and singular.max() < 1.3
    target = torch.randn(40, 50, generator=g)
    weight, bias = torch.nn.Parameter(torch.zeros(40, 50)), torch.nn.Parameter(torch.zeros(7))
    optimizer = Muon([weight, bias], lr=0.3, adam_lr=0.05, weight_decay=0.0)
    for step in range(300):
        optimizer.zero_grad()
        loss = (weight - target).square().sum() + (bias - 1).square().sum()
        loss.backward()
        optimizer.set_factor(1 - step / 300)
        optimizer.step()
    assert (weight - target).abs().max() < 0.1 and (bias - 1).abs().max() < 0.01


def test_noise_levels():
    g = torch.Generator().manual_seed(0)
    config = TrainConfig(sigma_min=0.01, sigma_max=5.0, sigma_focus=0.3, sigma_uniform=0.0)
    drawn = focused_sigmas(config)(20_000, g)
    assert drawn.min() >= 0.01 and drawn.max() <= 5.0
    assert drawn.median() == pytest.approx(0.3, rel=0.05)
    spread = focused_sigmas(dataclasses.replace(config, sigma_uniform=1.0))(20_000, g)
    assert spread.median() == pytest.approx((0.01 * 5.0) ** 0.5, rel=0.1)
    levels = torch.tensor([1.0, 0.1])
    assert set(discrete_sigmas(levels)(50, g).tolist()) == set(levels.tolist())


def test_divergence_is_one_clear_line(tmp_path):
    t = trainer(tmp_path)
    with torch.no_grad():
        next(t.model.parameters()).fill_(float("nan"))
    with pytest.raises(BasisError, match="diverged at step 0"):
        t.train_step()


def test_a_damaged_state_is_refused(tmp_path):
    (tmp_path / "state.safetensors").write_text("no")
    with pytest.raises(BasisError, match="cannot be read as a training state"):
        trainer(tmp_path)


def test_likelihood_models_learn_their_gradient_too():
    """The second term is the denoising error of the gradient: known for a Gaussian, nought weight
    leaves code length.
    """

    class Gaussian(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.spread = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

        def log_prob(self, x, sigma):
            variance = self.spread**2 + sigma.view(-1, 1, 1, 1) ** 2
            return -0.5 * (x.square() / variance + (2 * math.pi * variance).log()).flatten(1).sum(1)

    model = Gaussian()
    clean = torch.zeros(4, 1, 3, 3, dtype=torch.float64)
    sigma = torch.tensor([0.0, 0.1, 0.5, 2.0], dtype=torch.float64)
    noise = torch.randn(clean.shape, dtype=torch.float64)
    noisy = clean + sigma.view(-1, 1, 1, 1) * noise
    code = Likelihood().loss(model, clean, noisy, sigma)
    both = Likelihood(3.0, spread=0.5).loss(model, clean, noisy, sigma)
    # sigma grad + n = n (1 - sigma^2 / (v + sigma^2)) = n v / (v + sigma^2), squared, in units of v
    # / (v + sigma^2)
    left = 0.25 / (0.25 + sigma[1:] ** 2)
    error = (noise[1:].flatten(1).square().mean(1) * left).sum() / 4
    assert both.item() == pytest.approx((code + 3 * error).item())
    both.backward()
    assert model.spread.grad.isfinite() and model.spread.grad != 0


# ---------------------------------------------------------------- the call that trains a prior

TINY = {"widths": (12, 24), "blocks": (1, 1), "embedding": 16}
SHORT = TrainConfig(images=64, batch=8, warmup=16)


def waves(count=80, length=64, scale=1.0, shift=0.0):
    """Sines of random phase and frequency in one dimension, with standard deviation `scale`."""
    g = torch.Generator().manual_seed(0)
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=g)
    turns = torch.randint(1, 4, (count, 1, 1), generator=g)
    time = torch.arange(length).view(1, 1, -1) / length
    return shift + scale * 2**0.5 * torch.sin(2 * math.pi * turns * time + phase)


def test_one_call_trains_and_resumes_a_prior(tmp_path):
    lines = []
    settings = {"sizes": TINY, "held_out": 8, "variance_images": 16, "progress": False}
    prior = train(blobs(), tmp_path / "a", config=SHORT, report=lines.append, **settings)
    longer = dataclasses.replace(SHORT, images=96)
    again = train(blobs(), tmp_path / "a", config=longer, report=lines.append, **settings)
    assert any("going on from step 8" in line for line in lines)
    assert again.card.training["images_seen"] == 96 and again.card.architecture["variance"]
    assert (prior.low, prior.high, prior.shape, prior.name) == (0.0, 1.0, (1, 8, 8), "a")
    assert prior.card.data == {"name": "data", "images": 56}
    assert prior.errors[0.1] == prior.card.training["held_out_error_over_sigma2"]["0.1"]
    assert (tmp_path / "a" / "curve.png").exists()
    # As an image set, and as a dataclass of sizes whose channels are the data's.
    images = ImageSet(blobs(), None, "blobs", "made here")
    sizes = UNetConfig(channels=7, **TINY)
    same = train(images, tmp_path / "b", **settings | {"sizes": sizes}, config=SHORT, name="n")
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(same.denoise(x, 0.3), prior.denoise(x, 0.3))
    assert same.card.data["name"] == "blobs" and same.card.title == "score prior of blobs"
    assert same.name == "n"


def test_training_leaves_the_callers_random_numbers_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(
        blobs(), tmp_path, sizes=TINY, config=SHORT, held_out=8, variance_images=8, progress=False
    )
    assert torch.equal(torch.rand(3), expected)


def test_signals_of_one_axis_and_any_range_are_learned(tmp_path):
    """A thousand times larger and far from zero: the same training in other units."""
    settings = {"sizes": TINY, "held_out": 16, "variance_images": 64, "progress": False}
    config = TrainConfig(images=2400, batch=16, warmup=160, adam_lr=0.01)
    scale, shift = 1000.0, 5000.0
    data = waves(200, scale=scale, shift=shift)
    prior = train(data.numpy(), tmp_path / "run", config=config, **settings)
    assert (prior.shape, prior.low, prior.high) == ((1, 64), None, None)
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
    bounded = train(
        waves(), tmp_path / "b", low=-2.0, high=2.0, config=SHORT, **settings | {"sizes": TINY}
    )
    assert (bounded.low, bounded.high) == (-2.0, 2.0)


def test_flows_of_floats_have_their_own_code_length(tmp_path):
    """Without 8-bit steps bits are those of the density: of white noise, log2(sqrt(2 pi e) s)."""
    g = torch.Generator().manual_seed(0)
    data = 50 * torch.randn(600, 1, 4, 4, generator=g)
    config = TrainConfig(images=3200, batch=32, warmup=160, adam_lr=3e-3, score=0.0)
    sizes = {"levels": 1, "depth": 1, "width": 8}
    prior = train(
        data,
        tmp_path,
        family="glow",
        sizes=sizes,
        config=config,
        single=0.0,
        held_out=100,
        progress=False,
    )
    assert isinstance(prior.module, Glow) and not prior.module.config.conditioned
    bits = prior.card.training["held_out_bits_per_dimension"]["0"]
    assert bits == pytest.approx(math.log2(math.sqrt(2 * math.pi * math.e) * 50), abs=0.1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": torch.zeros(9, dtype=torch.int64)}, "training data must be uint8 or floats"),
        ({"data": np.full((9, 1, 8), np.nan)}, "not finite"),
        ({"data": torch.ones(90, 1, 8)}, "are the same"),
        ({"data": waves(), "high": 0.5}, "outside of its bounds"),
        ({"low": -1.0, "high": 1.0}, "8-bit values stand for"),
        ({"held_out": 64}, "64 items; training needs more than the 64"),
        ({"family": "unett"}, "known are energy, glow, ncsn, pixelcnn, unet, vae"),
        ({"family": "ncsn", "data": torch.rand(90, 1, 8, 8)}, "ncsn takes values in"),
        ({"family": "vae", "data": waves()}, "vae takes square images; these are 64"),
        ({"family": "glow", "sizes": {"levels": 4}}, "divisible by 16"),
        ({"sizes": {"widths": (12, 12)}, "data": waves(length=66)}, "multiples of 4"),
        ({"sizes": {"widths": (12,)}}, "one entry per level"),
        ({"sizes": {"depth": 3}}, "unet has no size 'depth'"),
        ({"sizes": 7}, "sizes must be"),
        ({"single": 0.1}, "goes with architecture glow"),
    ],
)
def test_what_cannot_be_trained_is_one_clear_line(tmp_path, changes, says):
    settings = {"data": blobs(), "sizes": TINY, "config": SHORT, "held_out": 8} | changes
    if "family" in changes and "sizes" not in changes:
        settings["sizes"] = None
    with pytest.raises(BasisError, match=says) as caught:
        train(settings.pop("data"), tmp_path / "run", progress=False, **settings)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_a_run_goes_on_with_its_own_data_alone(tmp_path):
    settings = {"sizes": TINY, "config": SHORT, "variance_images": 0, "progress": False}
    train(blobs(), tmp_path, held_out=8, **settings)
    other = blobs()
    other[3, 0, 0, 0] = 17
    for data, held_out, says in (
        (blobs(60), 8, "images 56 -> 52"),
        (blobs(), 16, "held_out 8 -> 16"),
        (other, 8, "the same number of images with other values"),
        (blobs().float(), 8, "settings|type uint8 -> float32"),
    ):
        with pytest.raises(BasisError, match=says) as caught:
            train(data, tmp_path, held_out=held_out, **settings)
        assert "use another folder" in str(caught.value)
    train(blobs(), tmp_path, held_out=8, **settings)


def test_states_without_a_fingerprint_go_on_and_take_one(tmp_path):
    """What earlier versions wrote: neither fingerprint nor the number of axes."""
    from safetensors.torch import save_file

    settings = {"sizes": TINY, "held_out": 8, "variance_images": 0, "progress": False}
    longer = dataclasses.replace(SHORT, images=96, cooldown=0.0)
    short = dataclasses.replace(longer, images=64)
    train(blobs(), tmp_path / "new", config=short, **settings)
    meta, tensors = read_state(tmp_path / "new")
    assert meta.pop("data")["images"] == 56
    del meta["about"]["architecture"]["network"]["dims"]
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    save_file(tensors, tmp_path / "old" / "state.safetensors", {"training": json.dumps(meta)})
    with pytest.raises(BasisError, match="images 56 -> 72"):
        train(blobs(80), tmp_path / "old", config=longer, **settings)
    brighter = blobs() // 2
    with pytest.raises(BasisError, match=r"other data \(mean"):
        train(brighter, tmp_path / "old", config=longer, **settings)
    for folder in ("old", "new"):
        train(blobs(), tmp_path / folder, config=longer, **settings)
    (a, ours), (b, theirs) = (read_state(tmp_path / folder) for folder in ("old", "new"))
    assert a["data"] == b["data"] and a["step"] == 12
    assert all(torch.equal(ours[k], theirs[k]) for k in theirs)


def test_a_folder_with_a_prior_but_no_run_is_refused(tmp_path):
    settings = {"sizes": TINY, "config": SHORT, "held_out": 8, "variance_images": 0}
    train(blobs(), tmp_path, progress=False, **settings)
    (tmp_path / "state.safetensors").unlink()
    before = (tmp_path / "weights.safetensors").read_bytes()
    with pytest.raises(BasisError, match="holds a prior without the state"):
        train(blobs(), tmp_path, progress=False, **settings)
    with pytest.raises(BasisError, match="holds a prior without the state"):
        train_ladder(blobs(), tmp_path, held_out=8, progress=False)
    assert (tmp_path / "weights.safetensors").read_bytes() == before


def test_a_run_starts_from_a_prior_with_its_head(tmp_path):
    settings = {"sizes": TINY, "held_out": 8, "variance_images": 64, "progress": False}
    first = train(blobs(), tmp_path / "a", config=SHORT, **settings)
    still = dataclasses.replace(SHORT, images=8, lr=1e-9, adam_lr=1e-9)
    tuned = train(blobs(), tmp_path / "b", config=still, init=first, **settings)
    x = torch.rand(2, 1, 8, 8)
    assert torch.allclose(tuned.denoise(x, 0.3), first.denoise(x, 0.3), atol=1e-3)
    assert torch.allclose(tuned.moments(x, 0.3)[1], first.moments(x, 0.3)[1], rtol=0.1)


def test_unets_of_any_number_of_axes_fold_alike():
    """A signal repeated along a second axis, and the two-dimensional fold, agree with the general
    one.
    """
    from basis.nn.unet import _fold, _unfold

    g = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, 8, 12, generator=g)
    volume = _fold(x[:, :, None].expand(-1, -1, 2, -1, -1), 2)
    plane = _fold(x, 2)
    # The first axis is folded outermost: both of its halves hold the plane's channels.
    halves = volume.unflatten(1, (3, 2, 4))[:, :, :, :, 0]
    for half in range(2):
        assert torch.equal(halves[:, :, half].flatten(1, 2), plane)
    for sides in ((12,), (8, 12), (4, 8, 4)):
        x = torch.rand(2, 3, *sides, generator=g)
        assert torch.equal(_unfold(_fold(x, 4), 4), x)
        network = UNet(UNetConfig(channels=3, dims=len(sides), **TINY))
        assert network(x, torch.zeros(2)).shape == x.shape


TOY_NETWORK = """
import torch
from torch import nn
from basis.tensors import per_item
from basis.nn.toy_family import ToyConfig

__all__ = ["Toy"]


class Toy(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        size = torch.Size(config.shape).numel()
        self.layers = nn.Sequential(
            nn.Linear(size + 1, config.hidden), nn.SiLU(), nn.Linear(config.hidden, size)
        )

    def forward(self, x, sigma):
        own = torch.cat([x.flatten(1), sigma.log()[:, None]], dim=1)
        return x + per_item(sigma, x) * self.layers(own).view_as(x)

    def output_scale(self, sigma):
        return sigma
"""
TOY_FAMILY = """
from dataclasses import dataclass
from basis.nn import Family, size_field


@dataclass(frozen=True)
class ToyConfig:
    shape: tuple[int, ...] = size_field((1,), "shape of one signal", flag=False)
    hidden: int = size_field(16, "hidden numbers")


FAMILY = Family(kind="toy", title="toy", sizes=ToyConfig, module="basis.nn:Toy")
"""


def test_a_new_family_takes_two_files(tmp_path):
    """A copy of the package with two files more trains, saves and loads a new kind of network."""
    package = tmp_path / "src" / "basis"
    source = Path(basis.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "embedded"))
    (package / "nn" / "_toy.py").write_text(TOY_NETWORK)
    (package / "families" / "toy_family.py").write_text(TOY_FAMILY)
    script = (
        "import torch, basis, sys\n"
        "from basis.training import TrainConfig, train\n"
        "from basis.cli import main\n"
        "data = torch.randn(100, 2, 5)\n"
        "config = TrainConfig(images=64, batch=8)\n"
        "p = train(data, 'p', family='toy', sizes={'hidden': 8}, config=config, held_out=9)\n"
        "assert p.shape == (2, 5) and p.card.architecture['kind'] == 'toy'\n"
        "q = basis.load_prior('p')\n"
        "assert torch.equal(p.denoise(data, 0.5), q.denoise(data, 0.5))\n"
        "words = 'train --data sample --architecture toy --hidden 4 --images 32 --batch 8'\n"
        "sys.exit(main([*words.split(), '--held-out', '16', '--out', 'c']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    card = json.loads((tmp_path / "c" / "card.json").read_text())
    assert card["architecture"] == {
        "kind": "toy",
        "network": {"shape": [1, 28, 28], "hidden": 4},
    }
    assert card["title"] == "toy prior of sample"


def test_help_of_training_needs_no_torch():
    script = (
        "import sys\n"
        "from basis.cli import main\n"
        "for command in ('train', 'ladder'):\n"
        "    try: main([command, '--help'])\n"
        "    except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for flag in ("fold", "widths", "blocks", "attention", "dropout", "width", "levels", "single"):
        assert f"--{flag} " in done.stdout
    assert (
        "numbers that describe the noise level (energy 128, glow 64, pixelcnn 64, unet 128"
        in " ".join(done.stdout.split())
    )


def test_flags_of_another_family_are_refused(tmp_path, capsys):
    from basis.cli import main

    words = ["train", "--data", "sample", "--out", str(tmp_path / "run")]
    assert main([*words, "--depth", "3"]) == 2
    assert "--depth goes with architecture glow, not unet" in capsys.readouterr().err
    assert main([*words, "--architecture", "pixelcnn", "--blocks", "2", "3"]) == 2
    assert "--blocks takes one number" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_exported_priors_load_frozen(tmp_path):
    prior = train(
        blobs(), tmp_path, sizes=TINY, config=SHORT, held_out=8, variance_images=0, progress=False
    )
    again = load_prior(tmp_path)
    for p in (prior, again):
        assert not p.training and not any(w.requires_grad for w in p.parameters())
