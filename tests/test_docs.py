"""Every example in the README, the docs and CONTRIBUTING is run as it stands."""

import re
import shlex
import shutil
import sys
import types
from pathlib import Path

import pytest
import torch

from basis import metrics
from basis.cli import main

DOCS = Path(__file__).parent.parent / "docs"
ROOT = DOCS.parent
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
RAW = "https://raw.githubusercontent.com/basis-separation/basis-separation/main/"
"""Where pictures of the README are shown from, so that a package index shows them too."""
PAGES = sorted((DOCS / "doors").glob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prepare(folder: Path) -> None:
    """What the reader of the pages is taken to have."""
    diffusers = pytest.importorskip("diffusers")
    pytest.importorskip("azula")
    from test_adapters import CONFIG, GLOW, published_ncsn, tiny_unet

    scheduler = diffusers.DDPMScheduler(clip_sample=False)
    diffusers.DDPMPipeline(tiny_unet(sample_size=28), scheduler).save_pretrained(
        folder / "pipeline"
    )
    published_ncsn(folder / "checkpoint.pth")
    (folder / "config.yml").write_text(
        CONFIG.replace("image_size: 8", "image_size: 28").replace("0.02", "0.01")
    )
    for level in ("logs0point01", "logs1point0"):
        (folder / level).mkdir()
        for suffix in ("index", "data-00000-of-00001"):
            place = folder / level / f"model_best_loss.ckpt.{suffix}"
            shutil.copyfile(GLOW / f"affine.ckpt.{suffix}", place)


@pytest.mark.parametrize(
    "page",
    [*PAGES, *TUTORIALS, *sorted(DOCS.glob("*.md")), README],
    ids=lambda page: f"{page.parent.name}-{page.stem}",
)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    if page in PAGES and page.stem != "README":
        assert blocks, "a door's page has an example"
        prepare(tmp_path)
    if page in TUTORIALS and page.stem != "index":
        assert blocks, "a tutorial has an example"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BASIS_DATA", str(tmp_path / "data"))
    names: dict[str, object] = {}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(page), "exec"), names)
            continue
        for line in text.strip().splitlines():
            words = shlex.split(line)
            assert words[0] == "basis"
            code = main(words[1:])
            # The pipeline here is untrained: the check runs, and says so.
            untrained = words[1:3] == ["check", "mine"]
            assert code == (2 if untrained else 0), capsys.readouterr().err


@pytest.mark.parametrize(
    "page",
    [*DOCS.rglob("*.md"), *ROOT.glob("*.md")],
    ids=lambda page: f"{page.parent.name}-{page.name}",
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(RAW):
            assert (ROOT / target.removeprefix(RAW)).is_file(), f"{page.name} shows {target}"
        elif not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pictures_of_the_readme_show_on_a_package_index():
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert pictures and all(target.startswith(RAW) for target in pictures)


@pytest.fixture
def contributed(monkeypatch):
    """The files of CONTRIBUTING's examples by name, as modules of the package."""
    modules = {}
    for _, text in BLOCK.findall(CONTRIBUTING.read_text(encoding="utf-8")):
        path = re.match(r"# src/(basis/\S+)\.py\n", text)
        assert path, "an example begins with its file's name"
        assert all(len(line) <= 100 for line in text.splitlines())
        name = path[1].replace("/", ".")
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(text, name, "exec"), vars(module))
        modules[name.rpartition(".")[2]] = module
    return modules


def test_the_sampler_of_contributing_separates(contributed, toy_prior):
    from basis._separate import separate

    truth = toy_prior.means[torch.tensor([[1, 2], [3, 1]])].reshape(2, 2, *toy_prior.shape)
    sampler = contributed["ddnm"].Ddnm()
    assert sampler.name == "ddnm"
    result = separate(truth.sum(dim=1), toy_prior, sampler=sampler, samples=8, choose="energy")
    assert result.residual.max() < 1e-3
    assert metrics.psnr(result.sources, truth, permute=True).min() > 20


@pytest.mark.parametrize("size", [(9,), (4, 5)])
def test_the_mixing_of_contributing_has_its_adjoint(contributed, size):
    mixing = contributed["differences"].Differences(2)
    x = torch.randn(3, 2, 1, *size, dtype=torch.float64)
    m = torch.randn(3, *mixing.observed_shape((1, *size)), dtype=torch.float64)
    across = (mixing(x) * m).sum(), (x * mixing.adjoint(m)).sum()
    assert across[0].item() == pytest.approx(across[1].item())
    back = mixing.project(x, m)
    assert torch.allclose(mixing(back), m, atol=1e-6)


def test_the_family_of_contributing_can_be_built_and_trained(contributed):
    family = contributed["mlp_family"].FAMILY
    config = family.make_sizes({"shape": [2, 5], "width": 32})
    network = contributed["_mlp"].MLP(config)
    clean = torch.rand(64, 2, 5)
    sigma = torch.full((64,), 0.3)
    noisy = clean + 0.3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    errors = []
    for _ in range(30):
        error = (network(noisy, sigma) - clean).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    assert errors[-1] < 0.9 * errors[0]
    assert torch.allclose(network(clean, 1e-6 * sigma), clean, atol=1e-4)


def test_the_table_of_contributing_is_defined(contributed):
    table = contributed["four_digits"].TABLE
    assert table.name == "four-digits" and table.share("full") == 1.0
