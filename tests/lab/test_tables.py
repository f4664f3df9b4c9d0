"""Every table and figure in miniature, with untrained networks as priors."""

import sys

import pytest
import torch

from basis import lab
from basis.cli import main
from basis.errors import BasisError
from basis.lab.baselines import BASELINES, NES, NMF, SD, Regression
from basis.lab.cache import ResultCache
from basis.lab.context import Context
from basis.lab.report import (
    Section,
    build_report,
    compute_table,
    resolve_size,
    tables_markdown,
    write_report,
)
from basis.lab.tables.mnist import similarity
from basis.nn.glow import Glow, GlowConfig
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.plots.charts import Table
from basis.priors.denoiser import DenoiserPrior
from basis.priors.likelihood import LikelihoodPrior
from basis.store.loading import load_prior


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return ResultCache(tmp_path_factory.mktemp("tables") / "cache")


@pytest.fixture(scope="module")
def priors():
    torch.manual_seed(0)
    sizes = {"widths": (8, 12), "blocks": (1, 1), "embedding": 16, "classes": 10}
    digits, photos = UNet(UNetConfig(**sizes)), UNet(UNetConfig(channels=3, **sizes))
    gray = {"size": 28, "mean": 0.13, "std": 0.31}
    color = {"channels": 3, "size": 32, "mean": 0.47, "std": 0.25}
    flows = [Glow(GlowConfig(depth=1, width=4, conditioned=True, **more)) for more in (gray, color)]
    unit = {"value_range": (0.0, 1.0)}
    found = {}
    for name in ("mnist", "mnist-classes", "church", "bedroom"):
        network = Denoiser(digits, 0.13, 0.31)
        found[name] = DenoiserPrior(network, (1, 28, 28), 0.005, 10.0, name=name, **unit)
    for name in ("cifar10", "cifar10-small"):
        network = Denoiser(photos, 0.47, 0.25)
        found[name] = DenoiserPrior(network, (3, 32, 32), 0.005, 10.0, name=name, **unit)
    for name in ("mnist-glow",):
        found[name] = LikelihoodPrior(flows[0], (1, 28, 28), 0.01, 1.0, name=name, **unit)
    name = "cifar10-glow"
    found[name] = LikelihoodPrior(flows[1], (3, 32, 32), 0.01, 1.0, name=name, **unit)
    found["mnist"].energies = load_prior("mnist").energies
    return found


@pytest.fixture
def ctx(cache, priors, monkeypatch):
    for name, short in {
        "nmf": lambda: NMF(parts=3, steps=3),
        "s-d": lambda: SD(starts=1, steps=3, batch=8),
        "nes": lambda: NES(rounds=1, batch=8),
        "nes-supervised": lambda: NES(supervised=True, batch=8),
        "regression": lambda: Regression(batch=8),
    }.items():
        monkeypatch.setitem(BASELINES, name, short)
    ctx = Context(cache, size=1e-6, data="sample", miniature=True)
    ctx.priors.update(priors)
    ctx.networks["efficientnet-lite0"] = None
    return ctx


@pytest.mark.parametrize("name", lab.TABLES)
def test_every_table_in_miniature(name, ctx, tmp_path):
    section = compute_table(name, ctx)
    assert section.name == name and (section.tables or section.pictures), section.text
    assert all(data.startswith(b"\x89PNG") for _, data in section.pictures)
    rows = {row[0]: row for table in section.tables[:1] for row in table.rows}
    if name.startswith("mnist"):
        assert {"mixture / k", "NMF", "fast", "balanced (the default)"} <= set(rows)
        assert rows["mixture / k"][4] == ("14.9" if name == "mnist-agnostic" else "14.8")
        files = set(ctx.cache.folder.iterdir())
        again = compute_table(name, ctx)
        assert again.tables == section.tables and set(ctx.cache.folder.iterdir()) == files
    if name.startswith("cifar"):
        assert {"test photos", "mixture / 2"} < set(rows)
        ours = rows.get("ours, one sample of each") or rows["ours, posterior mean"]
        ratio = "22.1, ratio 0.79" if "agnostic" in name else "29.9, ratio 0.76"
        assert ours[-1] == f"FID {ratio}"
    path = write_report([section], tmp_path / "report.html", command="basis lab reproduce")
    assert path.read_text().count("data:image/png") == len(section.pictures)


