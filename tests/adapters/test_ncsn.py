"""Published NCSN checkpoints as priors."""

import pickle

import pytest
import torch
from torch import nn

from basis.adapters.ncsn import from_ncsn
from basis.errors import BasisError
from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.priors.prior import Prior


class Bomb:
    """A pickle that would leave a file behind if it were executed."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def published_ncsn(path, **entries):
    """A checkpoint as the authors' trainer writes it: DataParallel state, optimizer state."""
    torch.manual_seed(0)
    network = NCSN(NCSNConfig(channels=1, size=8, width=8, levels=10))
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.rand(1, 1, 8, 8), torch.tensor([3])).sum().backward()
    optimizer.step()
    state = nn.DataParallel(network).state_dict()
    torch.save([state | entries, optimizer.state_dict()], path)
    return network


CONFIG = """\
!!python/object:argparse.Namespace
data: !!python/object:argparse.Namespace
  channels: 1
  dataset: MNIST
  image_size: 8
  logit_transform: false
model: !!python/object:argparse.Namespace
  ngf: 8
  num_classes: 10
  sigma_begin: 1.0
  sigma_end: 0.02
"""


def test_published_ncsn_checkpoints_become_priors(tmp_path):
    network = published_ncsn(tmp_path / "checkpoint.pth")
    (tmp_path / "config.yml").write_text(CONFIG)
    direct = from_ncsn(tmp_path / "checkpoint.pth", tmp_path / "config.yml")
    prior = Prior.from_pretrained(direct.save(tmp_path / "ncsn"))
    assert (prior.shape, prior.sigma_min, prior.sigma_max) == ((1, 8, 8), 0.02, 1.0)
    levels = NCSNDenoiser(prior.module.network).levels
    x = torch.rand(4, 1, 8, 8)
    for index in (0, 4, 9):
        with torch.no_grad():
            score = network(x, torch.full((4,), index))
        ours = prior.score(x, levels[index].item())
        assert torch.allclose(ours, score, atol=1e-5 * max(1, 1 / levels[index].item() ** 2))
    assert torch.allclose(direct.score(x, 0.1), prior.score(x, 0.1), atol=1e-4)


def test_bad_ncsn_checkpoints_are_refused(tmp_path):
    path = tmp_path / "checkpoint.pth"
    published_ncsn(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BasisError, match=r"checkpoint\.pth"):
        from_ncsn(path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(BasisError, match="damaged"):
        from_ncsn(path)
    path.write_bytes(pickle.dumps([{"a": Bomb(tmp_path / "boom")}]))
    with pytest.raises(BasisError, match="refused"):
        from_ncsn(path)
    torch.save([{"a": Bomb(tmp_path / "boom")}, {}], path)
    with pytest.raises(BasisError, match="refused"):
        from_ncsn(path)
    assert not (tmp_path / "boom").exists()
    torch.save([{"module.other": torch.zeros(3)}], path)
    with pytest.raises(BasisError, match="not a published NCSN"):
        from_ncsn(path)
    published_ncsn(path, **{"module.extra.weight": torch.zeros(2)})
    with pytest.raises(BasisError, match="does not fit"):
        from_ncsn(path)
    published_ncsn(path)
    (tmp_path / "config.yml").write_text("data:\n  image_size: 8\n  logit_transform: true\n")
    with pytest.raises(BasisError, match="logit"):
        from_ncsn(path, tmp_path / "config.yml")
