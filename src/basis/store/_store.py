"""Priors on disk: a folder with `card.json` and `weights.safetensors`.

The card says what the weights are (architecture, shape, noise range), where they come from (data, training,
licence), how good they are (figures with their commands) and what their checksum is. Nothing is ever unpickled.

Beside such folders, `load_prior` takes pipelines in diffusers' layout, names on the model hub, and names that installed
packages register under the entry point group `basis.priors`.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from basis._errors import BasisError
from basis._files import sha256, whole_file, write_text
from basis._weights import put_weights, read_safetensors
from basis.nn import (
    NCSN,
    VAE,
    Denoiser,
    Glow,
    GlowConfig,
    NCSNConfig,
    NCSNDenoiser,
    PixelCNN,
    PixelCNNConfig,
    UNet,
    UNetConfig,
    VAEConfig,
    VarianceHead,
)
from basis.priors._denoiser import DenoiserPrior
from basis.priors._likelihood import Ladder, LikelihoodPrior
from basis.priors._prior import Prior

CARD, WEIGHTS = "card.json", "weights.safetensors"
_EMBEDDED = Path(__file__).parent / "embedded"
# Likelihood models that are built from their sizes alone.
_FLAT: dict[str, tuple[Any, Any]] = {
    "glow": (Glow, GlowConfig),
    "pixelcnn": (PixelCNN, PixelCNNConfig),
    "vae": (VAE, VAEConfig),
}
_REQUIRED = ("name", "architecture", "shape", "sigma_min", "sigma_max", "sha256")


GROUP = "basis.priors"
_HUB_NAME = re.compile(r"(?:hf:)?(\w[\w.-]*/[\w.-]+)")


@dataclass(frozen=True)
class PriorEntry:
    """A prior that `load_prior` can find by name: in a folder, or made by an installed package."""

    name: str
    folder: Path | None
    card: dict[str, Any]
    maker: EntryPoint | None = None


def build_module(architecture: Mapping[str, Any]) -> nn.Module:
    """The untrained denoiser that an `architecture` entry of a card describes."""
    try:
        kind, sizes = architecture["kind"], dict(architecture["network"])
        if kind == "unet":
            sizes |= {key: tuple(sizes[key]) for key in ("widths", "blocks")}
            config = UNetConfig(**sizes)
            head = VarianceHead(config) if architecture.get("variance") else None
            return Denoiser(UNet(config), architecture["mean"], architecture["std"], head)
        if kind == "ncsn":
            return NCSNDenoiser(NCSN(NCSNConfig(**sizes)))
        if kind in _FLAT:
            network, config_type = _FLAT[kind]
            return network(config_type(**sizes))
        if kind == "ladder":
            rung = {"kind": "glow", "network": sizes}
            return Ladder({float(s): build_module(rung) for s in architecture["sigmas"]})
        if kind == "diffusers":
            from basis.adapters._diffusers import build

            return build(sizes, architecture["scheduler"], architecture.get("pixels"))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise BasisError(f"a card's architecture cannot be built: {error}") from error
    raise BasisError(
        f"unknown architecture {kind!r} in a card; known are unet, ncsn, ladder, diffusers, "
        f"{', '.join(_FLAT)}"
    )


def describe_module(module: nn.Module) -> dict[str, Any]:
    """The `architecture` entry of a card from which `build_module` builds this denoiser again."""
    if isinstance(module, Denoiser) and isinstance(module.network, UNet):
        sizes = asdict(module.network.config)
        about = {"kind": "unet", "network": sizes, "mean": module.mean, "std": module.std}
        return about | ({"variance": True} if module.head is not None else {})
    if isinstance(module, NCSNDenoiser):
        return {"kind": "ncsn", "network": asdict(module.network.config)}
    for kind, (network, _) in _FLAT.items():
        if isinstance(module, network):
            return {"kind": kind, "network": asdict(module.config)}
    if isinstance(module, Ladder) and isinstance(module.rungs[0], Glow):
        sizes = asdict(module.rungs[0].config)
        return {"kind": "ladder", "network": sizes, "sigmas": list(module.sigmas)}
    from basis.adapters._diffusers import DiffusersDenoiser

    if isinstance(module, DiffusersDenoiser):
        return {
            "kind": "diffusers",
            "network": json.loads(module.network.to_json_string()),
            "scheduler": module.scheduler,
            "pixels": list(module.pixels),
        }
    raise BasisError(f"a {type(module).__name__} cannot be described by a card")


def save_prior(
    folder: str | Path,
    weights: Mapping[str, Tensor],
    card: Mapping[str, Any],
    *,
    dtype: torch.dtype = torch.float16,
) -> Path:
    """Writes a prior's folder: weights first, then the card with their checksum.

    Args:
        folder: Where; made when missing.
        weights: Parameters of the module that the card's architecture describes.
        card: Everything a card holds but `sha256` and `parameters`, which are filled in.
    """
    folder = Path(folder)
    tensors = {n: t.detach().to("cpu", dtype).contiguous() for n, t in weights.items()}
    with whole_file(folder / WEIGHTS) as path:
        save_file(tensors, path)
    count = sum(t.numel() for t in tensors.values())
    full = {**card, "parameters": count, "sha256": sha256(folder / WEIGHTS)}
    write_text(folder / CARD, json.dumps(full, indent=2) + "\n")
    return folder


def write_prior(
    prior: Prior, folder: str | Path, *, dtype: torch.dtype = torch.float32, **about: Any
) -> Path:
    """Saves a prior that is a network of a kind this package can build again.

    Args:
        prior: A `DenoiserPrior` or `LikelihoodPrior`.
        folder: Where; made when missing. `load_prior(folder)` gives the prior back.
        dtype: The precision of the weights on disk.
        about: What the card shall say beside what it must: title, licence, data, training, quality.
    """
    module = getattr(prior, "module", None)
    if not isinstance(module, nn.Module):
        raise BasisError(
            f"prior {prior.name!r} is not a network that can be saved: a card describes networks"
        )
    card = {
        **getattr(prior, "card", {}),
        "name": prior.name,
        "architecture": describe_module(module),
        "shape": list(prior.shape),
        "sigma_min": prior.sigma_min,
        "sigma_max": prior.sigma_max,
        **about,
    }
    return save_prior(folder, dict(module.named_parameters()), card, dtype=dtype)


def add_prior(
    source: str | Path, *, name: str | None = None, root: str | Path | None = None
) -> PriorEntry:
    """Puts a prior on the shelf below the data root, where `load_prior` finds it by name.

    Args:
        source: A prior's folder, a pipeline's folder in diffusers' layout, or a name on the model hub.
        name: What to call it; its folder's or hub name by default.
        root: The data root.

    It is loaded before it is put in place, so that what lies on the shelf works.
    """
    from basis.data import data_root

    text = str(source).rstrip("/")
    folder = find_prior(source, root)
    called = name or Path(text).name or folder.name
    if not re.fullmatch(r"[\w.-]+", called) or called.startswith("."):
        raise BasisError(
            f"a prior cannot be called {called!r}: letters, digits, _, - and . will do"
        )
    shelf = data_root(root) / "priors"
    if (shelf / called).exists() or (_EMBEDDED / called).exists():
        raise BasisError(f"there is a prior called {called!r} already; choose another with --name")
    prior = load_prior(folder)
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=shelf, prefix=".adding-") as work:
            new = Path(work, called)
            if (folder / CARD).is_file():
                new.mkdir()
                for file in (WEIGHTS, CARD):
                    shutil.copyfile(folder / file, new / file)
            else:
                write_prior(prior, new, name=called, title=f"converted from {text.split('/')[-1]}")
            new.rename(shelf / called)
    except OSError as error:
        raise BasisError(f"cannot write {shelf}: {error.strerror}") from error
    return PriorEntry(called, shelf / called, read_card(shelf / called))


def read_card(folder: str | Path) -> dict[str, Any]:
    """The card of a prior's folder, checked to hold what loading needs."""
    path = Path(folder) / CARD
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        missing = [key for key in _REQUIRED if key not in card]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, TypeError) as error:
        raise BasisError(
            f"{folder} is not a prior's folder: {path.name} cannot be read ({error})"
        ) from error
    if missing:
        raise BasisError(f"{path} lacks {', '.join(missing)}")
    for key in ("sigma_min", "sigma_max"):
        if isinstance(card[key], bool) or not isinstance(card[key], int | float):
            raise BasisError(f"{path}: {key} must be a number, not {card[key]!r}")
    return card


