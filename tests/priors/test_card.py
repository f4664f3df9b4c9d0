"""Cards: what they accept, and that they survive JSON."""

import json
import math

import pytest

from basis.errors import BasisError
from basis.priors.card import Card, Energies, quantiles

CARD = {
    "name": "mine",
    "architecture": {"kind": "unet", "network": {}, "mean": 0.1, "std": 0.25},
    "shape": [1, 8, 8],
    "sigma_min": 0.01,
    "sigma_max": 1.0,
    "sha256": "0",
    "errors": {"0.1": 0.2, "1": 0.05},
    "author": "me",
}


def test_a_card_survives_json_with_entries_that_are_not_known():
    card = Card.from_dict(CARD)
    assert (card.value_range, card.center, card.std) == ((0.0, 1.0), None, None)
    assert card.errors == {0.1: 0.2, 1.0: 0.05} and card.shape == (1, 8, 8)
    assert card.more == {"author": "me"}
    assert Card.from_dict(json.loads(json.dumps(card.to_dict()))) == card


def test_previous_names_of_entries_are_read():
    old = CARD | {"low": 0.0, "high": None, "spread": 0.4, "licence": "MIT"}
    card = Card.from_dict(old)
    assert (card.value_range, card.std, card.license) == ((0.0, math.inf), 0.4, "MIT")
    assert card.to_dict()["value_range"] == [0.0, None] and "spread" not in card.to_dict()


@pytest.mark.parametrize("given", [None, [None, None], [0, 2], [None, 1.0]])
def test_ranges_stay_as_they_are(given):
    card = Card.from_dict(CARD | {"value_range": given, "shape": [2, 64], "center": 3.0})
    entries = json.loads(json.dumps(card.to_dict()))
    assert Card.from_dict(entries) == card
    assert entries["value_range"] == (None if given == [None, None] else given)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"sigma_min": "low"}, "sigma_min must be a number"),
        ({"sigma_max": True}, "sigma_max must be a number"),
        ({"value_range": [0, "white"]}, "value_range must be"),
        ({"shape": [1, 0]}, "shape must be"),
        ({"shape": 8}, "shape must be"),
        ({"name": 3}, "name must be"),
        ({"architecture": "unet"}, "architecture must be an object"),
        ({"errors": {"much": 1}}, "errors must be"),
        ({"errors": {"0.1": -1}}, "positive"),
        ({"quality": "good"}, "quality must be a list"),
        ({"parameters": "many"}, "parameters must be a whole number"),
    ],
)
def test_ill_typed_cards_are_refused_in_one_line(entry, says):
    with pytest.raises(BasisError, match=says) as caught:
        Card.from_dict(CARD | entry, "my card")
    assert "\n" not in str(caught.value) and str(caught.value).startswith("my card")


def test_energies_between_their_quantiles_are_typical():
    energies = Energies((0.5,), 4, tuple(range(101)), tuple(range(101)))
    assert energies.share(50.0) == 1.0
    assert energies.share(25.0) == pytest.approx(0.5)
    assert 0 < energies.share(-20.0) < energies.share(0.0) < 0.02
    assert 0 < energies.share(150.0) < energies.share(100.0) < 0.02
    # Without separated sources, which are smoother than images, low energies are typical too.
    images = Energies((0.5,), 4, tuple(range(101)))
    assert images.share(-20.0) == 1.0 and images.share(75.0) == pytest.approx(0.25)
    assert Energies.from_dict(json.loads(json.dumps(images.to_dict()))) == images


def test_quantiles_keep_the_ends():
    assert quantiles([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    many = quantiles([float(i) for i in range(1001)])
    assert len(many) == 101 and many[0] == 0 and many[50] == 500 and many[-1] == 1000


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"levels": [0.5], "values": 4, "images": [2, 1]},
        {"levels": [0], "values": 4, "images": [1, 2]},
    ],
)
def test_energies_that_cannot_be_are_refused(entries):
    with pytest.raises(BasisError, match="my card"):
        Energies.from_dict(entries, "my card")
