"""A miniature of every table and figure, with an untrained network in the prior's place."""

import json
from types import SimpleNamespace

import pytest
import torch

from basis.baselines import BASELINES, NES, SD, ConvNMF, Regression
from basis.cli import main
from basis.nn import Denoiser, Glow, GlowConfig, UNet, UNetConfig
from basis.priors import DenoiserPrior, LikelihoodPrior
from basis.reproduce import PIECES, Piece, Shard, Shards, Table, Workshop, report
from basis.reproduce._own import _judge


def test_a_shard_is_made_once(tmp_path):
    made = []

    def make():
        made.append(1)
        return Shard({"x": torch.arange(3)}, {"n": len(made)})

    shards = Shards(tmp_path)
    first = shards.get("a", {"seed": 0}, make)
    again = Shards(tmp_path).get("a", {"seed": 0}, make)
    assert len(made) == 1 and again.values == {"n": 1}
    assert torch.equal(first.tensors["x"], again.tensors["x"])
    assert again.seconds == pytest.approx(first.seconds)
    shards.get("a", {"seed": 1}, make)
    assert len(made) == 2
    for path in tmp_path.iterdir():
        path.write_bytes(b"cut off")  # a damaged shard is made again
    assert shards.get("a", {"seed": 0}, make).values == {"n": 3}


@pytest.fixture
def shop(tmp_path, monkeypatch):
    for name, short in {
        "conv-nmf": lambda: ConvNMF(parts=3, steps=3),
        "s-d": lambda: SD(starts=1, steps=3),
        "nes": lambda: NES(rounds=1, batch=8),
        "nes-supervised": lambda: NES(supervised=True, batch=8),
        "regression": lambda: Regression(batch=8),
    }.items():
        monkeypatch.setitem(BASELINES, name, short)
    torch.manual_seed(0)
    network = UNet(UNetConfig(widths=(8, 12), blocks=(1, 1), embedding=16))
    shop = Workshop(Shards(tmp_path / "shards"), size=1e-6, data="sample", miniature=True)
    glow = Glow(GlowConfig(size=28, depth=1, width=4, conditioned=True, mean=0.13, std=0.31))
    for name in (
        "mnist", "mnist-low", "mnist-high", "cifar10", "cifar10-animals", "cifar10-vehicles", "church",
        "bedroom",
    ):  # fmt: skip
        shop._priors[name] = DenoiserPrior(
            Denoiser(network, 0.13, 0.31), (1, 28, 28), 0.005, 10.0, name=name
        )
    for name in ("mnist-glow", "cifar10-glow", "church-glow", "bedroom-glow"):
        shop._priors[name] = LikelihoodPrior(glow, (1, 28, 28), 0.01, 1.0, name=name)
    return shop


@pytest.mark.parametrize("name", PIECES)
def test_every_piece_is_made_in_miniature(name, shop, tmp_path):
    piece = PIECES[name](shop)
    assert piece.name == name and (piece.tables or piece.pictures)
    for _, data in piece.pictures:
        assert data.startswith(b"\x89PNG")
    if name.startswith("mnist"):
        rows = {row[0]: row for row in piece.tables[0].rows}
        assert {
            "Average",
            "NMF",
            "effort fast",
            "effort balanced (recommended)",
            "BASIS, the paper's settings",
        } <= set(rows)
        assert rows["Average"][4] == ("14.9" if name == "mnist-agnostic" else "14.8")
        # Made again from its shards: the same figures, and no computing.
        again = PIECES[name](shop)
        assert again.tables == piece.tables
    if name.startswith("cifar"):
        draws = {row[0]: float(row[1].split()[0]) for row in piece.tables[1].rows}
        assert draws["the nearest of 8 to the truth"] > draws["one draw"] > 0
    path = report([piece], tmp_path / "report.html", command="basis reproduce")
    text = path.read_text()
    assert piece.title.replace("<", "&lt;") in text and text.count("data:image/png") == len(
        piece.pictures
    )


def test_a_judge_of_fewer_scenes_is_another_one(shop, tmp_path, monkeypatch):
    class Corners:
        def look(self, images):
            return SimpleNamespace(features=1 + images[:, 0, 10:14, 10:14].flatten(1))

    monkeypatch.setattr(shop, "eyes", lambda name: Corners())
    first = _judge(shop)
    shop.size = 0.2
    more = _judge(shop)
    assert first is not None and more is not None
    assert not torch.equal(first.direction, more.direction)
    assert len(list((tmp_path / "shards").glob("scene-judge-*"))) == 2


def test_missing_priors_are_told(tmp_path, monkeypatch):
    shop = Workshop(Shards(tmp_path), data="sample")
    monkeypatch.setattr(shop, "prior", lambda name: None)
    for name in ("histogram", "ablation", "gradients", "likelihoods", "states", "repeats"):
        assert "no prior called" in " ".join(PIECES[name](shop).text)


def test_the_page_is_whole_and_escapes_what_it_shows(tmp_path):
    piece = Piece("x", "a < b", ["1 < 2"], [Table(("<h>",), [("<script>",)])])
    text = report([piece], tmp_path / "r.html", command="basis <x>").read_text()
    assert "<script>" not in text and "a &lt; b" in text
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "http" not in text.replace("http-equiv", "")


def test_bad_sizes_are_refused(capsys, tmp_path):
    for size in ("huge", "0", "2"):
        assert main(["reproduce", "states", "--size", size, "--out", str(tmp_path / "o")]) == 2
        assert "--size takes" in capsys.readouterr().err
    assert main(["reproduce", "states", "--data", "cats", "--out", str(tmp_path / "o")]) == 2
    assert not (tmp_path / "o").exists()


def test_the_command_makes_a_page(tmp_path, capsys):
    out = tmp_path / "o"
    words = ["reproduce", "gradients", "states", "--data", "sample", "--size", "0.001"]
    assert main([*words, "--out", str(out)]) == 0
    assert "report:" in capsys.readouterr().out
    assert (out / "report.html").read_text().count("data:image/png") == 2
    assert "| σ | mnist | mnist-glow |" in (out / "tables.md").read_text()


def test_the_command_knows_every_piece():
    from basis.cli._reproduce_command import _NAMES

    assert tuple(PIECES) == _NAMES
    json.dumps(list(PIECES))
