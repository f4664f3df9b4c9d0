import json
import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from basis.errors import BasisError
from basis.training.config import TrainConfig
from basis.training.state import parse_info, read_info, read_log, read_state
from basis.training.trainer import Trainer

STATE, PREVIOUS = "state.safetensors", "state-previous.safetensors"


@pytest.fixture
def folder(tmp_path, trainer):
    """The folder of a run with two saves."""
    run = trainer(tmp_path)
    for _ in range(2):
        run.train_step()
        run.save()
    return tmp_path


def text_of(folder):
    with safe_open(folder / STATE, framework="pt") as file:
        return file.metadata()["training"]


@pytest.mark.parametrize("harm", ["cut", "flip"])
def test_a_damaged_state_is_replaced_by_the_previous_one(folder, trainer, capsys, harm):
    for name in (STATE, PREVIOUS):
        data = bytearray((folder / name).read_bytes())
        data[-7] ^= 1
        (folder / name).unlink()  # it may have a second name, under which it stays as it is
        (folder / name).write_bytes(data[: len(data) // 2] if harm == "cut" else data)
        if name == STATE:
            assert trainer(folder).step == 1
            warning = capsys.readouterr().err
            assert "warning" in warning and "step 1" in warning and warning.count("\n") == 1
    with pytest.raises(BasisError, match=r"as a training state|is damaged"):
        trainer(folder)


def test_what_is_not_a_state_is_refused(tmp_path, trainer):
    (tmp_path / STATE).write_text("no")
    with pytest.raises(BasisError, match="cannot be read as a training state"):
        trainer(tmp_path)


def test_states_of_other_versions_are_refused_in_one_line(folder, trainer):
    old = json.loads(text_of(folder))
    del old["format"]
    old["config"]["batch"] = old["config"].pop("batch_size")
    save_file(load_file(folder / STATE), folder / STATE, {"training": json.dumps(old)})
    (folder / PREVIOUS).unlink()
    for read in (trainer, read_info, read_state):
        with pytest.raises(BasisError, match="another version of basis") as caught:
            read(folder)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("config.batch_size", "many"), ("config.lr", -1), ("config.unknown", 1), ("config", []),
        ("step", -1), ("step", 1.5), ("step", "1"), ("seconds", "x"), ("about", 3), ("data", []),
    ],
)  # fmt: skip
def test_what_a_state_says_is_checked(folder, where, value):
    info = json.loads(text_of(folder))
    parse_info(json.dumps(info), folder)
    *parents, last = where.split(".")
    place = info
    for parent in parents:
        place = place[parent]
    place[last] = value
    with pytest.raises(BasisError, match=last):
        parse_info(json.dumps(info), folder)


def test_tensors_of_another_network_are_refused(folder, trainer, monkeypatch):
    info, tensors = read_state(folder)
    for wrong in (
        tensors | {"optimizer.x": torch.zeros(1)},
        {n: torch.zeros(2) for n in tensors},
        tensors | {"generator": torch.zeros(3)},
        {},
    ):
        monkeypatch.setattr("basis.training.trainer.read_state", lambda _, w=wrong: (info, w))
        with pytest.raises(BasisError, match="state"):
            trainer(folder)


def test_a_run_continues_with_its_own_data_only(folder, blobs, trainer):
    run = trainer(folder)
    other = blobs()
    other[3, 0, 0, 0] = 17
    for images, held_out, message in (
        (blobs(60), blobs(8), "images 64 -> 60"),
        (blobs(), blobs(16), "held_out 8 -> 16"),
        (other, blobs(8), "same number of images with other values"),
        (blobs().float() / 255, blobs(8).float() / 255, "settings|type uint8 -> float32"),
    ):
        with pytest.raises(BasisError, match=message):
            Trainer(run.model, images, folder, run.config, held_out=held_out)


def test_bad_rows_of_a_log_are_left_out(folder, trainer):
    trainer(folder).run(progress=False, log_every=2)
    good = read_log(folder)
    bad = ["[]", "3", "{}", '{"step": "a"}', '{"step": 1, "images": 2, "held_out": [1]}',
           "[" * 9999, '{"step": 1, "images": 2, "loss": "low"}',
           '{"step": 1, "images": 1e999}']  # fmt: skip
    log = folder / "log.jsonl"
    log.write_text(log.read_text() + "\n".join(bad) + "\n")
    assert good and read_log(folder) == good


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links are followed there")
def test_a_link_in_place_of_the_log_is_not_written_through(folder, trainer, tmp_path_factory):
    trainer(folder).run(progress=False)
    log, other = folder / "log.jsonl", tmp_path_factory.mktemp("other") / "mine"
    other.write_text(log.read_text())
    before = other.read_text()
    log.unlink()
    log.symlink_to(other)
    trainer(folder, images=96).run(progress=False)
    assert other.read_text() == before and not log.is_symlink()
    assert len(read_log(folder)) > before.count("\n")


def test_settings_are_checked():
    wrong = {"batch_size": 0, "lr": "fast", "average": -1, "images": 1.5, "flip": 1, "hours": 0}
    for name, value in wrong.items():
        with pytest.raises(BasisError, match=name):
            TrainConfig(**{name: value})
    with pytest.raises(BasisError, match="sigma_min <= sigma_max"):
        TrainConfig(sigma_min=1.0, sigma_max=0.5)
