"""Priors on disk: a folder with `card.json` and `weights.safetensors`.

The card says what the weights are (architecture, shape, noise range), where they come from (data, training,
licence), how good they are (figures with their commands) and what their checksum is. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from basis._errors import BasisError
from basis._files import sha256, whole_file, write_text
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

CARD, WEIGHTS = "card.json", "weights.safetensors"
_EMBEDDED = Path(__file__).parent / "embedded"
# Likelihood models that are built from their sizes alone.
_FLAT: dict[str, tuple[Any, Any]] = {
    "glow": (Glow, GlowConfig),
    "pixelcnn": (PixelCNN, PixelCNNConfig),
    "vae": (VAE, VAEConfig),
}
_REQUIRED = ("name", "architecture", "shape", "sigma_min", "sigma_max", "sha256")


@dataclass(frozen=True)
class PriorEntry:
    """A prior that `load_prior` can find by name."""

    name: str
    folder: Path
    card: dict[str, Any]


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
    except (KeyError, TypeError, ValueError) as error:
        raise BasisError(f"a card's architecture cannot be built: {error}") from error
    raise BasisError(
        f"unknown architecture {kind!r} in a card; known are unet, ncsn, ladder, {', '.join(_FLAT)}"
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
    return card


def list_priors(root: str | Path | None = None) -> list[PriorEntry]:
    """The priors that can be loaded by name: those of the package, then those below the data root."""
    from basis.data import data_root

    entries: dict[str, PriorEntry] = {}
    for shelf in (_EMBEDDED, data_root(root) / "priors"):
        for path in sorted(shelf.glob(f"*/{CARD}")):
            name = path.parent.name
            entries.setdefault(name, PriorEntry(name, path.parent, read_card(path.parent)))
    return list(entries.values())


def load_prior(
    source: str | Path,
    *,
    root: str | Path | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> DenoiserPrior | LikelihoodPrior:
    """Loads a prior by name ("mnist") or from a folder.

    Args:
        source: A name from `list_priors`, or a folder with a card and weights.
        root: The data root whose `priors` folder is searched after the package's own.
        device, dtype: Where, and in which precision, it computes.
    """
    folder = find_prior(source, root)
    card = read_card(folder)
    module = build_module(card["architecture"])
    weights = _read_weights(folder, card["sha256"])
    wanted = {name: p.shape for name, p in module.named_parameters()}
    if {name: t.shape for name, t in weights.items()} != wanted:
        raise BasisError(f"{folder / WEIGHTS} does not fit the architecture on its card")
    module.load_state_dict(weights, strict=False)
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
    try:
        return load_file(path)
    except SafetensorError as error:
        raise BasisError(f"{path} is not a safetensors file: {error}") from error


def find_prior(source: str | Path, root: str | Path | None = None) -> Path:
    """The folder of a prior given by name or by folder."""
    path = Path(source)
    if isinstance(source, str) and path.name == source:
        for entry in list_priors(root):
            if entry.name == source:
                return entry.folder
    if path.is_dir():
        return path
    names = ", ".join(entry.name for entry in list_priors(root)) or "none"
    raise BasisError(f"unknown prior {str(source)!r}: give a folder or one of these names: {names}")
