"""Small stumbles on the way to a result, each of which happened to somebody."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import basis
from basis._separate import separate
from basis.cli import main
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.priors.denoiser import DenoiserPrior
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior
from basis.priors.tiled import Tiled
from basis.search.plan import plan_for
from basis.settings import EFFORTS
from basis.signals.datasets import load_images
from basis.store.folder import write_prior
from basis.store.loading import load_prior

QUICK = {"sampler": "gibbs", "steps": 2}
SMALL = {"widths": (8, 16), "blocks": (1, 1), "embedding": 16}


def one_line(call, says):
    with pytest.raises(BasisError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)


def run(*words):
    return main([str(word) for word in words])


# --- files of results


def test_pictures_of_an_earlier_run_do_not_stay(tmp_path, tiny_prior):
    prior, out = write_prior(tiny_prior, tmp_path / "p"), tmp_path / "out"
    np.save(tmp_path / "m.npy", np.random.default_rng(0).random((3, 1, 8, 8), np.float32))
    np.save(tmp_path / "one.npy", np.random.default_rng(0).random((1, 1, 8, 8), np.float32))
    words = ["--prior", prior, "--sampler", "gibbs", "--steps", 2, "--out", out]
    assert run("separate", tmp_path / "m.npy", "--k", 3, "--keep", 1.0, *words) == 0
    assert {"m-0003-source3.png", "states.png"} <= {p.name for p in out.iterdir()}
    (out / "mine-source1.png").write_bytes(b"not of a run")
    assert run("separate", tmp_path / "one.npy", *words) == 0
    left = {p.name for p in out.iterdir()}
    assert left == {
        "one-source1.png", "one-source2.png", "panel.png", "run.json", "sources.npz",
        "mine-source1.png",
    }  # fmt: skip
    # Records of versions that kept no list of files name them by their mixtures.
    record = json.loads((out / "run.json").read_text())
    assert record.pop("files") == [
        "one-source1.png", "one-source2.png", "panel.png", "sources.npz",
    ]  # fmt: skip
    (out / "run.json").write_text(json.dumps(record))
    assert run("separate", tmp_path / "m.npy", *words) == 0
    assert not (out / "one-source1.png").exists() and (out / "m-0003-source2.png").exists()


def test_a_record_cannot_name_files_elsewhere(tmp_path, tiny_prior):
    outside = tmp_path / "kept.txt"
    outside.write_text("here")
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"files": ["../kept.txt", str(outside), "", 3]}))
    separate(torch.rand(1, 1, 8, 8), tiny_prior, **QUICK).save(out)
    assert outside.read_text() == "here"


def test_results_are_saved_shown_and_drawn(tmp_path, tiny_prior, monkeypatch):
    result = separate(torch.rand(2, 1, 8, 8), tiny_prior, **QUICK)
    assert result.save(tmp_path / "r") == tmp_path / "r"
    names = {p.name for p in (tmp_path / "r").iterdir()}
    assert names == {
        "01-source1.png", "01-source2.png", "02-source1.png", "02-source2.png", "panel.png",
        "run.json", "sources.npz",
    }  # fmt: skip
    saved = np.load(tmp_path / "r" / "sources.npz")
    assert np.array_equal(saved["sources"], result.sources.numpy())
    assert np.array_equal(saved["mixture"], result.mixture.numpy())
    pixels = np.asarray(Image.open(tmp_path / "r" / "02-source1.png")) / 255
    assert np.abs(pixels - result.sources[1, 0, 0].numpy()).max() < 1 / 255
    assert json.loads((tmp_path / "r" / "run.json").read_text())["seed"] == 0
    result.save(tmp_path / "r", names=["a", "b"])
    assert not (tmp_path / "r" / "01-source1.png").exists()
    one_line(lambda: result.save(tmp_path / "r", names=["a"]), "2 different names")
    one_line(lambda: result.save(tmp_path / "r", names=["a", "../b"]), "without folders")
    (tmp_path / "file").write_text("here")
    one_line(lambda: result.save(tmp_path / "file"), "is a file")
    drawn = Image.open(io.BytesIO(result._repr_png_()))
    assert drawn.size == result.panel().size and drawn.width > 5 * 100
    shown = []
    monkeypatch.setattr(Image.Image, "show", lambda self: shown.append(self.size))
    result.show(rows=1)
    assert shown[0][1] < drawn.height
    volumes = basis.GaussianMixture(torch.zeros(1, 1, 2, 3, 2), torch.tensor([1.0]))
    solid = separate(torch.rand(2, 1, 2, 3, 2), volumes, **QUICK)
    assert solid._repr_png_() is None
    one_line(solid.panel, "cannot be drawn")
    solid.save(tmp_path / "solid")
    assert {p.name for p in (tmp_path / "solid").iterdir()} == {"run.json", "sources.npz"}


# --- arguments


def test_a_misspelt_argument_is_told_from_a_setting(tiny_prior):
    m = torch.rand(1, 1, 8, 8)
    for way in ({}, QUICK):
        one_line(lambda way=way: separate(m, tiny_prior, smples=3, **way), "did you mean 'samples'")
    one_line(lambda: separate(m, tiny_prior, steps=3), "steps goes with a sampler")
    one_line(lambda: separate(m, tiny_prior, xyzzy=3), "no argument 'xyzzy'; it takes mixture, pri")
    one_line(lambda: separate(m, tiny_prior, levels=3, **QUICK), "'gibbs' has no setting 'levels'")


@pytest.mark.parametrize("seed", [None, 0.5, -1, 2**63, "7", True])
def test_seeds_that_are_none(tiny_prior, seed):
    says = "seed must be a whole number from 0"
    one_line(lambda: separate(torch.rand(1, 1, 8, 8), tiny_prior, seed=seed, **QUICK), says)
    one_line(lambda: basis.sample(tiny_prior, 1, steps=1, seed=seed), says)
    result = separate(torch.rand(1, 1, 8, 8), tiny_prior, seed=np.int64(3), **QUICK)
    assert result.seed == 3 and type(result.seed) is int


@pytest.mark.parametrize("count", [0, 1.5, "2"])
def test_counts_that_are_none(tiny_prior, count):
    one_line(lambda: separate(torch.rand(1, 1, 8, 8), tiny_prior, samples=count), "samples must be")


def test_masks_of_another_size():
    x = torch.rand(1, 2, 1, 8, 8)
    says = r"mask has shape \(5, 5\); it must fit what is observed, \(1, 8, 8\)"
    wrong = mixture().replace(mask=torch.ones(5, 5))
    one_line(lambda: wrong(x), says)
    one_line(lambda: wrong.residual(x, x.sum(1)), says)
    one_line(lambda: wrong.fit((1, 8, 8)), says)
    one_line(lambda: mixture().replace(mask=[[1, 0], [1]]), "a mask must be an array")
    flipped = np.eye(8, dtype=bool)[::-1]
    assert torch.equal(mixture().replace(mask=flipped)(x)[0, 0] != 0, torch.eye(8).flip(0) == 1)


def test_weights_as_tensors():
    wanted = mixture((0.5, 0.25)).matrix
    grad = torch.tensor([0.5, 0.25], requires_grad=True)
    for alphas in (grad, np.array([0.25, 0.5])[::-1], list(torch.tensor([0.5, 0.25]))):
        assert torch.equal(mixture(alphas).matrix, wanted)
    rows = basis.mixtures([torch.tensor([0.5, 0.25]), np.array([1.0, 0.0])]).matrix
    assert rows.tolist() == [[0.5, 0.25], [1.0, 0.0]]
    assert basis.grey(grad).sources == basis.downsample(2, grad).sources == 2
    one_line(lambda: mixture(torch.rand(2, 2)), "list of finite numbers, one per source")


class Numpy(nn.Module):
    def forward(self, x, sigma):
        return x.numpy()

    def log_prob(self, x, sigma):
        return x.detach().numpy().sum((1, 2, 3))


def test_models_that_answer_with_numpy():
    m, ends = torch.rand(1, 1, 4, 4), ((1, 4, 4), 0.01, 10.0)
    for prior in (
        Prior.from_denoiser(lambda x, sigma: x.numpy(), *ends),
        DenoiserPrior(Numpy(), *ends),
        LikelihoodPrior(Numpy(), *ends),
        Prior.from_log_prob(lambda x, sigma: x.detach().numpy().sum((1, 2, 3)), *ends),
    ):
        one_line(lambda p=prior: separate(m, p, **QUICK), "must answer with a tensor.* not ndarray")
    narrow = DenoiserPrior(nn.Identity(), *ends)
    narrow.module.forward = lambda x, sigma: x[..., :2]
    one_line(lambda: separate(m, narrow, **QUICK), r"answered \(2, 1, 4, 2\) to \(2, 1, 4, 4\)")


def test_a_mistyped_folder_is_not_asked_of_the_hub(tmp_path, monkeypatch, tiny_prior):
    monkeypatch.setattr("basis.store.loading.fetch", lambda name: pytest.fail("asked the hub"))
    monkeypatch.chdir(tmp_path)
    write_prior(tiny_prior, tmp_path / "runs" / "digits")
    one_line(
        lambda: load_prior("runs/digist"), "unknown prior 'runs/digist' .did you mean 'digits'"
    )
    one_line(lambda: load_prior("rnus/digits"), "hf:owner/name@revision for one on the model hub")


# --- efforts


def test_efforts_keep_to_their_evaluations_with_a_likelihood():
    """A score of a flow counts three evaluations; fast took 600 of its 200."""
    flow = Prior.from_log_prob(
        lambda x, s: -(x - 0.5).square().flatten(1).sum(1) / 2, (1, 4, 4), 0.01, 9
    )
    assert flow.evaluations == 3
    m = torch.rand(2, 1, 4, 4)
    for effort, most in (("fast", 2 * EFFORTS["fast"]), (100, 100)):
        spent = separate(m, flow, effort=effort).spent
        assert 0.6 * most < spent.max() <= most
    one_line(lambda: separate(m, flow, effort=20), "give at least 24 for 2 sources")
    # Tiles are counted by the tile, as before: an effort is no less for a larger picture.
    tiled = Tiled(flow, 8, 8, overlap=0)
    spent = separate(torch.rand(1, 1, 8, 8), tiled, effort=100).spent
    assert spent.max() == 4 * separate(m, flow, effort=100).spent.max()
    assert plan_for("fast", 2) == plan_for("fast", 2, cost=2)


# --- training


def test_reprs_tell():
    prior = load_prior("mnist")
    assert repr(prior) == "DenoiserPrior('mnist', 1x28x28, values 0 to 1, sigma 0.005 to 10)"
    assert repr(mixture((1, 0.5)).replace(noise=0.1)) == (
        "MatrixMixing(2 sources, alphas 1 0.5, noise 0.1)"
    )
    assert repr(basis.mixtures([(1, 0), (0.5, 2)])) == (
        "MatrixMixing(2 sources, alphas 1 0; 0.5 2)"
    )
    assert repr(basis.grey()) == "MatrixMixing(1 source, 3 channels to 1)"
    assert repr(basis.downsample(2, (1, 1))) == "Downsample(2 sources, blocks of 2, alphas 1 1)"
    assert repr(basis.convolution(torch.ones(2, 5))) == "Convolution(2 sources, kernels of 5)"
    entries = basis.list_priors()
    assert all(len(repr(entry)) < 120 and entry.name in repr(entry) for entry in entries)
    assert "PriorEntry('mnist', 1x28x28, " in repr(entries)
    assert repr(prior.card).startswith("Card('mnist', 1x28x28, ")
    assert repr(load_images("sample")) == "ImageSet('sample', 512 of 1x28x28, uint8, with labels)"
