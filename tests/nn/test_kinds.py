"""Kinds of networks: each builds what it describes."""

import dataclasses

import pytest
import torch

from basis.errors import BasisError
from basis.nn.kinds import KINDS, describe_module, find_kind

TRAINABLE = [kind.name for kind in KINDS.values() if kind.trainable]


@pytest.mark.parametrize("name", [n for n, kind in KINDS.items() if kind.config and n != "ladder"])
def test_every_kind_builds_what_it_describes(name):
    kind = KINDS[name]
    assert all(f.metadata["help"] for f in dataclasses.fields(kind.config))
    one = {"network": {}, "mean": 0.1, "std": 0.3}
    built = kind.build_module({**one, "above": one, "sigma": 0.3} if name == "experts" else one)
    found = describe_module(built)
    assert found["kind"] == name and describe_module(kind.build_module(found)) == found


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_new_module_fits_the_data(name):
    module = find_kind(name).new_module((1, 8, 8), 0.2, 0.3, {})
    x, sigma = torch.rand(2, 1, 8, 8), torch.tensor([0.1, 0.5])
    answer = module.log_prob(x, sigma) if name == "glow" else module(x, sigma)
    assert answer.isfinite().all()


def test_mistakes_are_named():
    with pytest.raises(BasisError, match="'wide'; its settings are channels, fold"):
        find_kind("unet").new_module((1, 8, 8), 0.0, 1.0, {"wide": 3})
    with pytest.raises(BasisError, match="multiples of 4"):
        find_kind("unet").new_module((1, 9, 8), 0.0, 1.0, {})
    with pytest.raises(BasisError, match="square images, not 8x6"):
        find_kind("glow").new_module((1, 8, 6), 0.0, 1.0, {})
    with pytest.raises(BasisError, match="'ladder'"):
        find_kind("ladder", trainable=True)
    with pytest.raises(BasisError, match="Identity"):
        describe_module(torch.nn.Identity())