def list_priors(root: str | Path | None = None) -> list[PriorEntry]:
    """The priors that can be loaded by name: the package's, those below the data root, and other packages'."""
    from basis.data import data_root

    entries: dict[str, PriorEntry] = {}
    for shelf in (_EMBEDDED, data_root(root) / "priors"):
        for path in sorted(shelf.glob(f"*/{CARD}")):
            name = path.parent.name
            entries.setdefault(name, PriorEntry(name, path.parent, read_card(path.parent)))
    for maker in entry_points(group=GROUP):
        package = maker.dist.name if maker.dist else maker.module
        card = {"name": maker.name, "title": f"made by the package {package}"}
        entries.setdefault(maker.name, PriorEntry(maker.name, None, card, maker))
    return list(entries.values())


def load_prior(
    source: str | Path,
    *,
    root: str | Path | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Prior:
    """Loads a prior by name ("mnist"), from a folder, or from the model hub ("owner/name").

    Args:
        source: A name from `list_priors`; a folder with a card and weights, or with a diffusers pipeline; or a
            name on the model hub (`hf:owner/name` says so expressly), which needs the package huggingface_hub.
        root: The data root whose `priors` folder is searched after the package's own.
        device, dtype: Where, and in which precision, it computes.
    """
    entry = _named(source, root)
    if entry is not None and entry.maker is not None:
        return _made(entry.maker).to(device, dtype)
    folder = _place(source, entry, root)
    if not (folder / CARD).is_file():
        from basis.adapters._diffusers import find_pipeline, from_diffusers

        if find_pipeline(folder):
            return from_diffusers(folder).to(device, dtype)
        raise BasisError(
            f"{folder} is not a prior's folder: it holds neither {CARD} nor a diffusers pipeline "
            "(unet/ and scheduler/)"
        )
    card = read_card(folder)
    module = build_module(card["architecture"])
    refusal = f"{folder / WEIGHTS} does not fit the architecture on its card"
    put_weights(module, _read_weights(folder, card["sha256"]), refusal)
    shape, name = _shape(card["shape"]), str(card["name"])
    low, high = float(card["sigma_min"]), float(card["sigma_max"])
    prior: DenoiserPrior | LikelihoodPrior
    if hasattr(module, "log_prob"):
        spread = float(card["architecture"]["network"].get("std", 0.3))
        prior = LikelihoodPrior(module, shape, low, high, name=name, spread=spread, card=card)
    else:
        prior = DenoiserPrior(module, shape, low, high, name=name, card=card)
    return prior.to(device, dtype)


def _shape(values: Any) -> tuple[int, int, int]:
    try:
        c, h, w = (int(v) for v in values)
    except (TypeError, ValueError) as error:
        raise BasisError(
            f"a card's shape must be [channels, height, width], not {values}"
        ) from error
    return c, h, w


def _read_weights(folder: Path, checksum: str) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    if not path.is_file():
        raise BasisError(f"{folder} holds no {WEIGHTS}")
    if sha256(path) != checksum:
        raise BasisError(
            f"{path} is damaged or was changed: its checksum is not the one on its card; "
            "put the original file back"
        )
    return read_safetensors(path)


def find_prior(source: str | Path, root: str | Path | None = None) -> Path:
    """The folder of a prior given by name, by folder, or by its name on the model hub."""
    return _place(source, _named(source, root), root)


def _named(source: str | Path, root: str | Path | None) -> PriorEntry | None:
    """The entry of this name, where the source is a plain name."""
    if not isinstance(source, str) or Path(source).name != source:
        return None
    return next((entry for entry in list_priors(root) if entry.name == source), None)


def _place(source: str | Path, entry: PriorEntry | None, root: str | Path | None) -> Path:
    if entry is not None and entry.folder is not None:
        return entry.folder
    path = Path(source)
    if path.is_dir():
        return path
    wanted = hub_name(source)
    if wanted is not None:
        return _fetch(wanted)
    names = ", ".join(entry.name for entry in list_priors(root)) or "none"
    raise BasisError(
        f"unknown prior {str(source)!r}: give a folder, hf:owner/name for one on the model hub, or one of "
        f"these names: {names}"
    )


def hub_name(source: str | Path) -> str | None:
    """owner/name where the source reads like one on the model hub and is no folder here."""
    match = _HUB_NAME.fullmatch(source) if isinstance(source, str) else None
    return match[1] if match and not Path(source).exists() else None


def _fetch(name: str) -> Path:
    """The hub's files of a prior, from its cache where they are there already."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise BasisError(
            f"{name!r} is neither a prior nor a folder here; to take it from the model hub: "
            "pip install huggingface_hub"
        ) from error
    wanted = ["*.json", "*.safetensors", "*diffusion_pytorch_model.bin"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise BasisError(
            f"{name!r} is no folder here and cannot be had from the model hub: {line}"
        ) from error


def _made(maker: EntryPoint) -> Prior:
    try:
        made: Callable[[], Any] = maker.load()
        prior = made()
    except Exception as error:
        # Another package's code: whatever it raises, the user is told whose it was.
        raise BasisError(
            f"prior {maker.name!r}: {maker.value} failed with {type(error).__name__}: {error}"
        ) from error
    if not isinstance(prior, Prior):
        raise BasisError(f"prior {maker.name!r}: {maker.value} did not return a Prior")
    return prior
