import numpy as np
import pytest
import torch
from PIL import Image

from basis._check import measure_energies
from basis.cli import main
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.denoiser import DenoiserPrior


def make_prior(folder, seed=0, channels=1):
    """A folder with an untrained prior of 8x8 pictures and typical energies."""
    torch.manual_seed(seed)
    network = UNet(UNetConfig(channels=channels, widths=(8, 16), blocks=(1, 1), embedding=16))
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.05 * torch.randn(p.shape))
    shape = (channels, 8, 8)
    prior = DenoiserPrior(
        Denoiser(network, 0.13, 0.31), shape, 0.005, 10.0, value_range=(0.0, 1.0), name=folder.name
    )
    energies = measure_energies(prior, torch.rand(8, *shape), pairs=0)
    return prior.save(folder, energies=energies.to_dict())


@pytest.fixture(scope="session")
def priors(tmp_path_factory):
    """Folders of tiny priors: two of grey pictures and one of color pictures."""
    root = tmp_path_factory.mktemp("root") / "priors"
    made = {"tiny": (0, 1), "weaker": (1, 1), "color": (2, 3)}
    return {name: make_prior(root / name, *about) for name, about in made.items()}


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Files to separate: grey and color pictures, arrays, a mask, a mixture file."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    shapes = {"a": (8, 8), "b": (8, 8), "large": (12, 10), "rgb": (8, 8, 3), "paper": (16, 16, 3)}
    for name, shape in shapes.items():
        Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(folder / f"{name}.png")
    Image.fromarray(np.repeat([[255] * 4 + [0] * 4], 8, 0).astype(np.uint8)).save(
        folder / "mask.png"
    )
    np.save(folder / "many.npy", rng.random((5, 1, 8, 8), dtype=np.float32))
    (folder / "all").mkdir()
    for i in range(3):
        pixels = rng.integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "all" / f"p{i}.png")
    words = ["mix", folder / "a.png", folder / "b.png", "--alphas", 0.7, 0.3]
    assert main([str(w) for w in [*words, "--out", folder / "mixture.npz"]]) == 0
    return folder


def run(*words):
    """The exit code of a command."""
    try:
        return main([str(word) for word in words])
    except SystemExit as stop:
        return stop.code


def fails(capsys, *words):
    """The error of a command that must fail: exit code 2, one line."""
    capsys.readouterr()
    code = run(*words)
    captured = capsys.readouterr()
    error = captured.err.strip().splitlines()
    assert code == 2 and len(error) == 1, (code, captured.err)
    return error[0]
