"""Unconditional draws, and what a step costs."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis.cli import main
from basis.lab.studies.cost_study import evaluation_cost
from basis.plots.drawing import grid
from basis.priors.gaussian import GaussianMixture


def mixture():
    means = torch.tensor([0.3, 0.7])[:, None, None, None].expand(2, 1, 2, 2)
    variances = torch.full((2,), 0.02**2)
    weights = torch.tensor([0.25, 0.75])
    return GaussianMixture(means, variances, weights, sigma_min=0.005, sigma_max=10.0)


def test_draws_have_the_weights_and_the_spread_of_the_prior():
    x = basis.sample(mixture(), 1000, steps=40, seed=1)
    assert x.shape == (1000, 1, 2, 2)
    upper = x.mean(dim=(1, 2, 3)) > 0.5
    assert upper.float().mean().item() == pytest.approx(0.75, abs=0.045)  # three standard errors
    assert x[upper].mean().item() == pytest.approx(0.7, abs=0.005)
    assert x[upper].std().item() == pytest.approx(0.02, rel=0.25)


def test_a_draw_depends_on_seed_and_number_alone():
    few, many = (basis.sample(mixture(), n, steps=5, batch=b) for n, b in ((3, 2), (5, 5)))
    assert torch.equal(few, many[:3])
    assert not torch.equal(few, basis.sample(mixture(), 3, steps=5, seed=1))
    told = []
    basis.sample(mixture(), 3, steps=5, batch=2, progress=told.append)
    assert (told[-1].done, told[-1].total) == (15, 15)
    with pytest.raises(basis.BasisError, match="at least 1"):
        basis.sample(mixture(), 0)


def test_the_command_writes_pictures_and_bytes(tmp_path, capsys):
    words = ["sample", "mnist", "--count", "10", "--steps", "2", "--out", str(tmp_path / "o")]
    assert main(words) == 0
    assert "samples.png" in capsys.readouterr().out
    kept = np.load(tmp_path / "o/samples.npy")
    assert kept.shape == (10, 1, 28, 28) and kept.dtype == np.uint8 and kept.std() > 0
    # Two rows of eight and two digits, doubled, with gaps around.
    assert Image.open(tmp_path / "o/samples.png").size == (8 * 60 + 4, 2 * 60 + 4)
    assert main(["sample", "cats", "--out", str(tmp_path / "p")]) == 2
    assert "cats" in capsys.readouterr().err


def test_a_grid_keeps_pixels_whole():
    sheet = grid(torch.ones(3, 3, 8, 8), 2, cell=20, gap=1)
    assert sheet.size == (2 * 17 + 1, 2 * 17 + 1)
    assert sheet.getpixel((1, 1)) == (255, 255, 255)


def test_cost_counts_the_operations_of_tiles(tmp_path, capsys):
    prior = basis.load_prior("mnist")
    one, four = evaluation_cost(prior), evaluation_cost(prior, 42)
    assert (one.side, one.tiles, four.tiles) == (28, 1, 4)
    assert four.flops == 4 * one.flops > 1e8
    assert 0 < one.seconds < four.seconds * 2
    words = [
        "study",
        "cost",
        "--prior",
        "mnist",
        "--sampler",
        "gibbs",
        "--steps",
        "10",
        "--out",
        str(tmp_path),
    ]
    assert main([*words, "--sides", "28", "42"]) == 0
    assert "| mnist | 42x42 | 4 |" in capsys.readouterr().out
    assert (tmp_path / "cost.json").exists()
    assert main([*words, "--sides", "20"]) == 2
    assert "smaller than what prior 'mnist' was trained on" in capsys.readouterr().err


def test_study_of_capacity_compares_networks_on_the_same_mixtures(tmp_path, capsys):
    command = ["study", "capacity", "--priors", "mnist", "mnist", "--data", "sample"]
    command += ["--pairs", "2", "--ways", "8", "12", "--out", str(tmp_path)]
    assert main(command) == 0
    table = (tmp_path / "capacity.md").read_text(encoding="utf-8")
    rows = json.loads((tmp_path / "capacity.json").read_text(encoding="utf-8"))["capacity"]
    assert [row["prior"] for row in rows] == ["mnist", "mnist"]
    assert rows[0]["parameters"] > 1_000_000 and rows[0]["images"] > 0
    assert 0.1 < rows[0]["gflop"] < 1
    assert len(rows[0]["quality"]) == 2 and f"{rows[0]['quality'][0]['mean']:.2f}" in table
    assert "effort 8, dB" in capsys.readouterr().out
