"""The documentation: examples run, commands parse, links and pictures exist."""

import json
import re
import shlex
import shutil
import sys
import types
from pathlib import Path

import pytest
import torch

import basis
from basis.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
GENERATED = {"results.md"}
PAGES = [README, *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("tutorials/*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:    )?(basis [a-z][^\n]*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def blocks(page: Path, kind: str) -> list[str]:
    return [text for k, text in BLOCK.findall(page.read_text(encoding="utf-8")) if k == kind]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.stem)
def test_examples_run(page, tmp_path, monkeypatch):
    if page.stem == "models":
        prepare_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), names)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=lambda p: p.stem)
def test_commands_run(page, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line)
        assert words[0] == "basis"
        assert main(words[1:]) == 0, capsys.readouterr().err


def prepare_models(folder: Path) -> None:
    """The models of docs/models.md."""
    diffusers = pytest.importorskip("diffusers")
    pytest.importorskip("azula")
    from basis.nn import NCSN, NCSNConfig

    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=28,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        add_attention=False,
    )
    scheduler = diffusers.DDPMScheduler(clip_sample=False)
    diffusers.DDPMPipeline(unet, scheduler).save_pretrained(folder / "pipeline")
    ncsn = NCSN(NCSNConfig(width=8))
    torch.save([torch.nn.DataParallel(ncsn).state_dict()], folder / "checkpoint.pth")
    config = (
        "data:\n  channels: 1\n  image_size: 28\nmodel:\n  sigma_begin: 1.0\n  sigma_end: 0.01\n"
    )
    (folder / "config.yml").write_text(config)
    for level in ("logs0point01", "logs1point0"):
        (folder / level).mkdir()
        for suffix in ("index", "data-00000-of-00001"):
            path = folder / level / f"model_best_loss.ckpt.{suffix}"
            shutil.copyfile(ROOT / "tests" / "fixtures" / "glow" / f"affine.ckpt.{suffix}", path)


def test_links_and_pictures_exist():
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    targets = [(page, t) for page in pages for t in LINK.findall(page.read_text(encoding="utf-8"))]
    assert len(targets) > 50
    missing = [
        f"{page.name}: {target}"
        for page, target in targets
        if not target.startswith("http") and not (page.parent / target).exists()
    ]
    assert missing == []


def test_the_figures_of_the_readme_are_among_the_results():
    """A row has the rounded figures of a measurement of as many mixtures."""
    rows = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))["rows"]

    def numbers(text: str) -> list[str]:
        return [f"{float(n):.2f}" for n in re.findall(r"\d+\.?\d*", text)]

    text = README.read_text(encoding="utf-8").split("## Results")[1].split("\n\n")[1]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert len(table) >= 5
    for task, trivial, _, ours, _, count in table:
        assert any(
            numbers(row["ours"]) == numbers(ours)
            and numbers(row["trivial"])[0] == numbers(trivial)[0]
            and f"{row['count']:,}" == count
            for row in rows
            if "trivial" in row
        ), task


def test_every_picture_is_used():
    text = "".join(page.read_text(encoding="utf-8") for page in [README, *DOCS.rglob("*.md")])
    assert [path.name for path in DOCS.rglob("*.png") if path.name not in text] == []


def test_the_documentation_is_short():
    pages = [README, CONTRIBUTING, *DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb")]
    counted = [
        page for page in pages if page.parent.name != "reference" and page.name not in GENERATED
    ]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in counted) <= 14_000


@pytest.fixture
def contributed(monkeypatch):
    """Loads a file of CONTRIBUTING's examples as a module of the package, by its name."""

    def load(name: str) -> types.ModuleType:
        [text] = [
            text
            for text in blocks(CONTRIBUTING, "python")
            if text.startswith(f"# src/{name.replace('.', '/')}.py\n")
        ]
        assert all(len(line) <= 100 for line in text.splitlines())
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, name, "exec"), vars(module))
        return module

    return load


def test_the_contributed_sampler_separates(contributed, toy_prior):
    truth = toy_prior.means[torch.tensor([[1, 2], [3, 1]])].reshape(2, 2, *toy_prior.shape)
    sampler = contributed("basis.samplers.ddnm").Ddnm(steps=30)
    result = basis.separate(truth.sum(dim=1), toy_prior, method=sampler)
    assert result.residual.max() < 1e-3


@pytest.mark.parametrize("size", [(9,), (4, 5)])
def test_the_contributed_mixing_has_its_adjoint(contributed, size):
    mixing = contributed("basis.mixings.differences").Differences(2)
    x = torch.randn(3, 2, 1, *size, dtype=torch.float64)
    m = torch.randn(3, *mixing.observed_shape((1, *size)), dtype=torch.float64)
    products = (mixing(x) * m).sum(), (x * mixing.adjoint(m)).sum()
    assert products[0].item() == pytest.approx(products[1].item())


def test_the_contributed_network_learns(contributed):
    module = contributed("basis.nn.mlp")
    assert module.KIND.module is module.MLP
    network = module.MLP(module.MLPConfig(shape=(2, 5), width=32))
    clean = torch.rand(64, 2, 5)
    sigma = torch.full((64,), 0.3)
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        loss = (network(noisy, sigma) - clean).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


def test_the_contributed_reader_reads(contributed, tmp_path):
    from basis.signals.observation import READERS

    contributed("basis.signals.pcm")
    try:
        path = tmp_path / "a.pcm"
        path.write_bytes(torch.tensor([0, 16384, -32768], dtype=torch.int16).numpy().tobytes())
        found = basis.read(path, rate=16000)
        assert found.values.tolist() == [[0, 0.5, -1]] and found.rate == 16000
    finally:
        READERS.pop(".pcm")


def test_the_contributed_table_is_computed(contributed, monkeypatch, tmp_path):
    from basis.lab.cache import ResultCache
    from basis.lab.context import Context
    from basis.lab.report import Section

    section = Section("four-digits", "Four digits in one picture")
    ctx = Context(ResultCache(tmp_path), size=0.01, data="sample", miniature=True)
    contributed("basis.lab.tables.four_digits").four_digits(ctx, section)
    assert [row[0] for row in section.tables[0].rows] == ["fast", "best"]


def commands() -> list[str]:
    """Every command shown in the documentation or run by make."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*PAGES, CONTRIBUTING])
    makefile = re.findall(r"\$\(BIN\)/(basis .*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    return sorted({*COMMAND.findall(text), *makefile})


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line, monkeypatch):
    monkeypatch.setattr("basis.cli.guarded", lambda args, run: 0)
    assert main(shlex.split(line, comments=True)[1:]) == 0
