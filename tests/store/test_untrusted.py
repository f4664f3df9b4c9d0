"""Cards written by others: checked before anything is built, and shown without codes."""

import json
import os
import resource
import sys

import pytest
import torch
from safetensors.torch import save_file

from basis.cli import main
from basis.errors import BasisError
from basis.files import sha256
from basis.store.loading import list_priors, load_prior


@pytest.fixture
def root(tmp_path, tiny_prior, monkeypatch):
    """The priors of a data root, one of which is good."""
    monkeypatch.setenv("BASIS_DATA", str(tmp_path / "root"))
    tiny_prior.save(tmp_path / "root" / "priors" / "good")
    return tmp_path / "root" / "priors"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '"x"', "[" * 5000, "\x00", '{"name": 1e999}'])
def test_one_bad_card_does_not_affect_other_priors(root, capsys, text):
    (root / "bad").mkdir()
    (root / "bad" / "card.json").write_text(text)
    problems = {entry.name: entry.problem for entry in list_priors()}
    assert problems["bad"] and not problems["good"] and not problems["mnist"]
    assert load_prior("good").shape == (1, 8, 8)
    assert main(["priors", "list"]) == 0
    assert "cannot be used" in capsys.readouterr().out
    assert main(["priors", "show", "bad"]) == 2
    assert "bad" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_pipe_in_place_of_a_card_is_not_waited_for(root):
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "card.json")
    assert load_prior("good").shape == (1, 8, 8)
    with pytest.raises(BasisError):
        load_prior(root / "pipe")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("architecture.network.widths", [10**9, 10**9]),
        ("architecture.network.widths", "wide"),
        ("architecture.network.widths", []),
        ("architecture.network.blocks", [60_000, 60_000]),
        ("architecture.network.embedding", 60_000),
        ("architecture.network.embedding", 1.5),
        ("architecture.network.dims", 0),
        ("architecture.network.channels", 3),
        ("architecture.network", 7),
        ("architecture.std", 0),
        ("architecture.kind", ["unet"]),
        ("architecture", {}),
        ("shape", [1, 2**20, 2**20]),
        ("shape", [1, 9, 9]),
        ("sigma_min", 10**400),
        ("sigma_max", 0.001),
        ("value_range", [2, 1]),
        ("errors", {"0.1": "a"}),
        ("name", "two\nlines"),
        ("parameters", -1),
    ],
)
def test_cards_are_checked_before_anything_is_built(root, path, value):
    card = json.loads((root / "good" / "card.json").read_text())
    *parents, last = path.split(".")
    entry = card
    for key in parents:
        entry = entry[key]
    entry[last] = value
    (root / "good" / "card.json").write_text(json.dumps(card))
    with pytest.raises(BasisError):
        load_prior("good")


def test_networks_are_not_larger_than_their_weights(tmp_path):
    """A small file of weights with a card of gigabytes."""
    save_file({"a": torch.zeros(3)}, tmp_path / "weights.safetensors")
    network = {"widths": [4096, 8192], "blocks": [200, 200]}
    card = {
        "name": "big",
        "architecture": {"kind": "unet", "network": network, "mean": 0.0, "std": 1.0},
        "shape": [1, 8, 8],
        "sigma_min": 0.01,
        "sigma_max": 1.0,
        "sha256": sha256(tmp_path / "weights.safetensors"),
    }
    (tmp_path / "card.json").write_text(json.dumps(card))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BasisError, match="weights"):
        load_prior(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_text_of_cards_is_shown_without_codes(root, capsys):
    card = json.loads((root / "good" / "card.json").read_text())
    card |= {"title": "\x1b[2Jgone\nmnist  trusted", "note": "a\u202eb"}
    (root / "good" / "card.json").write_text(json.dumps(card))
    assert main(["priors", "list"]) == 0
    assert main(["priors", "show", "good"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown and r"\x1b[2Jgone\nmnist" in shown
