"""Distances in tables of photos: in cached pieces, with test photos and a trivial baseline."""

from types import SimpleNamespace

import pytest
import torch

from basis.lab import distances as distances_module
from basis.lab.cache import ResultCache
from basis.lab.context import Context
from basis.lab.distances import NETWORK, distances, spread_rows
from basis.lab.features import frechet_distance, gaussian_of
from basis.lab.tables.photos import PhotoRows
from basis.signals.datasets import load_images


class Colors:
    """Six numbers of every image: mean and standard deviation of its channels."""

    name = "colors"

    def __init__(self):
        self.seen, self.module = 0, torch.nn.Identity()

    def extract(self, images):
        self.seen += len(images)
        x = images.float().div(255) if images.dtype == torch.uint8 else images
        features = torch.cat([x.mean(dim=(2, 3)), x.std(dim=(2, 3))], dim=1)
        return SimpleNamespace(features=features, probabilities=features.softmax(dim=1))


@pytest.fixture
def ctx(tmp_path, monkeypatch):
    monkeypatch.setattr(distances_module, "_PIECE", 10)
    ctx = Context(ResultCache(tmp_path), data="sample")
    network = Colors()
    ctx.networks[NETWORK] = network
    return ctx


@pytest.fixture
def photos():
    return load_images("sample-photos", "test").floats()


def test_pieces_give_the_distance_of_the_whole(ctx, photos):
    network = ctx.feature_network(NETWORK)
    given = photos[:42].unflatten(0, (21, 2)).flip(2)
    found = distances(ctx, "x", given, "sample-photos")
    whole = [network.extract(x).features for x in (given.flatten(0, 1), photos)]
    assert found.frechet == pytest.approx(frechet_distance(*map(gaussian_of, whole)), rel=1e-4)
    assert found.kernel_error > 0 and "±" in found.kernel_cell()


def test_an_interrupted_distance_continues(ctx, photos, monkeypatch):
    network = ctx.feature_network(NETWORK)
    given = photos[:40].unflatten(0, (20, 2))
    extract = network.extract

    def stopped(images):
        if network.seen >= 20:
            raise KeyboardInterrupt
        return extract(images)

    monkeypatch.setattr(network, "extract", stopped)
    with pytest.raises(KeyboardInterrupt):
        distances(ctx, "x", given, "sample-photos")
    monkeypatch.setattr(network, "extract", extract)
    first = distances(ctx, "x", given, "sample-photos")
    assert network.seen == 40 + len(photos)
    assert distances(ctx, "x", given, "sample-photos") == first
    assert network.seen == 40 + len(photos)


def test_images_of_one_mixture_are_in_different_blocks():
    images = torch.arange(20.0).view(20, 1, 1, 1, 1).expand(20, 2, 3, 4, 4)
    for block in spread_rows(images).split(10):
        assert len(block[:, 0, 0, 0].unique()) == 10


def test_photos_are_at_no_kernel_distance_from_photos(ctx, photos, monkeypatch):
    # Other photos than those that are compared with: the first half and the second.
    few = lambda *a, **k: SimpleNamespace(images=photos[64:])  # noqa: E731
    monkeypatch.setattr(distances_module, "load_images", few)
    found = distances(ctx, "x", photos[:64, None], "sample-photos")
    assert abs(found.kernel) < 3 * found.kernel_error
    dark = distances(ctx, "x", photos[:64, None] / 2, "sample-photos")
    assert dark.kernel > 10 * dark.kernel_error


def test_rows_are_compared_with_photos_and_baseline(ctx, photos):
    truth = photos[:64].unflatten(0, (32, 2))
    trivial = truth.mean(dim=1, keepdim=True).expand_as(truth)
    rows = PhotoRows(ctx, "mixture / 2", trivial, truth, "FID 28.0")
    rows.add("between", (truth + trivial) / 2)
    table = rows.table()
    found = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [row["method"] for row in found] == ["test photos", "mixture / 2", "between"]
    assert [row["progress"] for row in found[:2]] == ["100%", "0%"]
    assert found[1]["ratio"] == "1.00" and 0 < float(found[2]["ratio"]) < 1
    assert [row["paper"] for row in found] == ["", "FID 28.0", ""]
    assert {row["mixtures"] for row in found} == {"32"}
    # Half the error is 6 dB less for every mixture.
    assert found[2]["gain, dB"] == "6.02 ± 0.00"


def test_a_missing_network_is_reported(ctx, photos):
    ctx.networks[NETWORK] = None
    rows = PhotoRows(ctx, "grey", photos[:4, None] / 2, photos[:4, None])
    rows.add("ours", photos[:4, None])
    assert all("is not installed" in row[1] for row in rows.table().rows)
