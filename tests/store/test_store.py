"""Priors on disk: saved, loaded, found by name, refused when damaged."""

import json
import subprocess
import sys

import pytest
import torch

from basis.errors import BasisError
from basis.files import sha256
from basis.nn.kinds import describe_module
from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.nn.unet import Denoiser, UNet, UNetConfig
from basis.priors.gaussian import GaussianMixture
from basis.priors.prior import Prior
from basis.store.folder import NEXT, WEIGHTS, read_card, save_prior, update_card, write_prior
from basis.store.loading import add_prior, list_priors, load_prior, split_classes


def _store(folder, module, shape):
    card = {
        "name": "kept",
        "architecture": describe_module(module),
        "shape": shape,
        "sigma_min": 0.01,
        "sigma_max": 1.0,
    }
    return save_prior(folder, dict(module.named_parameters()), card, dtype=torch.float32)


@pytest.mark.parametrize("kind", ["unet", "ncsn"])
def test_saved_prior_loads_and_answers_the_same(tmp_path, kind):
    torch.manual_seed(1)
    if kind == "unet":
        module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.2, 0.4)
        torch.nn.init.normal_(module.network.leave.weight)
    else:
        module = NCSNDenoiser(NCSN(NCSNConfig(size=8, width=4)))
    folder = _store(tmp_path / "p", module, [1, 8, 8])
    prior = load_prior(folder)
    x = torch.rand(2, 1, 8, 8)
    with torch.no_grad():
        assert torch.allclose(prior.denoise(x, 0.1), module(x, torch.full((2,), 0.1)), atol=1e-5)
    assert (prior.shape, prior.sigma_min, prior.sigma_max) == ((1, 8, 8), 0.01, 1.0)
    assert prior.to(dtype=torch.float64).denoise(x.double(), 0.1).dtype == torch.float64


def test_priors_below_the_data_root_have_names(tmp_path):
    module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.2, 0.4)
    _store(tmp_path / "priors" / "mine", module, [1, 8, 8])
    assert "mine" in [e.name for e in list_priors(tmp_path)]
    assert load_prior("mine", root=tmp_path).name == "kept"


@pytest.fixture
def folder(tmp_path):
    module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.2, 0.4)
    return _store(tmp_path / "p", module, [1, 8, 8])


def _damage(folder, how):
    weights, card = folder / "weights.safetensors", folder / "card.json"
    if how == "flipped byte":
        data = bytearray(weights.read_bytes())
        data[-3] ^= 1
        weights.write_bytes(bytes(data))
    elif how == "truncated":
        weights.write_bytes(weights.read_bytes()[:100])
    elif how == "no weights":
        weights.unlink()
    elif how == "card is text":
        card.write_text("hello")
    elif how == "card lacks fields":
        card.write_text("{}")
    elif how == "pickle with the right checksum":
        torch.save({"a": torch.zeros(1)}, weights)
        card.write_text(json.dumps(read_card(folder).to_dict() | {"sha256": sha256(weights)}))
    elif how == "other architecture":
        changed = json.loads(card.read_text())
        changed["architecture"]["network"]["widths"] = [12, 24]
        card.write_text(json.dumps(changed))
    elif how == "unknown architecture":
        changed = json.loads(card.read_text())
        changed["architecture"]["kind"] = "glow9"
        card.write_text(json.dumps(changed))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("flipped byte", "checksum"),
        ("truncated", "checksum"),
        ("no weights", "holds no"),
        ("card is text", "card.json cannot be read"),
        ("card lacks fields", "lacks name"),
        ("pickle with the right checksum", "cannot be read as a safetensors"),
        ("other architecture", "does not fit"),
        ("unknown architecture", "accepted: unet"),
    ],
)
def test_damaged_priors_are_refused(folder, how, says):
    _damage(folder, how)
    with pytest.raises(BasisError, match=says) as caught:
        load_prior(folder)
    assert "\n" not in str(caught.value)


def test_unknown_name_lists_the_known():
    with pytest.raises(BasisError, match=r"unknown prior 'minst'.*mnist"):
        load_prior("minst")


def test_priors_are_saved_and_added(tiny_prior, tmp_path, monkeypatch):
    folder = write_prior(tiny_prior, tmp_path / "tiny", title="a test", license="MIT")
    x = torch.rand(2, 1, 8, 8)
    again = load_prior(folder)
    assert torch.equal(again.denoise(x, 0.2), tiny_prior.denoise(x, 0.2))
    assert again.card.license == "MIT" and len(again.card.sha256) == 64
    assert again.value_range == (0.0, 1.0) and again.std == tiny_prior.std
    entry = add_prior(folder, root=tmp_path / "root")
    assert entry.name == "tiny"
    assert torch.equal(
        load_prior("tiny", root=tmp_path / "root").denoise(x, 0.2), again.denoise(x, 0.2)
    )
    with pytest.raises(BasisError, match="is not accepted"):
        add_prior(folder, name="../up", root=tmp_path / "root")
    (folder / "weights.safetensors").write_bytes(b"changed")
    with pytest.raises(BasisError, match="checksum"):
        add_prior(folder, name="other", root=tmp_path / "root")
    assert [p.name for p in (tmp_path / "root" / "priors").iterdir()] == ["tiny"]
    with pytest.raises(BasisError, match="not a network"):
        write_prior(GaussianMixture(torch.rand(1, 1, 2, 2), torch.ones(1)), tmp_path / "g")


