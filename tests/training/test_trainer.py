import os
import signal

import pytest
import torch

from basis.errors import BasisError
from basis.training.config import TrainConfig
from basis.training.muon import Muon, orthogonalize
from basis.training.state import read_log, read_state
from basis.training.trainer import Trainer


def test_a_resumed_run_is_identical(tmp_path, trainer):
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
    a, b = read_state(tmp_path / "whole")[1], read_state(tmp_path / "parts")[1]
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_rows_of_the_log(tmp_path, trainer):
    reported = []
    trainer(tmp_path).run(progress=reported.append, log_every=1, validate_every=16)
    rows = read_log(tmp_path)
    assert rows == reported
    assert [r["step"] for r in rows if "loss" in r] == list(range(1, 11))
    assert len([r for r in rows if "held_out" in r]) == 5
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 99, "images": 1, "loss": 1.0}\n{cut off')
    trainer(tmp_path)
    assert max(r["step"] for r in read_log(tmp_path)) == 10


def test_only_the_length_of_a_run_may_change(tmp_path, trainer):
    trainer(tmp_path).run(progress=False)
    longer = trainer(tmp_path, images=96, cooldown=0.5)
    assert longer.step == 10 and longer.run(progress=False) and longer.step == 12
    with pytest.raises(BasisError, match=r"lr 0\.03 -> 0\.5"):
        trainer(tmp_path, lr=0.5)


def test_a_signal_ends_a_run_after_the_step(tmp_path, trainer):
    t = trainer(tmp_path, images=80_000)
    step = t.train_step

    def interrupted():
        if t.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return step()

    t.train_step = interrupted
    assert not t.run(progress=False)
    assert read_state(tmp_path)[0].step == t.step == 4


def test_a_signal_ends_a_validation(tmp_path, trainer):
    t = trainer(tmp_path, images=80_000)
    figure, measured = t.objective.validate, []

    def interrupted(*batch):
        measured.append(batch)
        os.kill(os.getpid(), signal.SIGTERM)
        return figure(*batch)

    t.objective.validate = interrupted
    assert len(t.objective.levels(t.config)) > 1
    assert not t.run(progress=False, validate_every=8)
    assert len(measured) == 1 and read_state(tmp_path)[0].step == t.step == 1
    assert not any("held_out" in row for row in read_log(tmp_path))


def test_schedule():
    t = Trainer.__new__(Trainer)
    t.config = TrainConfig(images=1000, batch_size=10, warmup=100, cooldown=0.5)
    factors = []
    for t.step in (0, 4, 9, 40, 50, 75, 100):
        factors.append(t.factor())
    assert factors == pytest.approx([0.1, 0.5, 1, 1, 1, 0.5, 0])
    t.config = TrainConfig(hours=1.0, warmup=0, cooldown=0.5)
    t.step, factors = 10, []
    for t.seconds in (0, 1800, 2700, 3600):
        factors.append(t.factor())
    assert factors == pytest.approx([1, 1, 0.5, 0])


def test_a_run_of_hours_ends_by_its_own_clock(tmp_path, trainer):
    t = trainer(tmp_path, hours=1.0)
    step = t.train_step

    def slow():
        t.seconds += 600
        return step()

    t.train_step = slow
    assert t.run(progress=False) and t.step == 6
    longer = trainer(tmp_path, hours=2.0)
    assert longer.step == 6 and not longer.finished and longer.seconds >= 3600


def test_training_learns(tmp_path, trainer):
    settings = {"images": 3000, "batch_size": 20, "warmup": 100, "adam_lr": 0.01}
    t = trainer(tmp_path, dropout=0.0, sigma_min=0.05, **settings)
    before = t.validate()
    t.run(progress=False)
    after = t.validate()
    assert after["0.1"] < 0.7 * before["0.1"] and after["0.4"] < 0.7 * before["0.4"]


def test_divergence_is_an_error(tmp_path, trainer):
    t = trainer(tmp_path)
    with torch.no_grad():
        next(t.model.parameters()).fill_(float("nan"))
    with pytest.raises(BasisError, match="diverged at step 0"):
        t.train_step()


def test_muon_orthogonalizes_and_minimizes():
    g = torch.Generator().manual_seed(0)
    for shape in ((40, 90), (90, 40)):
        singular = torch.linalg.svdvals(orthogonalize(torch.randn(shape, generator=g)))
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
