"""Priors by name, from a folder or from a hub."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import torch

from basis.adapters.diffusers import find_pipeline, from_diffusers
from basis.adapters.weights import channels_last, put_weights
from basis.devices import find_device
from basis.errors import BasisError, one_line, printable
from basis.files import data_root, reading
from basis.nn.diffusers import DiffusersDenoiser
from basis.nn.unet import Denoiser
from basis.nn.variance import VarianceNetwork
from basis.priors.card import Card
from basis.priors.denoiser import network_prior
from basis.priors.prior import Prior
from basis.store.folder import (
    CARD,
    WEIGHTS,
    build_module,
    check_shape,
    checked_weights,
    read_card,
    weights_path,
    write_prior,
)

EMBEDDED = Path(__file__).parent / "embedded"
"""The folder of the shipped priors."""
_GROUP = "basis.priors"


@dataclass(frozen=True)
class PriorEntry:
    """A prior that `load_prior` finds by name: in a folder, or made by an installed package.

    Attributes:
        problem: Why its card cannot be read; empty if it can.
    """

    name: str
    folder: Path | None
    card: Card | None
    maker: EntryPoint | None = None
    problem: str = ""

    @property
    def title(self) -> str:
        """One line about it."""
        if self.card is not None:
            return self.card.title
        if self.maker is None:
            return f"cannot be used: {self.problem}"
        package = self.maker.dist.name if self.maker.dist else self.maker.module
        return f"made by the package {package}"

    def record(self) -> dict[str, Any]:
        """The entries of its card, or its name and title."""
        if self.card is not None:
            return self.card.to_dict()
        return {"name": self.name, "title": self.title}

    def __repr__(self) -> str:
        shape = "" if self.card is None else f", {'x'.join(map(str, self.card.shape))}"
        return f"PriorEntry({self.name!r}{shape}, {self.title})"


def list_priors(
    root: str | Path | None = None, fits: Sequence[int] | None = None
) -> list[PriorEntry]:
    """The priors that can be loaded by name.

    These are the shipped ones, those in the data folder, and those of installed packages.

    Args:
        root: The data folder.
        fits: Only priors for observations of this shape, (channels, *size): those of its channels
            that are not larger.
    """
    entries: dict[str, PriorEntry] = {}
    for parent in (EMBEDDED, data_root(root) / "priors"):
        for path in sorted(parent.glob(f"*/{CARD}")):
            name = path.parent.name
            if name in entries:
                continue
            try:
                entries[name] = PriorEntry(name, path.parent, read_card(path.parent))
            except BasisError as error:
                entries[name] = PriorEntry(name, path.parent, None, problem=str(error))
    for maker in entry_points(group=_GROUP):
        entries.setdefault(maker.name, PriorEntry(maker.name, None, None, maker))
    found = list(entries.values())
    return found if fits is None else [e for e in found if e.card and _fits(e.card.shape, fits)]


def _fits(own: Sequence[int], shape: Sequence[int]) -> bool:
    same = len(own) == len(shape) and own[0] == shape[0]
    return same and all(a <= b for a, b in zip(own, shape, strict=True))


def split_classes(source: str | Path) -> tuple[str | Path, list[str]]:
    """A source such as "cifar10:cat,dog" without the classes after its colon, and the classes."""
    if not isinstance(source, str) or os.path.isdir(source):
        return source, []
    before, colon, after = source.rpartition(":")
    # One letter is a drive's, and "hf" is the prefix of names on the model hub.
    if not colon or len(before) < 2 or before == "hf" or any(c in after for c in "/\\@"):
        return source, []
    return before, [name.strip() for name in after.split(",")]


def find_prior(source: str | Path, root: str | Path | None = None) -> Path:
    """The folder of a prior given by name, by folder, or by its name on the model hub."""
    found = _find(source, root)
    if isinstance(found, EntryPoint):
        raise BasisError(f"prior {found.name!r} is made by a package and has no folder")
    return found


def _find(source: str | Path, root: str | Path | None) -> Path | EntryPoint:
    """The folder of a prior, or the function of a package that makes it."""
    entries = list_priors(root)
    if isinstance(source, str) and Path(source).name == source:
        for entry in entries:
            if entry.name == source:
                if entry.problem:
                    raise BasisError(f"prior {source!r} cannot be used: {entry.problem}")
                return entry.folder or entry.maker  # type: ignore[return-value]
    wanted = hub_name(source)
    if wanted is not None:
        return fetch(*wanted)
    path = Path(source)
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
        return path
    known = [entry.name for entry in entries]
    try:
        siblings = [near.name for near in path.parent.iterdir() if (near / CARD).is_file()]
    except OSError:
        siblings = []
    near = difflib.get_close_matches(path.name, [*known, *siblings], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise BasisError(
        f"unknown prior {str(source)!r}{hint}: give a folder, hf:owner/name@revision for one on "
        f"the model hub, or one of these names: {', '.join(known) or 'none'}"
    )


def _make(maker: EntryPoint) -> Prior:
    """The prior that an installed package makes."""
    try:
        prior = maker.load()()
    except Exception as error:  # of another package's code, whatever it is
        raise BasisError(
            f"prior {maker.name!r}: {maker.value} failed with {type(error).__name__}: "
            f"{one_line(error)}"
        ) from error
    if not isinstance(prior, Prior):
        raise BasisError(f"prior {maker.name!r}: {maker.value} did not return a Prior")
    return prior


_PREFIX = "hf:"
_HUB_NAME = re.compile(r"hf:(\w[\w.-]*/\w[\w.-]*)@(\w[\w./-]*)")


def hub_name(source: str | Path) -> tuple[str, str] | None:
    """owner/name and revision of hf:owner/name@revision; None for any other source."""
    if not isinstance(source, str) or not source.startswith(_PREFIX):
        return None
    match = _HUB_NAME.fullmatch(source)
    if match is None:
        raise BasisError(
            f"{source!r} is not a name on the model hub: give hf:owner/name@revision, where the "
            "revision is a commit, a tag or a branch such as main"
        )
    return match[1], match[2]


def fetch(name: str, revision: str) -> Path:
    """The folder of a prior's files from the hub, or from its local cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise BasisError(
            f"{name} is on the model hub, which needs: pip install huggingface_hub"
        ) from error
    wanted = ["*.json", "*.safetensors", "*diffusion_pytorch_model.bin"]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except Exception as error:  # of the hub, of the network, of the disk
        raise BasisError(
            f"{name} at {revision} cannot be fetched from the model hub: {one_line(error)}"
        ) from error


