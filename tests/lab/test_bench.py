"""Quality and cost of methods, ours and those of another library, on the same mixtures."""

import json
import sys

import pytest
import torch

from basis import metrics, mixings
from basis._mix import Pairs
from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.lab.bench import (
    PEERS,
    average_quality,
    find_method,
    measure_peer,
    measure_quality,
    quality_table,
)
from basis.priors.gaussian import GaussianMixture
from basis.samplers import Basis, Gibbs


@pytest.fixture
def bimodal():
    """Two far modes, so that most mixtures have one mode up to the order of the sources."""
    means = torch.tensor([0.1, 0.9]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    variances = torch.tensor([0.0004, 0.0004])
    return GaussianMixture(means.clone(), variances, value_range=(0, 1))


@pytest.fixture
def pairs():
    g = torch.Generator().manual_seed(0)
    low, high = (v + 0.02 * torch.randn(8, 1, 1, 2, 2, generator=g) for v in (0.1, 0.9))
    return Pairs(torch.cat([low, high], dim=1), torch.zeros(8, 2))


def test_methods_by_their_names():
    assert (find_method("best"), find_method("50"), find_method("gibbs")) == ("best", 50, Gibbs())
    assert find_method("basis:delta=3e-5,steps=7,temperature=0") == Basis(
        delta=3e-5, steps=7, temperature=0.0
    )
    for wrong, word in (
        ("fastest", "fastest"), ("0", "0"), ("gibbs:step=3", "step"), ("gibbs:steps", "steps"),
        ("gibbs:steps=x", "steps"),
    ):  # fmt: skip
        with pytest.raises(BasisError, match=word):
            find_method(wrong)


def test_quality_is_that_of_separate(bimodal, pairs):
    (row,) = measure_quality(Gibbs(steps=5), bimodal, pairs, seed=5)
    m = pairs.mix((1.0, 1.0))
    mixing = mixings.mixture((1.0, 1.0))
    again = separate(m, bimodal, mixing=mixing, method=Gibbs(steps=5), seed=5, progress=False)
    assert row.method == "gibbs" and row.measure == "psnr" and row.count == 8
    expected = metrics.psnr(again.sources, pairs.sources, permute=True).tolist()
    assert row.each == pytest.approx(expected, abs=1e-3)
    assert row.mean == pytest.approx(sum(row.each) / 8)
    assert row.evaluations == again.item_evaluations.double().mean()
    assert row.residual < 1 / 255


def test_samples_give_further_rows(bimodal, pairs):
    rows = measure_quality(Gibbs(steps=5), bimodal, pairs, name="x", samples=4)
    found = {row.method: row.mean for row in rows}
    names = [row.method for row in rows]
    assert found[names[3]] >= found[names[1]] and "closest of 4" in names[3]


def test_the_measure_follows_the_range_of_the_prior(bimodal, pairs):
    usual = average_quality(pairs, bimodal)
    scaled = GaussianMixture(7 * bimodal.means, torch.tensor([0.02, 0.02]), value_range=(0, 7))
    larger = average_quality(Pairs(7 * pairs.sources, pairs.indices), scaled)
    assert larger.each == pytest.approx(usual.each, abs=1e-3)
    unbounded = GaussianMixture(bimodal.means, torch.tensor([0.02, 0.02]))
    assert average_quality(pairs, unbounded).measure == "snr"
    table = quality_table([usual], times=False)
    assert table.header[1].startswith("PSNR") and len(table.rows[0]) == len(table.header) == 4


@pytest.mark.parametrize("peer", PEERS)
def test_peers_separate_within_their_budget(bimodal, pairs, peer):
    pytest.importorskip("azula")
    row = measure_peer(peer, bimodal, pairs, evaluations=300)
    assert 280 <= row.most <= 300  # every pass is counted, and none is beyond the budget
    # The mixture / 2 has 8 dB. Only MMPS knows how values are correlated.
    assert row.median > (18 if peer == "mmps" else 7)
    assert measure_peer(peer, bimodal, pairs, evaluations=300).each == row.each


def test_peers_refuse_what_they_cannot_do(bimodal, pairs):
    with pytest.raises(BasisError, match="needs at least 6"):
        measure_peer("mmps", bimodal, pairs, evaluations=4)
    with pytest.raises(BasisError, match="mmps, tmpd, dps"):
        measure_peer("other", bimodal, pairs)


def test_the_commands(tmp_path, capsys, monkeypatch):
    out, record = tmp_path / "out", tmp_path / "e.json"
    data = ["--data", "sample", "--count", "2"]
    words = ["lab", "bench", *data, "--method", "12", "--method", "gibbs:steps=2"]
    assert main([*words, "--out", str(out)]) == 0
    rows = json.loads((out / "bench.json").read_text())["quality"]
    assert [r["method"] for r in rows] == ["mixture / k", "12", "gibbs:steps=2"]
    assert "| gibbs:steps=2 |" in (out / "bench.md").read_text()
    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")
    words = ["lab", "evaluate", *data, "--method", "12", "--clipped", "--json", str(record)]
    assert main(words) == 0
    assert len(json.loads(record.read_text())["quality"]) == 2
    assert main(["lab", "bench", *data, "--method", "fastest", "--out", str(out)]) == 2
    assert "fastest" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["lab", "bench", *data, "--out", str(tmp_path / "no")]) == 2
    assert "basis-separation[plots]" in capsys.readouterr().err
