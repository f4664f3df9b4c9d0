"""Another library's samplers in the bench: the same prior, mixtures and count of evaluations."""

import pytest
import torch

from basis._mix import Pairs
from basis.errors import BasisError
from basis.lab.peers import PEERS, measure_peer
from basis.priors.gaussian import GaussianMixture

pytest.importorskip("azula")


@pytest.fixture
def prior():
    """Two far modes, so that most mixtures have one explanation but for the order."""
    means = torch.tensor([0.1, 0.9]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    return GaussianMixture(means.clone(), torch.tensor([0.0004, 0.0004]), value_range=(0, 1))


@pytest.mark.parametrize("peer", PEERS)
def test_peers_separate_within_their_budget(prior, peer):
    generator = torch.Generator().manual_seed(0)
    low = 0.1 + 0.02 * torch.randn(8, 1, 1, 2, 2, generator=generator)
    high = 0.9 + 0.02 * torch.randn(8, 1, 1, 2, 2, generator=generator)
    pairs = Pairs(torch.cat([low, high], dim=1), torch.zeros(8, 2))
    row = measure_peer(peer, prior, pairs, evaluations=300)
    assert 280 <= row.most <= 300  # every pass counted, none beyond the budget
    assert row.count == len(row.each) == 8
    # Half of the mixture is at 8 dB. Only the first knows how values move together.
    assert row.median > (18 if peer == "mmps" else 7)
    again = measure_peer(peer, prior, pairs, evaluations=300)
    assert again.each == row.each


def test_peers_refuse_what_they_cannot_do(prior):
    pairs = Pairs(torch.rand(2, 2, 1, 2, 2), torch.zeros(2, 2))
    with pytest.raises(BasisError, match="needs at least 6"):
        measure_peer("mmps", prior, pairs, evaluations=4)
    with pytest.raises(BasisError, match="peers are mmps, tmpd, dps"):
        measure_peer("other", prior, pairs)
