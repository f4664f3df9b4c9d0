import pytest
import torch

from basis.files import data_root
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.denoiser import DenoiserPrior
from basis.priors.gaussian import GaussianMixture


@pytest.fixture(autouse=True)
def _no_personal_data(monkeypatch, tmp_path_factory, request):
    """Tests see an empty data root unless they ask for the full data by name."""
    if "full_data" not in request.fixturenames:
        monkeypatch.setenv("BASIS_DATA", str(tmp_path_factory.getbasetemp() / "no-data"))


@pytest.fixture
def full_data():
    """The data root, where it holds the whole of MNIST."""
    root = data_root()
    if not (root / "MNIST").is_dir():
        pytest.skip(f"no MNIST under the data root {root} (basis lab data download mnist)")
    return root


@pytest.fixture
def toy_prior():
    """Four bright or dark 4x4 images, blurred by a small variance."""
    means = torch.zeros(4, 1, 4, 4, dtype=torch.float64)
    means[1, :, :, :2] = 1
    means[2, :, :2] = 1
    means[3, :, 1:3, 1:3] = 1
    return GaussianMixture(means, torch.full((4,), 1e-3))


@pytest.fixture
def tiny_prior():
    """An untrained network prior: quick, deterministic and good for plumbing."""
    torch.manual_seed(0)
    network = UNet(UNetConfig(widths=(8, 16), blocks=(1, 1), embedding=16))
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.05 * torch.randn(p.shape))
    return DenoiserPrior(Denoiser(network, 0.13, 0.31), (1, 8, 8), 0.005, 10.0, name="tiny")
