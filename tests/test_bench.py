import json
import sys

import pytest
import torch

from basis import lab
from basis._mix import Pairs, draw_pairs
from basis._separate import separate, separate_each
from basis.cli import main
from basis.devices import Stopped, run_all
from basis.errors import BasisError
from basis.samplers import SAMPLERS
from basis.settings import EFFORTS
from basis.signals.datasets import load_images
from basis.store.loading import load_prior


def test_quality_counts_what_separate_counts(tiny_prior):
    pairs = draw_pairs(load_images("sample"), 3, seed=0)
    prior = load_prior("mnist")
    way = lab.Way("short", {"sampler": "gibbs", "steps": 3})
    row = lab.measure_quality(way, prior, pairs, seed=5)
    assert (row.evaluations, row.most, row.count) == (
        14.0,
        14,
        3,
    )  # three of each source tell how plausible it is
    again = separate(pairs.mix((1.0, 1.0)), prior, sampler="gibbs", steps=3, seed=5)
    from basis.metrics import psnr

    assert row.each == pytest.approx(
        psnr(again.sources, pairs.sources, permute=True).tolist(), abs=1e-3
    )
    assert row.mean == pytest.approx(sum(row.each) / 3)
    assert row.residual < 1 / 255


def test_every_way_is_known_to_separate(tiny_prior):
    assert {"fast", "balanced", "best", "basis", "gibbs"} <= set(lab.WAYS)
    assert lab.WAYS["basis"].settings == {"sampler": "basis"}
    assert set(SAMPLERS) - set(lab.DEFAULT_WAYS) == {"greedy", "noise-conditioned"}
    assert set(lab.DEFAULT_WAYS) < set(lab.WAYS) == {*EFFORTS, *SAMPLERS}


def test_psnr_is_taken_on_the_range_of_the_prior(tiny_prior):
    """The same mixtures in other units have the same PSNR."""
    sources = torch.rand(4, 2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    usual = lab.average_quality(Pairs(sources, torch.zeros(4, 2)))
    tiny_prior.value_range = (0.0, 7.0)
    scaled = lab.average_quality(Pairs(7 * sources, torch.zeros(4, 2)), tiny_prior)
    assert scaled.each == pytest.approx(usual.each, abs=1e-4)
    tiny_prior.value_range, tiny_prior.std = None, 0.3 * 7
    unbounded = lab.average_quality(Pairs(7 * sources, torch.zeros(4, 2)), tiny_prior)
    assert unbounded.each == pytest.approx(usual.each, abs=1e-4)


def test_growth_cases():
    assert lab.growth_cases([8, 4], [2, 3]) == [(4, 2), (8, 2), (4, 3)]
    assert lab.growth_cases([], [2, 3]) == []
    with pytest.raises(BasisError, match="at least 1"):
        lab.growth_cases([0], [2])


def test_plots_need_matplotlib(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["lab", "--data", "sample", "--pairs", "1", "--out", str(tmp_path)]) == 2
    assert "basis-separation[plots]" in capsys.readouterr().err


def test_speed(tiny_prior):
    speed = lab.measure_speed(tiny_prior, batch=8, seconds=0.05)
    assert speed.images_per_second > 0 and speed.matmul_gflops > 0
    assert speed.network_gflops == pytest.approx(speed.images_per_second * speed.gflop_per_image)
    assert speed.share == pytest.approx(speed.network_gflops / speed.matmul_gflops)


def test_growth_streams(tiny_prior):
    images = torch.rand(20, 1, 8, 8)
    told = []
    g = lab.measure_growth(tiny_prior, images, mixtures=7, k=3, batch=3, progress=told.append)
    assert told == [3, 6, 7] and g.mixtures == 7 and g.evaluations == 12
    assert g.seconds > 0


def test_a_stream_of_batches_is_as_good_as_one(tiny_prior):
    m = torch.rand(6, 1, 8, 8) * 2
    whole = separate(m, tiny_prior, effort=40).sources
    parts = [r.sources for r in separate_each(m.split(4), tiny_prior, effort=40)]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-4)


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(tiny_prior, workers):
    m = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2
    threads = torch.get_num_threads()
    alone = separate(m, tiny_prior, effort=40, workers=1)
    several = separate(m, tiny_prior, effort=40, workers=workers, chunk=2)
    assert torch.allclose(alone.sources, several.sources, atol=1e-4)
    assert torch.equal(alone.spent, several.spent)
    assert torch.get_num_threads() == threads
    several.sources.add_(1)  # results are ordinary tensors


def test_the_first_error_of_a_worker_is_the_one_told():
    seen = []

    def work(number, piece, check):
        if piece == 2:
            raise ValueError("two")
        for _ in range(200):
            check()
            torch.rand(100, 100) @ torch.rand(100, 100)
        seen.append(number)
        return piece

    with pytest.raises(ValueError, match="two"):
        run_all(work, list(range(12)), 2)
    assert len(seen) < 11
    assert run_all(work, [0, 1, 3], 2) == [0, 1, 3]
    assert issubclass(Stopped, Exception)


def test_command(tmp_path, capsys):
    out = tmp_path / "lab"
    words = ["lab", "--data", "sample", "--pairs", 2, "--ways", "fast", "dirac", "--out", out]
    words += ["--mixtures", 4, 8, "--sources", 3, "--json", tmp_path / "b.json"]
    assert main([str(w) for w in words]) == 0
    record = json.loads((tmp_path / "b.json").read_text())
    assert [r["way"] for r in record["quality"]] == ["average", "effort fast", "dirac"]
    assert [(g["mixtures"], g["k"]) for g in record["growth"]] == [(4, 2), (8, 2), (4, 3)]
    assert record["quality"][1]["most"] <= 200
    tables = (out / "lab.md").read_text()
    assert "| effort fast |" in tables and "| 8 | 2 |" in tables
    assert (out / "lab.png").read_bytes().startswith(b"\x89PNG")
    assert main(["lab", "--ways", "fastest", "--out", str(out)]) == 2
    assert "unknown way 'fastest'" in capsys.readouterr().err
