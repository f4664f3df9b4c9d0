"""Python and the command line give identical results for identical settings."""

import numpy as np
import pytest
import torch
from cli.conftest import run

import basis
from basis.jobs.streams import as_stream
from basis.priors.prior import Prior
from basis.samplers import SAMPLERS
from basis.samplers.gibbs import Gibbs
from basis.search.plan import Plan, Round

QUICK = ["--method", "30"]
PAPER = {"grey": True, "invert": True, "size": 8}


def found(out):
    return np.load(out / "sources.npz")


@pytest.mark.parametrize(
    ("file", "words", "arguments", "reading"),
    [
        ("a.png", [], {}, {}),
        ("a.png", ["--alphas", 0.5, 0.5, "--seed", 3], {"alphas": (0.5, 0.5), "seed": 3}, {}),
        ("large.png", ["--alphas", 0.5, 0.5], {"alphas": (0.5, 0.5)}, {}),
        ("rgb.png", ["--grey"], {}, {"grey": True}),
        ("paper.png", ["--grey", "--invert", "--size", 8], {}, PAPER),
        ("a.png", ["--mask", "mask.png", "--noise", 0.1], {"mask": "mask.png", "noise": 0.1}, {}),
        ("a.png", ["--sources", 3], {"sources": 3}, {}),
        ("a.png", ["--sources", "unknown"], {"sources": "unknown"}, {}),
        ("a.png", ["--alphas", "unknown"], {"alphas": "unknown"}, {}),
        ("a.png", ["--alphas", 0.7, "unknown"], {"alphas": (0.7, None)}, {}),
        ("mixture.npz", [], {}, {}),
        ("many.npy", ["--batch-size", 2, "--workers", 1], {"batch_size": 2, "workers": 1}, {}),
        ("a.png", ["--estimate", "mean"], {"estimate": "mean"}, {}),
        ("a.png", ["--estimate", "sample"], {"estimate": "sample"}, {}),
        ("a.png", ["--samples", 2], {"samples": 2}, {}),
        ("a.png", ["--method", "gibbs"], {"method": "gibbs"}, {}),
        ("a.png", ["--method", "gibbs", "--steps", 3], {"method": Gibbs(steps=3)}, {}),
        (
            "a.png",
            ["--method", "gibbs", "--steps", 3, "--no-finish", "--trajectory", 0.5],
            {"method": "plan"},
            {},
        ),
        ("a.png", ["--mixing", "clipped", "--alphas", 1, 0.5], {"mixing": "clipped"}, {}),
    ],
)  # fmt: skip
def test_separate(pictures, priors, tmp_path, file, words, arguments, reading):
    words = [pictures / w if w == "mask.png" else w for w in words]
    method = [] if "--method" in words else QUICK
    out = tmp_path / "out"
    flags = ["--prior", priors["tiny"], *method, *words, "--out", out]
    assert run("separate", pictures / file, *flags) == 0

    arguments = {"method": 30} | arguments
    if "mask" in arguments:
        arguments["mask"] = pictures / "mask.png"
    if arguments["method"] == "plan":
        first = Round(1, Gibbs(steps=3), finish=False)
        arguments["method"] = Plan((first,), trajectory=(0.5,))
    if arguments.get("mixing") == "clipped":
        arguments["mixing"] = basis.mixture((1, 0.5)).clipped()
    observation = basis.read(pictures / file, **reading)
    result = basis.separate(observation, priors["tiny"], **arguments)
    ours = found(out)
    assert np.array_equal(ours["sources"], result.sources.numpy())
    assert ("alphas" in ours) == (result.alphas is not None)
    assert result.alphas is None or np.array_equal(ours["alphas"], result.alphas.numpy())
    assert ("samples" in ours) == (result.samples is not None)
    assert (out / "trajectory.png").exists() == bool(result.trajectory)
    # And what is written is what `Result.save` writes.
    result.save(tmp_path / "saved")
    assert {p.name for p in out.iterdir()} == {p.name for p in (tmp_path / "saved").iterdir()}


def test_separate_with_other_priors(pictures, priors, tmp_path):
    tiny, weaker, color = (priors[name] for name in ("tiny", "weaker", "color"))
    a, b, rgb = (pictures / f"{name}.png" for name in ("a", "b", "rgb"))
    one = ["separate", a, *QUICK, "--out", tmp_path / "o"]
    assert run(*one, "--prior", tiny, "--prior", weaker) == 0
    result = basis.separate(a, [tiny, weaker], method=30)
    assert np.array_equal(found(tmp_path / "o")["sources"], result.sources.numpy())
    assert run(*one, "--prior", tiny, "--autoguidance", weaker, "--strength", 0.5) == 0
    guided = Prior.from_pretrained(tiny).autoguide(Prior.from_pretrained(weaker), 0.5)
    result = basis.separate(a, guided, method=30)
    assert np.array_equal(found(tmp_path / "o")["sources"], result.sources.numpy())
    assert run("separate", rgb, "--prior", color, *QUICK, "--out", tmp_path / "o") == 0
    result = basis.separate(rgb, color, method=30)
    assert np.array_equal(found(tmp_path / "o")["sources"], result.sources.numpy())
    words = ["separate", rgb, "--grey", "--mixing", "grey", "--prior", color]
    assert run(*words, *QUICK, "--out", tmp_path / "o") == 0
    result = basis.separate(basis.read(rgb, grey=True), color, mixing=basis.grey(), method=30)
    assert np.array_equal(found(tmp_path / "o")["sources"], result.sources.numpy())
    rows = ["--alphas", 1, 0.5, "--alphas", 0.5, 1]
    assert run("separate", a, b, *rows, "--prior", tiny, *QUICK, "--out", tmp_path / "o") == 0
    result = basis.separate(basis.read([a, b]), tiny, [(1, 0.5), (0.5, 1)], method=30)
    assert np.array_equal(found(tmp_path / "o")["sources"], result.sources.numpy())


