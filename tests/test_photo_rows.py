"""Distances in tables of photos: in pieces, beside what needs no prior."""

from types import SimpleNamespace

import pytest
import torch

from basis.lab import feature_distance as feature_distance
from basis.lab.context import Context
from basis.lab.features import frechet_distance, gaussian_of
from basis.lab.photo_rows import PhotoRows
from basis.lab.result_cache import ResultCache
from basis.signals.datasets import load_images


class Colours:
    """Six numbers of every image: mean and deviation of its channels."""

    def __init__(self):
        self.seen = 0

    def extract(self, images):
        self.seen += len(images)
        x = images.float().div(255) if images.dtype == torch.uint8 else images
        features = torch.cat([x.mean(dim=(2, 3)), x.std(dim=(2, 3))], dim=1)
        return SimpleNamespace(features=features, probabilities=features.softmax(dim=1))


@pytest.fixture
def ctx(tmp_path, monkeypatch):
    monkeypatch.setattr(feature_distance, "_PIECE", 10)
    ctx = Context(ResultCache(tmp_path), data="sample")
    network = Colours()
    ctx._networks[feature_distance.NETWORK] = network
    monkeypatch.setattr(ctx, "object_key", lambda value: "colours")
    return ctx


@pytest.fixture
def photos():
    return load_images("sample-photos", "test").floats()


def test_pieces_give_the_distance_of_the_whole(ctx, photos):
    network = ctx.feature_network(feature_distance.NETWORK)
    given = photos[:42].unflatten(0, (21, 2)).flip(2)
    found = feature_distance.distances(ctx, "x", given, "sample-photos")
    whole = [network.extract(x).features for x in (given.flatten(0, 1), photos)]
    assert found.frechet == pytest.approx(frechet_distance(*map(gaussian_of, whole)), rel=1e-4)
    assert found.kernel_error > 0 and "±" in found.kernel_cell()


def test_what_was_stopped_goes_on_with_the_next_piece(ctx, photos, monkeypatch):
    network = ctx.feature_network(feature_distance.NETWORK)
    given = photos[:40].unflatten(0, (20, 2))
    extract = network.extract

    def stopped(images):
        if network.seen >= 20:
            raise KeyboardInterrupt
        return extract(images)

    monkeypatch.setattr(network, "extract", stopped)
    with pytest.raises(KeyboardInterrupt):
        feature_distance.distances(ctx, "x", given, "sample-photos")
    monkeypatch.setattr(network, "extract", extract)
    first = feature_distance.distances(ctx, "x", given, "sample-photos")
    assert network.seen == 40 + len(photos)
    assert feature_distance.distances(ctx, "x", given, "sample-photos") == first
    assert network.seen == 40 + len(photos)


def test_images_of_one_mixture_are_in_different_blocks(ctx, photos):
    given = torch.arange(20.0).view(20, 1, 1, 1, 1).expand(20, 2, 3, 4, 4)
    blocks = feature_distance._Features(ctx, Colours(), given, "x").blocks(10)
    for block in blocks:
        assert len(block[:, 0].unique()) == 10


def test_photos_are_at_no_kernel_distance_from_photos(ctx, photos, monkeypatch):
    # Other photos than those that are compared with: the first half and the second.
    few = lambda *a, **k: SimpleNamespace(images=photos[64:])  # noqa: E731
    monkeypatch.setattr(feature_distance, "load_images", few)
    found = feature_distance.distances(ctx, "x", photos[:64, None], "sample-photos")
    assert abs(found.kernel) < 3 * found.kernel_error
    dark = feature_distance.distances(ctx, "x", photos[:64, None] / 2, "sample-photos")
    assert dark.kernel > 10 * dark.kernel_error


def test_rows_are_beside_what_needs_no_prior(ctx, photos):
    truth = photos[:64].unflatten(0, (32, 2))
    plain = truth.mean(dim=1, keepdim=True).expand_as(truth)
    rows = PhotoRows(ctx, ("Average", plain), truth, "FID 28.0")
    gain = rows.add("between", (truth + plain) / 2)
    rows.add("few", plain[:8])
    rows.add_missing("none", 8)
    table = rows.table()
    found = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(row["method"], row["mixtures"]) for row in found] == [
        ("the photos themselves", "32"), ("Average", "32"), ("between", "32"),
        ("the photos themselves", "8"), ("Average", "8"), ("few", "8"), ("none", ""),
    ]  # fmt: skip
    assert [found[i]["of the way"] for i in (0, 1, 4, 5)] == ["100%", "0%", "0%", "0%"]
    assert [found[i]["ratio"] for i in (1, 4, 5)] == ["1.00"] * 3
    assert 0 < float(found[2]["ratio"]) < 1 and found[2]["of the way"] not in ("0%", "100%")
    assert [row["paper"] for row in found] == ["", "FID 28.0", "", "", "", "", ""]
    # Half the error is 6 dB less, of every mixture: the paired error is none.
    assert torch.allclose(gain, torch.full((32,), 6.0206), atol=1e-3)
    assert found[2]["gain, dB"] == "6.02 ± 0.00" and found[5]["gain, dB"] == "0.00 ± 0.00"


def test_a_network_that_is_not_installed_is_said(ctx, photos):
    ctx._networks[feature_distance.NETWORK] = None
    rows = PhotoRows(ctx, ("grey", photos[:4, None] / 2), photos[:4, None])
    rows.add("ours", photos[:4, None])
    assert all("is not installed" in row[1] for row in rows.table().rows)
