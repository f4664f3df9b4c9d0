"""A miniature of every table and figure, with an untrained network in the prior's place."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from basis._discover import module_names

import basis
from basis.cli import main
from basis.errors import BasisError
from basis.lab.baseline_results import baseline_result
from basis.lab.baselines import BASELINES
from basis.lab.code_hash import code_hash
from basis.lab.context import Context
from basis.lab.definition import TableDefinition, load_tables
from basis.lab.fingerprint import fingerprint
from basis.lab.gan import SD
from basis.lab.nes import NES, Regression
from basis.lab.nmf import NMF, ConvNMF
from basis.lab.own_component import scene_classifier
from basis.lab.report import write_report
from basis.lab.result_cache import CachedResult, ResultCache
from basis.lab.section import Section, similarity
from basis.lab.separated import separate_pairs
from basis.nn.glow import Glow, GlowConfig
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.plots.charts import Table
from basis.priors.denoiser import DenoiserPrior
from basis.priors.likelihood import LikelihoodPrior
from basis.samplers import SAMPLERS
from basis.samplers.gibbs import Gibbs
from basis.samplers.sampler import State

TABLES = load_tables()
PACKAGE = Path(basis.__file__).parent


# The cache


def test_a_result_is_computed_once(tmp_path):
    made = []

    def compute():
        made.append(1)
        return CachedResult({"x": torch.arange(3)}, {"n": len(made)})

    cache = ResultCache(tmp_path)
    first = cache.get("a", {"seed": 0}, compute)
    again = ResultCache(tmp_path).get("a", {"seed": 0}, compute)
    assert len(made) == 1 and again.values == {"n": 1}
    assert torch.equal(first.tensors["x"], again.tensors["x"])
    assert again.seconds == pytest.approx(first.seconds)
    cache.get("a", {"seed": 1}, compute)
    assert len(made) == 2


@pytest.mark.parametrize("damage", ["cut", "bits"])
def test_a_damaged_result_is_computed_again(tmp_path, damage):
    cache = ResultCache(tmp_path)
    cache.get("a", {}, lambda: CachedResult({"x": torch.arange(3)}, {"n": 1}))
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "bits":
        data[-1] ^= 1  # in the tensor: the file can be read, and is wrong
    path.write_bytes(data[:40] if damage == "cut" else data)
    again = cache.get("a", {}, lambda: CachedResult({"x": torch.arange(3)}, {"n": 2}))
    assert again.values == {"n": 2}
    assert cache.get("a", {}, lambda: pytest.fail("it was written whole")).values == {"n": 2}


def test_what_a_card_says_to_its_readers_changes_no_result():
    prior = basis.load_prior("mnist")
    before = fingerprint(prior)
    prior.card = replace(prior.card, note="read on", quality=(), title="digits")
    assert fingerprint(prior) == before
    prior.card = replace(prior.card, std=0.5)
    assert fingerprint(prior) != before


def test_fingerprints_tell_what_changes_a_result(tiny_prior):
    assert fingerprint(Gibbs()) == fingerprint(Gibbs())
    assert fingerprint(Gibbs()) != fingerprint(Gibbs(steps=97))
    x = torch.rand(3, 4)
    assert fingerprint(x) == fingerprint(x.clone()) != fingerprint(x.view(4, 3))
    assert fingerprint(NMF(parts=3)) != fingerprint(NMF(parts=4))
    factor = 2
    by_two = fingerprint(lambda x: factor * x)
    factor = 3
    assert by_two != fingerprint(lambda x: factor * x)
    before = fingerprint(tiny_prior)
    assert before == fingerprint(tiny_prior)
    weight = next(tiny_prior.module.parameters())
    with torch.no_grad():
        weight.flatten()[0] += 1e-3
    assert fingerprint(tiny_prior) != before


# What is kept, and what is computed again


@pytest.fixture
def package(tmp_path):
    """A copy of the package's code, to change files in."""
    pattern = shutil.ignore_patterns("__pycache__", "*.safetensors", "*.npz", "*.ttf")
    return Path(shutil.copytree(PACKAGE, tmp_path / "copy" / "basis", ignore=pattern))


class Counted:
    """Separates two mixtures like a new run of the command, and counts what is computed."""

    def __init__(self, folder, prior, package=None):
        self.folder, self.prior, self.package = folder, prior, package

    def __call__(self, *, seed=0, **settings):
        before = set(self.folder.glob("*"))
        ctx = Context(ResultCache(self.folder), seed=seed, data="sample", package=self.package)
        settings = settings or {"sampler": "gibbs", "steps": 2}
        done = separate_pairs(ctx, self.prior, 2, **settings)
        return done, len(set(self.folder.glob("*")) - before)


