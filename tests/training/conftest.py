import pytest
import torch

from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.training.config import TrainConfig
from basis.training.trainer import Trainer


@pytest.fixture(scope="session")
def blobs():
    """A function that makes 8x8 pictures of bright squares."""

    def make(count=64):
        g = torch.Generator().manual_seed(0)
        images = torch.zeros(count, 1, 8, 8)
        corner = torch.randint(4, (count, 2), generator=g)
        for image, (i, j) in zip(images, corner, strict=True):
            image[0, i : i + 4, j : j + 4] = 255
        return images.to(torch.uint8)

    return make


@pytest.fixture(scope="session")
def tiny():
    """Settings of a run that takes a quarter of a second."""
    network = {"widths": (12,), "blocks": (1,), "attention": 0, "embedding": 16}
    run = {"images": 64, "batch_size": 8, "warmup": 16, "held_out": 8}
    return network | run | {"variance_images": 0, "energy_pairs": 0, "progress": False}


@pytest.fixture
def trainer(blobs):
    """A function that makes a trainer of 10 steps of 8 images."""

    def make(folder, dropout=0.1, **settings):
        config = TrainConfig(**{"images": 80, "batch_size": 8, "warmup": 16, "seed": 3, **settings})
        torch.manual_seed(config.seed)
        network = UNet(UNetConfig(widths=(12, 24), blocks=(1, 1), embedding=16, dropout=dropout))
        denoiser = Denoiser(network, 0.25, 0.43)
        return Trainer(denoiser, blobs(), folder, config, held_out=blobs(8))

    return make