def test_the_registry_names_a_function_for_each_table():
    import importlib

    for name, (module, title) in lab.TABLES.items():
        tables = importlib.import_module(f"basis.lab.tables.{module}")
        assert callable(getattr(tables, name.replace("-", "_"))) and title


def test_chosen_priors_are_measured(ctx):
    ctx.chosen = ("church", "bedroom")
    section = compute_table("gradients", ctx)
    assert section.tables[0].header == ("σ", "church", "bedroom")


def test_missing_priors_are_reported(tmp_path, monkeypatch):
    ctx = Context(ResultCache(tmp_path), data="sample")
    monkeypatch.setattr(ctx, "prior", lambda name: None)
    for name in ("histogram", "ablation", "gradients", "likelihoods", "states"):
        assert "there is no prior 'mnist" in " ".join(compute_table(name, ctx).text)


def test_missing_packages_are_reported(ctx, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    ctx.cache = ResultCache(tmp_path)
    assert "basis-separation[plots]" in " ".join(compute_table("histogram", ctx).text)
    gradients = compute_table("gradients", ctx)
    assert gradients.tables and "basis-separation[plots]" in " ".join(gradients.text)
    rows = {row[0]: row for row in compute_table("mnist-split", ctx).tables[0].rows}
    assert "basis-separation[baselines]" in rows["NMF"][1] and "±" in rows["NES"][1]
    x = torch.rand(2, 2, 1, 28, 28)
    assert similarity(x, x.flip(1)) == "1.000"
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.image", None)
    assert similarity(x, x) == "not installed"


def test_sizes():
    assert [resolve_size(s) for s in ("quick", "full", "whole", "0.2", 0.3)] == [
        0.03, 1.0, 10.0, 0.2, 0.3,
    ]  # fmt: skip
    for wrong in ("huge", "0", 20, "nan"):
        with pytest.raises(BasisError, match="size must be quick, full, whole"):
            resolve_size(wrong)
    ctx = Context(ResultCache("nowhere"), size=3)
    assert (ctx.count(1000), ctx.count(1000, at_most=5000)) == (1000, 3000)
    assert ctx.with_size(0.1).count(1000) == 100 and ctx.with_size(1e-6).count(1000) == 4


def test_the_report_escapes_what_it_shows(tmp_path):
    section = Section("x", "a < b", ["1 < 2"], [Table(("<h>",), [("<script>",)])])
    text = write_report([section], tmp_path / "r.html", command="basis <x>").read_text()
    assert "<script>" not in text and "a &lt; b" in text and "basis &lt;x&gt;" in text
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "http" not in text.replace("http-equiv", "")
    assert "<script>" not in tables_markdown([section], command="x")


def test_unknown_tables_are_refused(ctx, tmp_path):
    with pytest.raises(BasisError, match="unknown table 'none'"):
        build_report(["none"], ctx, tmp_path)


def test_the_command(tmp_path, capsys):
    out = tmp_path / "o"
    words = ["lab", "reproduce", "gradients", "--data", "sample", "--size", "0.001"]
    assert main([*words, "--out", str(out)]) == 0
    assert "report:" in capsys.readouterr().out
    assert (out / "report.html").read_text(encoding="utf-8").count("data:image/png") == 1
    assert "| σ | mnist | mnist-glow |" in (out / "tables.md").read_text(encoding="utf-8")
    for name, value in (("--size", "huge"), ("--method", "fastest")):
        assert main([*words, name, value, "--out", str(tmp_path / "no")]) == 2
        assert value in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    for wrong in (["--data", "cats"], ["staets"]):
        with pytest.raises(SystemExit):
            main(["lab", "reproduce", "states", *wrong])