@pytest.fixture
def digits_prior():
    torch.manual_seed(0)
    network = UNet(UNetConfig(widths=(8, 12), blocks=(1, 1), embedding=16))
    return DenoiserPrior(Denoiser(network, 0.13, 0.31), (1, 28, 28), 0.005, 10.0, name="mnist")


def zeros(self, problem, *more):
    """A sampler's way that ends in black pictures."""
    x = torch.zeros_like(problem.empty())
    yield State(x, 0.05, 1, 1, level_done=True)


@pytest.mark.parametrize("how", ["class", "method", "effort"])
def test_a_replaced_sampler_is_run_again(how, tmp_path, digits_prior, monkeypatch):
    run = Counted(tmp_path / "cache", digits_prior)
    settings = {"effort": 20} if how == "effort" else {"sampler": "gibbs", "steps": 2}
    settings |= {} if how == "effort" else {"finish": False}
    first, computed = run(**settings)
    assert computed == 1 and first.sources.abs().max() > 0
    again, computed = run(**settings)
    assert computed == 0 and torch.equal(first.sources, again.sources)
    with monkeypatch.context() as patch:
        if how == "class":
            patch.setitem(SAMPLERS, "gibbs", type("Gibbs", (Gibbs,), {"run": zeros}))
        else:
            patch.setattr(Gibbs, "run", zeros)
        other, computed = run(**settings)
        assert computed == 1 and not torch.equal(other.sources, first.sources)
        assert how == "effort" or other.sources.abs().max() == 0
    _, computed = run(**settings)  # the old sampler is back, and so is its result
    assert computed == 0


def test_settings_seeds_and_weights_are_told_apart(tmp_path, digits_prior):
    run = Counted(tmp_path / "cache", digits_prior)
    assert [run()[1], run()[1]] == [1, 0]
    assert run(seed=1)[1] == 1
    assert run(sampler="gibbs", steps=3)[1] == 1
    assert run(sampler="gibbs", steps=2, temperature=0.5)[1] == 1
    assert run(sampler="gibbs", steps=2, sigma_min=0.06)[1] == 1
    with torch.no_grad():
        next(digits_prior.module.parameters()).mul_(1.01)
    assert run()[1] == 1


def test_a_plan_is_told_apart_by_all_its_fields(tmp_path, digits_prior, monkeypatch):
    from basis.lab import separated

    run = Counted(tmp_path / "cache", digits_prior)
    assert [run(effort=20)[1], run(effort=20)[1]] == [1, 0]
    plan = separated.plan_for(20, 2)
    monkeypatch.setattr(
        separated, "plan_for", lambda *a, **k: type(plan)(plan.rounds, certain=0.06)
    )
    assert run(effort=20)[1] == 1


def test_code_is_told_apart_by_room(tmp_path, digits_prior, package):
    run = Counted(tmp_path / "cache", digits_prior, package)
    assert [run()[1], run()[1]] == [1, 0]
    # Rooms that no separation depends on, and words: nothing is computed again.
    for path in (package / "cli" / "__init__.py", package / "baselines" / "_nmf.py"):
        path.write_text(path.read_text() + "\nadded = 1\n")
    comment = package / "samplers" / "__init__.py"
    comment.write_text(comment.read_text() + '\n# a comment\n"""A text."""\n')
    assert run()[1] == 0
    # Rooms that one does.
    for count, room in enumerate(("samplers", "separation", "mixings", "priors", "nn")):
        path = package / room / "__init__.py"
        path = path if path.is_file() else package / f"{room}.py"
        path.write_text(path.read_text() + f"\nadded = {count}\n")
        assert [run()[1], run()[1]] == [1, 0], room
    (package / "samplers" / "new_method.py").write_text("x = 1\n")
    assert run()[1] == 1


def test_a_baseline_is_fitted_again_where_it_changed(tmp_path, monkeypatch, package):
    def run():
        before = set((tmp_path / "cache").glob("*"))
        cache = ResultCache(tmp_path / "cache")
        ctx = Context(cache, size=1e-6, data="sample", package=package)
        baseline_result(ctx, "nmf", "split")
        return len(set((tmp_path / "cache").glob("*")) - before)

    monkeypatch.setitem(BASELINES, "nmf", lambda: NMF(parts=2, steps=2))
    assert [run(), run()] == [1, 0]
    monkeypatch.setitem(BASELINES, "nmf", lambda: NMF(parts=2, steps=3))
    assert run() == 1
    path = package / "samplers" / "__init__.py"
    path.write_text(path.read_text() + "\nadded = 1\n")
    path = package / "baselines" / "_average.py"
    path.write_text(path.read_text() + "\nadded = 1\n")
    assert [run(), run()] == [1, 0]


def test_hashes_of_rooms_that_are_not_there():
    with pytest.raises(BasisError, match="no room 'cellar'"):
        code_hash("cellar")


