import json
import os
import signal

import pytest

from basis.errors import BasisError
from basis.nn.ladder import Ladder
from basis.training.ladder import train_ladder
from basis.training.state import read_state
from basis.training.trainer import Trainer

SETTINGS = {"width": 4, "depth": 1, "levels": 1, "batch_size": 8, "warmup": 16, "held_out": 16,
            "sigmas": (0.1, 1.0), "first": 32, "each": 16, "progress": False}  # fmt: skip


def test_a_ladder_stopped_in_a_measurement_continues(tmp_path, blobs, monkeypatch):
    whole = train_ladder(blobs(), out=tmp_path / "whole", **SETTINGS)
    assert isinstance(whole.module, Ladder)
    assert (whole.sigma_min, whole.sigma_max, whole.has_likelihood) == (0.1, 1.0, True)
    assert (tmp_path / "whole" / "bits.png").exists()
    out = tmp_path / "parts"
    with monkeypatch.context() as patch:

        def stopped(self):
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("the signal did nothing")

        patch.setattr(Trainer, "validate", stopped)
        with pytest.raises(KeyboardInterrupt, match="continue") as stop:
            train_ladder(blobs(), out=out, **SETTINGS)
    assert str(out) in str(stop.value) and read_state(out / "level-00")[0].step == 4
    assert not (out / "card.json").exists()
    train_ladder(blobs(), out=out, **SETTINGS)
    cards = [json.loads((f / "card.json").read_text()) for f in (out, tmp_path / "whole")]
    assert cards[0]["sha256"] == cards[1]["sha256"]
    assert len(cards[0]["training"]["held_out_bits_per_dimension"]) == 3


@pytest.mark.parametrize(
    ("changes", "message"), [({"images": 8}, "images"), ({"widths": (8,)}, "widths")]
)
def test_wrong_settings_of_a_ladder(tmp_path, blobs, changes, message):
    with pytest.raises(BasisError, match=message):
        train_ladder(blobs(), out=tmp_path / "run", **SETTINGS, **changes)
    assert not (tmp_path / "run").exists()
