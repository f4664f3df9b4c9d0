"""The documentation: examples run, commands parse, links and pictures exist."""

import json
import re
import shlex
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis.cli import main
from basis.signals.datasets import load_images

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
GENERATED = {"results.md"}
PAGES = [README, *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("tutorials/*.md"))]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(
    r"^(?: *|\$ )((?:python -m |torchrun .* -m )?basis (?:-|[a-z]+(?![a-z:]))[^\n]*)$", re.MULTILINE
)
CODE = re.compile(r"^```.*?^```|^    .*?$", re.MULTILINE | re.DOTALL)
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
    user_files(tmp_path)
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
    """Every command shown in the documentation, indented or in a block, or run by make."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*PAGES, CONTRIBUTING])
    shown = COMMAND.findall("\n".join(CODE.findall(text)))
    makefile = re.findall(r"\$\(BIN\)/(basis .*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    return sorted({line[line.index("basis ") :] for line in [*shown, *makefile]})


@pytest.mark.parametrize("line", commands())
def test_commands_parse(line, monkeypatch):
    monkeypatch.setattr("basis.cli.guarded", lambda args, run: 0)
    words = shlex.split(line, comments=True)[1:]
    if words == ["--help"]:
        with pytest.raises(SystemExit, match="0"):
            main(words)
    else:
        assert main(words) == 0


LESS = {
    "separate": ["--method", "8", "--samples", "1", "--workers", "1"],
    "colorize": ["--samples", "1", "--method", "4"],
    "mix": [],
    "sample": ["--count", "2", "--steps", "2"],
    "priors": [],
}
"""The commands that are run, with flags that make them short."""


def is_run(line: str) -> bool:
    """Whether a command is run here: not with servers, models of others, or many samples."""
    absent = (
        "separate paper.png --grey --size 28 --invert",
        "--scheduler",
        "pipeline",
        ":church",
        "my-digits",
        "measure",
        "--each-class",
        "demo",
    )
    return line.split()[1] in LESS and not any(word in line for word in absent)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The files of a user, named as in the documentation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BASIS_DATA", str(tmp_path / "data"))
    user_files(tmp_path)
    return tmp_path


def user_files(folder: Path) -> None:
    """Digits, mixtures, a color photo larger than its prior, a mask, and folders of them."""
    digits = (255 * load_images("sample").floats(slice(2))[:, 0]).byte().numpy()
    photo = load_images("sample-photos").floats(slice(1))[0].permute(1, 2, 0)
    pictures = {
        "a": Image.fromarray(digits[0]),
        "b": Image.fromarray(digits[1]),
        "two": Image.fromarray(digits[0] // 2 + digits[1] // 2),
        "photo": Image.fromarray((255 * photo).byte().numpy()).resize((48, 40)),
        "mask": Image.new("L", (48, 40), 255),
    }
    pictures["mixture"] = pictures["paper"] = pictures["two"]
    pictures["mask"].paste(0, (10, 12, 20, 22))
    for name, picture in pictures.items():
        picture.save(folder / f"{name}.png")
    for name in ("mixtures", "photos"):
        (folder / name).mkdir()
        pictures["two" if name == "mixtures" else "a"].save(folder / name / "1.png")
    basis.mix(list(load_images("sample").floats(slice(2)))).save(folder / "mixture.npz")
    basis.Prior.from_pretrained("mnist").save(folder / "runs" / "photos")


@pytest.mark.parametrize("line", [line for line in commands() if is_run(line)])
def test_commands_of_the_tutorials_run(line, files, capsys):
    words = shlex.split(line, comments=True)[1:]
    assert main([*words, *LESS[words[0]]]) == 0, capsys.readouterr().err


def test_the_command_for_missing_pixels_keeps_the_known_ones(files):
    [line] = [line for line in commands() if "--mask" in line]
    assert main([*shlex.split(line)[1:], "--method", "12"]) == 0
    with np.load(files / "filled" / "sources.npz") as arrays:
        found = torch.from_numpy(arrays["sources"])[0, 0]
    photo = basis.read(files / "photo.png").values
    mask = basis.read(files / "mask.png").values[0] > 0
    assert found.shape == (3, 40, 48)
    assert (found - photo)[:, mask].abs().max() < 0.01
    assert (found - photo)[:, ~mask].abs().max() > 0.01


NUMBER = re.compile(r"\d[\d.,]*")


def transcript(page: Path) -> list[tuple[str, str]]:
    """The commands after a `$` on a page, and what they print."""
    shown = re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    parts = [part.split("\n", 1) for text in shown for part in text.split("$ ")[1:]]
    return [(command, output) for command, output in parts]


def test_the_first_hour_is_as_printed(files, capsys):
    """The user's file: two digits in dark ink, enlarged, in color, on white."""
    digits = load_images("sample").floats([2, 9])[:, 0]
    ink = Image.fromarray((255 * (1 - digits.sum(dim=0).clamp(0, 1))).byte().numpy())
    ink.resize((280, 280), Image.Resampling.BICUBIC).convert("RGB").save("paper.png")
    steps = transcript(DOCS / "start.md")
    assert [command.split()[0] for command, _ in steps[:3]] == ["git", "cd", "pip"]
    for command, printed in steps[3:]:
        main(shlex.split(command)[1:])
        done = capsys.readouterr()
        assert NUMBER.sub("N", done.out + done.err) == NUMBER.sub("N", printed), command
    names = {path.name for path in (files / "separated").iterdir()}
    text = (DOCS / "start.md").read_text(encoding="utf-8")
    assert names == set(re.findall(r"`((?:paper-|panel|sources|run)[\w-]*\.\w+)`", text))


@pytest.mark.parametrize("page", ["start.md", "concepts.md"])
def test_announced_runs_are_as_printed(page):
    """A run that takes long is announced with its tiles."""
    from basis._separate import _task
    from basis.priors.tiled import Tiled

    prior = Tiled(basis.Prior.from_pretrained("mnist"), 280, 280)
    task = _task(torch.zeros(1, 1, 280, 280), prior)
    assert f"\n{task}, about " in (DOCS / page).read_text(encoding="utf-8")