# The tables


@pytest.fixture
def ctx(tmp_path, monkeypatch):
    for name, short in {
        "conv-nmf": lambda: ConvNMF(parts=3, steps=3),
        "s-d": lambda: SD(starts=1, steps=3),
        "nes": lambda: NES(rounds=1, batch=8),
        "nes-supervised": lambda: NES(supervised=True, batch=8),
        "regression": lambda: Regression(batch=8),
    }.items():
        monkeypatch.setitem(BASELINES, name, short)
    torch.manual_seed(0)
    sizes = {"widths": (8, 12), "blocks": (1, 1), "embedding": 16, "classes": 10}
    network = UNet(UNetConfig(**sizes))
    ctx = Context(ResultCache(tmp_path / "cache"), size=1e-6, data="sample", miniature=True)
    glow = Glow(GlowConfig(size=28, depth=1, width=4, conditioned=True, mean=0.13, std=0.31))
    for name in (
        "mnist", "mnist-classes", "church", "bedroom",
    ):  # fmt: skip
        ctx.priors[name] = DenoiserPrior(
            Denoiser(network, 0.13, 0.31), (1, 28, 28), 0.005, 10.0, name=name
        )
    colour = UNet(UNetConfig(channels=3, **sizes))
    ctx.priors["cifar10"] = DenoiserPrior(
        Denoiser(colour, 0.47, 0.25), (3, 32, 32), 0.005, 10.0, name="cifar10"
    )
    flow = Glow(GlowConfig(3, size=32, depth=1, width=4, conditioned=True, mean=0.47, std=0.25))
    ctx.priors["cifar10-glow"] = LikelihoodPrior(flow, (3, 32, 32), 0.01, 1.0, name="cifar10-glow")
    for name in ("mnist-glow", "church-glow", "bedroom-glow"):
        ctx.priors[name] = LikelihoodPrior(glow, (1, 28, 28), 0.01, 1.0, name=name)
    return ctx


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_made_in_miniature(name, ctx, tmp_path):
    section = TABLES[name].run(ctx)
    assert section.name == name and (section.tables or section.pictures)
    for _, data in section.pictures:
        assert data.startswith(b"\x89PNG")
    if name.startswith("mnist"):
        rows = {row[0]: row for row in section.tables[0].rows}
        assert {
            "Average",
            "NMF",
            "effort fast",
            "effort balanced (recommended)",
            "BASIS, the paper's settings",
        } <= set(rows)
        assert rows["Average"][4] == ("14.9" if name == "mnist-agnostic" else "14.8")
        # Made again from the cache: the same figures, and nothing is computed.
        files = set((tmp_path / "cache").iterdir())
        again = TABLES[name].run(ctx)
        assert again.tables == section.tables and set((tmp_path / "cache").iterdir()) == files
    if name.endswith("-draws"):
        rows = {row[0]: row for row in section.tables[0].rows}
        assert {"the photos themselves", "Average"} < set(rows)
        drawn = rows["ours, one draw of each"]
        assert (
            drawn[-1] == f"FID {'22.1, ratio 0.79' if 'agnostic' in name else '29.9, ratio 0.76'}"
        )
    elif name.startswith("cifar"):
        draws = {row[0]: float(row[1].split()[0]) for row in section.tables[1].rows}
        assert draws["the nearest of 8 to the truth"] > draws["one draw"] > 0
    path = write_report([section], tmp_path / "report.html", command="basis reproduce")
    text = path.read_text(encoding="utf-8")
    assert section.title.replace("<", "&lt;") in text
    assert text.count("data:image/png") == len(section.pictures)


def test_a_classifier_of_fewer_scenes_is_another_one(ctx, tmp_path, monkeypatch):
    class Corners:
        def extract(self, images):
            return SimpleNamespace(features=1 + images[:, 0, 10:14, 10:14].flatten(1))

    monkeypatch.setattr(ctx, "feature_network", lambda name: Corners())
    first = scene_classifier(ctx)
    ctx.size = 0.2
    more = scene_classifier(ctx)
    assert first is not None and more is not None
    assert not torch.equal(first.direction, more.direction)
    assert len(list((tmp_path / "cache").glob("scene-classifier-*"))) == 2


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    ctx = Context(ResultCache(tmp_path), data="sample")
    monkeypatch.setattr(ctx, "prior", lambda name: None)
    for name in ("histogram", "ablation", "gradients", "likelihoods", "states", "repeats"):
        assert "no prior called" in " ".join(TABLES[name].run(ctx).text)


