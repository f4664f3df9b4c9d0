"""Networks whose features compare sets of images."""

import hashlib
import json

import local_server
import pytest
import torch

from basis.cli import main
from basis.errors import BasisError
from basis.lab.features import compare
from basis.lab.networks import InceptionV3, fetch_weights, load_inception, load_network
from basis.signals.download import RemoteFile

serve = local_server.serve


def test_digits_have_a_network_of_their_own(tmp_path, capsys):
    from basis.signals.datasets import load_images

    extractor = load_network("digits")
    sample = load_images("sample", "test")
    found = extractor.extract(sample.images)
    assert (found.probabilities.argmax(dim=1) == sample.labels).float().mean() > 0.97
    noise = torch.rand(sample.images.shape, generator=torch.Generator().manual_seed(0))
    near, far = (compare(extractor, x, sample.images) for x in (sample.images.flip(0), noise))
    assert near.distance < 1e-3 < 1 < far.distance
    assert near.score.mean > 5 > far.score.mean
    assert extractor.distance_name == "Fréchet distance (digits)"
    with pytest.raises(BasisError, match="1 channel"):
        extractor.extract(torch.rand(2, 3, 28, 28))
    with pytest.raises(BasisError, match="needs images"):
        extractor.extract(torch.rand(2, 1, 28))
    assert main(["lab", "distance", "sample", "sample", "--json", str(tmp_path / "d.json")]) == 0
    assert "Fréchet distance (digits)" in capsys.readouterr().out
    assert json.loads((tmp_path / "d.json").read_text())["network"] == "digits"


def test_a_classifier_is_trained_kept_and_found_again(tmp_path, capsys):
    folder = tmp_path / "mine"
    assert (
        main(["lab", "classifier", "--data", "sample", "--epochs", "8", "--out", str(folder)]) == 0
    )
    assert "correctly" in capsys.readouterr().out
    extractor = load_network(str(folder))
    assert extractor.name == "mine" and extractor.channels == 1
    assert main(["lab", "distance", "sample", "sample", "--network", str(folder)]) == 0
    (folder / "classifier.safetensors").write_bytes(b"nothing")
    assert main(["lab", "distance", "sample", "sample", "--network", str(folder)]) == 2
    assert main(["lab", "distance", "sample", "sample", "--network", "none"]) == 2
    assert "unknown network" in capsys.readouterr().err
    assert (
        main(["lab", "classifier", "--data", "sample", "--epochs", "0", "--out", str(folder)]) == 2
    )


def test_inception_is_read_from_a_file_with_the_right_hash_and_from_nothing_else(tmp_path, serve):
    """The whole path of FID and Inception Score, with a thin network for the published one."""
    torch.manual_seed(0)
    thin = InceptionV3(thin=16, classes=12)
    path = tmp_path / "weights.pth"
    torch.save(thin.state_dict(), path)
    address = f"{serve(tmp_path)}/weights.pth"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    published = RemoteFile("weights.pth", digest, (address,), "sha256")
    extractor = load_inception(path, published, InceptionV3(thin=16, classes=12))
    g = torch.Generator().manual_seed(0)
    photos = torch.rand(6, 3, 32, 32, generator=g)
    compared = compare(extractor, photos, photos.flip(0), splits=2)
    assert compared.distance == pytest.approx(0.0, abs=1e-3) and compared.score.mean >= 1
    assert (extractor.distance_name, extractor.score_name) == ("FID", "Inception Score")
    assert extractor.extract(photos[:, :1]).features.shape == (
        6,
        2048 // 16,
    )  # grey photos are repeated
    # Downloaded once, checked, and kept in the data root.
    kept = fetch_weights(published, tmp_path / "root")
    assert (
        kept.read_bytes() == path.read_bytes()
        and fetch_weights(published, tmp_path / "root") == kept
    )
    other = RemoteFile("weights.pth", "0" * 64, (address,), "sha256")
    with pytest.raises(BasisError, match="its SHA256 is"):
        load_inception(path, other)
    with pytest.raises(BasisError, match="could not download"):
        fetch_weights(other, tmp_path / "empty")
    assert not (tmp_path / "empty" / "networks" / "weights.pth").exists()
    with pytest.raises(BasisError, match="no such file"):
        load_network("inception", weights=tmp_path / "absent.pth")
    with pytest.raises(BasisError, match="does not fit"):
        load_inception(path, published, InceptionV3(thin=8, classes=12))


def test_the_published_inception_has_the_published_sizes():
    with torch.device("meta"):
        network = InceptionV3()
    assert sum(p.numel() for p in network.parameters()) == 23_850_960
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert shapes["Mixed_6e.branch7x7dbl_3.conv.weight"] == (192, 192, 1, 7)
    assert shapes["fc.weight"] == (1008, 2048)


def test_efficientnet_knows_what_it_sees():
    pytest.importorskip("efficientnet_lite_pytorch")
    extractor = load_network("efficientnet-lite0")
    g = torch.Generator().manual_seed(0)
    smooth = torch.rand(4, 3, 4, 4, generator=g)
    smooth = torch.nn.functional.interpolate(smooth, size=32, mode="bicubic").clamp(0, 1)
    noise = torch.rand(4, 3, 32, 32, generator=g)
    found = extractor.extract(torch.cat([smooth, noise]))
    assert found.features.shape == (8, 1280) and found.probabilities.shape == (8, 1000)
    assert torch.allclose(found.probabilities.sum(dim=1), torch.ones(8), atol=1e-5)
    within = (found.features[4:] - found.features[4:].mean(dim=0)).norm(dim=1).mean()
    apart = (found.features[:4].mean(dim=0) - found.features[4:].mean(dim=0)).norm()
    assert apart > within
