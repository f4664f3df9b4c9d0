"""Every example in the pages about doors is run as it stands."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from basis.cli import main

DOCS = Path(__file__).parent.parent / "docs"
README = DOCS.parent / "README.md"
PAGES = sorted((DOCS / "doors").glob("*.md"))
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
    "page", [*PAGES, README], ids=lambda page: f"{page.parent.name}-{page.stem}"
)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    if page.stem != "README":
        assert blocks, "a door's page has an example"
        prepare(tmp_path)
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


@pytest.mark.parametrize("page", [*PAGES, *DOCS.glob("*.md"), README], ids=str)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