def test_names_on_the_hub_are_fetched(tiny_prior, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    folder = write_prior(tiny_prior, tmp_path / "snapshot")
    asked = []

    def snapshot(name, revision, allow_patterns):
        asked.append((f"{name} at {revision}", allow_patterns))
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    x = torch.rand(1, 1, 8, 8)
    prior = load_prior("hf:someone/digits@v1")
    assert torch.equal(prior.denoise(x, 0.1), tiny_prior.denoise(x, 0.1))
    again = Prior.from_pretrained("someone/digits", revision="v1")
    assert torch.equal(again.denoise(x, 0.1), tiny_prior.denoise(x, 0.1))
    assert {name for name, _ in asked} == {"someone/digits at v1"}
    assert not any(p.endswith((".py", ".pt", ".pkl", "*")) for _, ps in asked for p in ps)
    assert add_prior("hf:someone/digits@v1", root=tmp_path / "root").name == "digits"
    monkeypatch.undo()

    def absent(name, revision, allow_patterns):
        raise hub.errors.LocalEntryNotFoundError("no connection\nand more lines")

    monkeypatch.setattr(hub, "snapshot_download", absent)
    with pytest.raises(
        BasisError, match="cannot be fetched from the model hub: no connection"
    ) as caught:
        load_prior("hf:someone/digits@v1")
    assert "\n" not in str(caught.value)


def test_packages_register_priors(tmp_path):
    """A real installed package, seen by a fresh interpreter."""
    (tmp_path / "toypriors.py").write_text(
        "import torch, basis\n"
        "def dots():\n"
        "    return basis.GaussianMixture(torch.rand(2, 1, 4, 4), torch.full((2,), 0.01))\n"
        "def wrong():\n    return 3\n"
        "def broken():\n    raise RuntimeError('no weights here')\n"
    )
    info = tmp_path / "toypriors-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toypriors\nVersion: 1.0\n")
    names = "\n".join(f"{n} = toypriors:{n}" for n in ("dots", "wrong", "broken"))
    (info / "entry_points.txt").write_text(f"[basis.priors]\n{names}\n")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import basis\n"
        "from basis.store.loading import list_priors, load_prior\n"
        "assert load_prior('dots').shape == (1, 4, 4)\n"
        "for name in ('wrong', 'broken'):\n"
        "    try: load_prior(name)\n"
        "    except basis.BasisError as error: print(error)\n"
        "print([entry.title for entry in list_priors()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "'wrong': toypriors:wrong did not return a Prior" in done.stdout
    assert "RuntimeError: no weights here" in done.stdout
    assert done.stdout.count("made by the package toypriors") == 3


def test_a_new_card_takes_its_weights_with_it(folder):
    """A writer killed after the card and before the renaming leaves the new prior."""
    x = torch.rand(1, 1, 8, 8)
    first = load_prior(folder).denoise(x, 0.1)
    card = read_card(folder)
    weights = (folder / WEIGHTS).read_bytes()
    module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.9, 0.4)
    _store(folder, module, [1, 8, 8])
    second = load_prior(folder).denoise(x, 0.1)
    assert not torch.allclose(first, second)
    (folder / WEIGHTS).rename(folder / NEXT)
    (folder / WEIGHTS).write_bytes(weights)
    assert torch.equal(load_prior(folder).denoise(x, 0.1), second)
    (folder / "card.json").write_text(json.dumps(card.to_dict()))
    assert torch.equal(load_prior(folder).denoise(x, 0.1), first)
    assert update_card(folder, title="new").title == read_card(folder).title == "new"


def test_weights_that_are_not_finite_are_not_written(tmp_path):
    module = Denoiser(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1))), 0.2, 0.4)
    module.network.leave.bias.data[0] = float("nan")
    with pytest.raises(BasisError, match=r"network\.leave\.bias"):
        _store(tmp_path / "p", module, [1, 8, 8])
    assert not (tmp_path / "p" / "card.json").exists()


def test_classes_follow_a_colon(tmp_path):
    assert split_classes("mnist") == ("mnist", [])
    assert split_classes("mnist:0,1") == ("mnist", ["0", "1"])
    assert split_classes("hf:owner/name@v1") == ("hf:owner/name@v1", [])
    assert split_classes("hf:owner/name@v1:cat") == ("hf:owner/name@v1", ["cat"])
    assert split_classes("C:/priors/mnist") == ("C:/priors/mnist", [])
    odd = tmp_path / "a:b"
    odd.mkdir()
    assert split_classes(str(odd)) == (str(odd), [])