@pytest.mark.parametrize(
    ("inputs", "words", "arguments", "reading"),
    [
        ("all", ["--samples", 2], {"samples": 2}, {}),
        ("all", ["--alphas", "unknown"], {"alphas": "unknown"}, {}),
        ("many.npy", ["--job", "--shard", 1, "--invert"], {}, {"invert": True}),
        ("mixture.npz", ["--job"], {}, {}),
    ],
)
def test_jobs(pictures, priors, tmp_path, capsys, inputs, words, arguments, reading):
    out, mine = tmp_path / "out", tmp_path / "mine"
    flags = ["--prior", priors["tiny"], *QUICK, *words, "--pictures", "--out", out]
    assert run("separate", pictures / inputs, *flags) == 0
    assert "residual at most" in capsys.readouterr().out
    stream = as_stream(pictures / inputs, (1, 8, 8), **reading)
    store = basis.separate_job(stream, priors["tiny"], out=mine, method=30, **arguments)
    ours = basis.open_store(out)
    assert ours.about == store.about
    assert ours.names == store.names
    for name in store.arrays:
        assert np.array_equal(ours[name], store[name]), name
    assert len(list((out / "pictures").iterdir())) == 2 * len(store)
    # The job separates as `separate` does.
    assert run("separate", pictures / inputs, *flags) == 0
    again = basis.separate(
        basis.read(sorted((pictures / inputs).iterdir()) if inputs == "all" else pictures / inputs,
                   **reading),
        priors["tiny"], method=30, workers=1, **arguments,
    )  # fmt: skip
    assert np.allclose(ours["sources"], again.sources.numpy(), atol=1e-4)


def test_colorize(pictures, priors, tmp_path):
    flags = ["--prior", priors["color"], "--size", 8, "--method", "ancestral", "--steps", 3]
    words = ["--samples", 2, "--saturation", 1.2, "--seed", 1, "--out", tmp_path / "o"]
    assert run("colorize", pictures / "rgb.png", *flags, *words) == 0
    result = basis.colorize(
        pictures / "rgb.png", priors["color"], samples=2, size=8, saturation=1.2, seed=1,
        method=SAMPLERS["ancestral"](steps=3),
    )  # fmt: skip
    ours = found(tmp_path / "o")
    assert np.array_equal(ours["samples"], result.samples.numpy())
    assert result.sources.shape == (1, 1, 3, 8, 8)
    # Several photos get a folder each; a folder of photos is a job.
    two = [pictures / "a.png", pictures / "large.png"]
    assert run("colorize", *two, *flags, "--out", tmp_path / "two") == 0
    assert found(tmp_path / "two" / "large")["sources"].shape == (1, 1, 3, 12, 10)
    assert run("colorize", pictures / "all", *flags, "--out", tmp_path / "job") == 0
    store = basis.colorize_job(
        pictures / "all", priors["color"], size=8, method=SAMPLERS["ancestral"](steps=3),
        out=tmp_path / "mine",
    )  # fmt: skip
    assert np.array_equal(basis.open_store(tmp_path / "job")["colors"], store["colors"])


def test_mix_and_sample_and_check(pictures, priors, tmp_path, capsys):
    a, b = pictures / "a.png", pictures / "b.png"
    words = ["mix", a, b, "--alphas", 0.7, 0.3, "--noise", 0.1, "--seed", 2]
    assert run(*words, "--out", tmp_path / "m.npz") == 0
    ours = basis.read(tmp_path / "m.npz")
    made = basis.mix([a, b], (0.7, 0.3), noise=0.1, seed=2)
    assert torch.equal(ours.values, made.values) and torch.equal(ours.sources, made.sources)
    assert run("mix", "sample", "--count", 3, "--out", tmp_path / "three.npz") == 0
    assert torch.equal(
        basis.read(tmp_path / "three.npz").values, basis.test_mixtures("sample", 3).values
    )
    words = ["sample", priors["tiny"], "--count", 3, "--steps", 2, "--seed", 1]
    assert run(*words, "--out", tmp_path / "s") == 0
    drawn = basis.sample(priors["tiny"], 3, steps=2, seed=1)
    assert np.array_equal(np.load(tmp_path / "s" / "samples.npy"), drawn.mul(255).round().byte())
    capsys.readouterr()
    data = tmp_path / "data.npy"
    np.save(data, np.random.default_rng(0).random((9, 1, 8, 8), dtype=np.float32))
    assert run("check", priors["tiny"], "--data", data, "--json", tmp_path / "c.json") == 2
    printed = capsys.readouterr()
    assert printed.out.strip() == str(basis.check(priors["tiny"], str(data)))
    assert "not suitable" in printed.err and (tmp_path / "c.json").exists()