def load_prior(
    source: str | Path,
    *,
    root: str | Path | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Prior:
    """Loads a prior by name ("mnist"), from a folder, or from the model hub.

    The prior is in evaluation mode and its weights do not require gradients.

    Args:
        source: A name from `list_priors`; a folder with a card and weights, or with a diffusers
            pipeline; or `hf:owner/name@revision` on the model hub, which needs the package
            huggingface_hub. Classes may follow a colon, "cifar10:cat,dog" (`Prior.condition`).
        root: The data folder whose `priors` folder is searched after the shipped priors.
        device: Where it computes: "cpu", "cuda", or "auto" for a GPU if there is one.
        dtype: In which precision it computes.
    """
    if not isinstance(source, str | os.PathLike):
        raise BasisError(f"a prior is loaded by a name or a folder, not by {source!r:.60}")
    device = find_device(device)
    source, classes = split_classes(source)
    folder = _find(source, root)
    prior = _make(folder) if isinstance(folder, EntryPoint) else _load_folder(folder)
    prior = prior.to(device, dtype)
    return prior.condition(*classes) if classes else prior


def is_pipeline(folder: Path) -> bool:
    """Whether a folder holds a diffusers pipeline."""
    return find_pipeline(folder) is not None


def _load_folder(folder: Path) -> Prior:
    if (folder / CARD).exists():
        prior = _read_prior(folder)
    elif is_pipeline(folder):
        prior = from_diffusers(folder)
    else:
        raise BasisError(
            f"{folder} is not a prior's folder: it holds neither {CARD} nor a diffusers pipeline "
            "(unet/ and scheduler/)"
        )
    prior.eval().requires_grad_(False)
    module = getattr(prior, "module", None)
    if isinstance(module, DiffusersDenoiser):
        # Some configurations can be built but not evaluated.
        with reading(folder, "a model that can be evaluated"), torch.inference_mode():
            prior.denoise(torch.full((1, *prior.shape), prior.center), prior.sigma_max)
    # Faster for U-Nets; other likelihood models were measured to gain nothing.
    if not prior.has_likelihood or isinstance(module, Denoiser):
        channels_last(prior)
    elif isinstance(head := getattr(module, "head", None), VarianceNetwork):
        channels_last(head)
    return prior


def _read_prior(folder: Path) -> Prior:
    card = read_card(folder)
    weights = checked_weights(folder, card.sha256)
    module = build_module(card.architecture, {n: t.shape for n, t in weights.items()})
    refusal = f"{folder / WEIGHTS} does not fit the architecture on its card"
    put_weights(module, weights, refusal)
    check_shape(folder / CARD, card, module)
    names = ("name", "value_range", "center", "std", "errors")
    settings = {name: getattr(card, name) for name in names}
    return network_prior(module, card.shape, card.sigma_min, card.sigma_max, card=card, **settings)


def add_prior(
    source: str | Path, *, name: str | None = None, root: str | Path | None = None
) -> PriorEntry:
    """Copies a prior to the data folder, where `load_prior` finds it by name.

    It is loaded first, so that whatever is copied works.

    Args:
        source: A prior's folder, a pipeline's folder in diffusers' layout, or a name on the model
            hub (hf:owner/name@revision).
        name: Its new name; by default that of its folder or on the hub.
        root: The data folder.
    """
    text = str(source).rstrip("/\\")
    hub = hub_name(source)
    folder = find_prior(source, root)
    called = name or (hub[0].split("/")[1] if hub else Path(text).name) or folder.name
    if not re.fullmatch(r"[\w.-]+", called) or called.startswith("."):
        raise BasisError(f"the name {called!r} is not accepted: letters, digits, _, - and . are")
    target = data_root(root) / "priors"
    if (target / called).exists() or (EMBEDDED / called).exists():
        raise BasisError(f"there is a prior called {called!r} already; choose another with --name")
    prior = load_prior(folder)
    title = printable("@".join(hub) if hub else Path(text).name)
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".adding-") as work:
            new = Path(work, called)
            if (folder / CARD).is_file():
                new.mkdir()
                shutil.copyfile(weights_path(folder, read_card(folder).sha256), new / WEIGHTS)
                shutil.copyfile(folder / CARD, new / CARD)
            else:
                write_prior(prior, new, name=called, title=f"converted from {title}")
            new.rename(target / called)
    except OSError as error:
        raise BasisError(f"cannot write {target}: {error.strerror or one_line(error)}") from error
    return PriorEntry(called, target / called, read_card(target / called))