def test_tables_without_the_optional_packages(ctx, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "sklearn.decomposition", None)
    assert "basis-separation[plots]" in " ".join(TABLES["histogram"].run(ctx).text)
    gradients = TABLES["gradients"].run(ctx)
    assert gradients.tables and "basis-separation[plots]" in " ".join(gradients.text)
    rows = {row[0]: row for row in TABLES["mnist-split"].run(ctx).tables[0].rows}
    assert "basis-separation[baselines]" in rows["NMF"][1] and "±" in rows["NES"][1]


def test_similarity_is_a_number_where_it_can_be_computed(monkeypatch):
    x = torch.rand(2, 2, 1, 28, 28)
    assert similarity(x, x.flip(1)) == "1.000"
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.image", None)
    assert similarity(x, x) == "not installed"


def test_sizes():
    def compute(ctx, section):
        section.text.append(f"{ctx.count(1000)}")

    def compute_more(ctx, section):
        section.text.append(f"{ctx.count(1000, most=5000)}")

    table = TableDefinition("x", "X", compute, sizes={"quick": 0.1, "full": 1.0})
    ctx = Context(ResultCache("nowhere"), size=0.5)
    assert [table.run(ctx, s).text for s in ("quick", "full", "0.2", 0.3, None)] == [
        ["100"], ["1000"], ["200"], ["300"], ["500"],
    ]  # fmt: skip
    for wrong in ("huge", "0", 2, "nan"):
        with pytest.raises(BasisError, match="a size is quick, full"):
            table.run(ctx, wrong)
    larger = TableDefinition("x", "X", compute_more)
    assert [larger.run(ctx, s).text for s in ("full", "whole", 3)] == [["1000"], ["5000"], ["3000"]]
    # What cannot be measured on more is as in the full version.
    assert TableDefinition("x", "X", compute).run(ctx, "whole").text == ["1000"]
    with pytest.raises(BasisError, match="above 0 and up to 10, not 11"):
        larger.run(ctx, 11)


def test_every_file_holds_the_table_of_its_name():
    assert sorted(TABLES) == sorted(n.replace("_", "-") for n in module_names("reproduce/tables"))


TOY = '''
"""A toy: one number."""

from basis.lab import CachedResult, Table, TableDefinition


def compute(ctx, section):
    result = ctx.cached("toy", {"n": 3}, lambda: CachedResult(values={"n": 3 * 14}), ("metrics",))
    section.tables.append(Table(("n",), [(str(result.values["n"]),)]))


TABLE = TableDefinition("toy-number", "A toy", compute)
'''


def test_a_new_table_is_one_new_file(tmp_path):
    copy = tmp_path / "basis"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    toy = copy / "reproduce" / "tables" / "toy_number.py"
    toy.write_text(TOY)

    def command(*words):
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "basis", "reproduce", *words],
            env=environment, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "toy-number       A toy: one number\n" in command("--help")
    assert "A toy\n  n\n  42\n" in command("toy-number", "--data", "sample", "--out", "o")
    # The table's own file is part of what a result is kept for.
    toy.write_text(TOY.replace("3 * 14", "3 * 15"))
    assert "\n  45\n" in command("toy-number", "--data", "sample", "--out", "o")


# The report and the command


def test_the_report_is_whole_and_escapes_what_it_shows(tmp_path):
    section = Section("x", "a < b", ["1 < 2"], [Table(("<h>",), [("<script>",)])])
    path = write_report([section], tmp_path / "r.html", command="basis <x>")
    text = path.read_text(encoding="utf-8")
    assert "<script>" not in text and "a &lt; b" in text and "basis &lt;x&gt;" in text
    assert text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    assert "http" not in text.replace("http-equiv", "")


def test_bad_arguments_are_refused(capsys, tmp_path):
    for size in ("huge", "0", "20"):
        assert main(["reproduce", "states", "--size", size, "--out", str(tmp_path / "o")]) == 2
        assert "a size is quick, full" in capsys.readouterr().err
    assert main(["reproduce", "states", "--data", "cats", "--out", str(tmp_path / "o")]) == 2
    with pytest.raises(SystemExit):
        main(["reproduce", "staets", "--out", str(tmp_path / "o")])
    assert not (tmp_path / "o").exists()


def test_the_command_makes_a_page(tmp_path, capsys):
    out = tmp_path / "o"
    words = ["reproduce", "gradients", "states", "--data", "sample", "--size", "0.001"]
    assert main([*words, "--out", str(out)]) == 0
    assert "report:" in capsys.readouterr().out
    assert (out / "report.html").read_text(encoding="utf-8").count("data:image/png") == 2
    assert "| σ | mnist | mnist-glow |" in (out / "tables.md").read_text(encoding="utf-8")


def test_help_loads_no_torch():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "basis", "reproduce", "--help"],
        capture_output=True, text=True, check=True, encoding="utf-8",
    )  # fmt: skip
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"torch", "numpy", "matplotlib", "jinja2"}
    assert all(name in done.stdout for name in TABLES)
