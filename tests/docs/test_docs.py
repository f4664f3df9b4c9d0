"""The documentation: examples run, commands parse, links and pictures exist."""

import re
import shlex
import shutil
import sys
import types
from pathlib import Path

import pytest
import torch

import basis

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
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line)
        assert words[0] == "basis"
        assert basis.cli.main(words[1:]) == 0, capsys.readouterr().err


def prepare_models(folder: Path) -> None:
    """The models of docs/models.md."""
    diffusers = pytest.importorskip("diffusers")
    pytest.importorskip("azula")
    from test_adapters import CONFIG, GLOW, published_ncsn, tiny_unet

    scheduler = diffusers.DDPMScheduler(clip_sample=False)
    pipeline = diffusers.DDPMPipeline(tiny_unet(sample_size=28), scheduler)
    pipeline.save_pretrained(folder / "pipeline")
    published_ncsn(folder / "checkpoint.pth")
    config = CONFIG.replace("image_size: 8", "image_size: 28").replace("0.02", "0.01")
    (folder / "config.yml").write_text(config)
    for level in ("logs0point01", "logs1point0"):
        (folder / level).mkdir()
        for suffix in ("index", "data-00000-of-00001"):
            path = folder / level / f"model_best_loss.ckpt.{suffix}"
            shutil.copyfile(GLOW / f"affine.ckpt.{suffix}", path)


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
    """The files of CONTRIBUTING's examples as modules, by their last name."""
    modules = {}
    for text in blocks(CONTRIBUTING, "python"):
        path = re.match(r"# src/(basis/\S+)\.py\n", text)
        assert path and all(len(line) <= 100 for line in text.splitlines())
        name = path[1].replace("/", ".")
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, name, "exec"), vars(module))
        modules[name.rpartition(".")[2]] = module
    return modules


def test_the_contributed_sampler_separates(contributed, toy_prior):
    truth = toy_prior.means[torch.tensor([[1, 2], [3, 1]])].reshape(2, 2, *toy_prior.shape)
    sampler = contributed["ddnm"].Ddnm(steps=30)
    result = basis.separate(truth.sum(dim=1), toy_prior, method=sampler)
    assert result.residual.max() < 1e-3


@pytest.mark.parametrize("size", [(9,), (4, 5)])
def test_the_contributed_mixing_has_its_adjoint(contributed, size):
    mixing = contributed["differences"].Differences(2)
    x = torch.randn(3, 2, 1, *size, dtype=torch.float64)
    m = torch.randn(3, *mixing.observed_shape((1, *size)), dtype=torch.float64)
    products = (mixing(x) * m).sum(), (x * mixing.adjoint(m)).sum()
    assert products[0].item() == pytest.approx(products[1].item())


def test_the_contributed_network_learns(contributed):
    network = contributed["mlp"].MLP(contributed["mlp"].MLPConfig(shape=(2, 5), width=32))
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
