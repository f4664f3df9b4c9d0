"""Variance networks: sizes for any signal, and their entry on cards."""

import json
import shutil

import pytest
import torch

from basis.errors import BasisError
from basis.nn.kinds import find_kind
from basis.nn.variance import VarianceNetwork, variance_config
from basis.priors.likelihood import LikelihoodPrior
from basis.store.folder import update_card
from basis.store.loading import load_prior


def test_sizes_fit_any_signal():
    for shape in ((1, 28, 28), (3, 32, 32), (2, 6, 10), (1, 7, 7), (1, 12), (1, 4, 4, 4)):
        network = VarianceNetwork(variance_config(shape), 0.5, 0.2)
        network.check_shape(shape)
        variance = network(torch.rand(2, *shape), torch.tensor([0.1, 1.0]))
        # Untrained it is that of the Gaussian of this std.
        assert variance.shape == (2, *shape)
        assert variance[0].mean().item() == pytest.approx(0.008, rel=1e-4)


def test_cards_of_others_are_checked(tmp_path):
    model = find_kind("glow").new_module((1, 8, 8), 0.5, 0.2, {"depth": 1, "width": 4})
    model.head = VarianceNetwork(variance_config((1, 8, 8)), 0.5, 0.2)
    run = LikelihoodPrior(model, (1, 8, 8), 0.01, 1.0).save(tmp_path / "run")
    assert isinstance(load_prior(run).module.head, VarianceNetwork)
    good = json.loads((run / "card.json").read_text())["architecture"]
    network = good["variance"]["network"]
    wrong = [
        (True, "variance as an object"),
        ({"network": network}, "mean as a number"),
        (good["variance"] | {"std": 0}, "std as a positive number"),
        (good["variance"] | {"network": network | {"width": 3}}, "'width'"),
        (good["variance"] | {"network": network | {"widths": [24, 60000]}}, "more weights"),
        (good["variance"] | {"network": network | {"widths": [24, 24]}}, "does not fit"),
        (good["variance"] | {"network": network | {"fold": 3}}, "does not fit"),
    ]
    for number, (entry, line) in enumerate(wrong):
        folder = tmp_path / str(number)
        shutil.copytree(run, folder)
        update_card(folder, architecture=good | {"variance": entry})
        with pytest.raises(BasisError, match=line) as caught:
            load_prior(folder)
        assert "\n" not in str(caught.value)
