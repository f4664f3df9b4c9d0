import dataclasses
import json
import math

import pytest
import torch

from basis import BasisError
from basis.nn import Denoiser, UNet, UNetConfig
from basis.training import (
    Muon,
    TrainConfig,
    Trainer,
    discrete_sigmas,
    focused_sigmas,
    plot_log,
    read_log,
    read_state,
)
from basis.training._muon import orthogonalise
from basis.training._objectives import Likelihood

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
        assert torch.equal(whole.average[name], second.average[name]), name
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
    with pytest.raises(BasisError, match="not a training state"):
        trainer(tmp_path)


def test_likelihood_models_learn_their_gradient_too():
    """The second term is the denoising error of the gradient: known for a Gaussian, nought weight leaves code length."""

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
    # sigma grad + n = n (1 - sigma^2 / (v + sigma^2)) = n v / (v + sigma^2), squared, in units of v / (v + sigma^2)
    left = 0.25 / (0.25 + sigma[1:] ** 2)
    error = (noise[1:].flatten(1).square().mean(1) * left).sum() / 4
    assert both.item() == pytest.approx((code + 3 * error).item())
    both.backward()
    assert model.spread.grad.isfinite() and model.spread.grad != 0
