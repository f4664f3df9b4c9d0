"""Priors by name, from a folder or from a hub."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import torch

from basis.adapters.diffusers import DiffusersDenoiser, find_pipeline, from_diffusers
from basis.adapters.weights import channels_last, put_weights
from basis.devices import find_device
from basis.errors import BasisError, one_line, printable
from basis.files import reading
from basis.nn.unet import Denoiser
from basis.nn.variance import VarianceNetwork
from basis.priors.card import Card
from basis.priors.denoiser import DenoiserPrior, network_prior
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior
from basis.signals.image_set import data_root
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
"""Where the priors lie that ship with the package."""
_GROUP = "basis.priors"


@dataclass(frozen=True)
class PriorEntry:
    """A prior that `load_prior` can find by name: in a folder, or made by an installed package.

    Attributes:
        problem: Why its card cannot be read; empty where it can. One bad card takes no other prior
            off the list.
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
        if self.problem:
            return f"cannot be used: {self.problem}"
        assert self.maker is not None
        package = self.maker.dist.name if self.maker.dist else self.maker.module
        return f"made by the package {package}"

    def record(self) -> dict[str, Any]:
        """The entries of its card, or what there is to say without one."""
        if self.card is not None:
            return self.card.to_dict()
        return {"name": self.name, "title": self.title}

    def __repr__(self) -> str:
        shape = "" if self.card is None else f", {'x'.join(map(str, self.card.shape))}"
        return f"PriorEntry({self.name!r}{shape}, {self.title})"


def list_priors(root: str | Path | None = None) -> list[PriorEntry]:
    """The priors that can be loaded by name.

    These are the package's, those below the data root, and those of installed packages.
    """
    entries: dict[str, PriorEntry] = {}
    for place in (EMBEDDED, data_root(root) / "priors"):
        for path in sorted(place.glob(f"*/{CARD}")):
            name = path.parent.name
            if name not in entries:
                entries[name] = _entry(name, path.parent)
    for maker in entry_points(group=_GROUP):
        entries.setdefault(maker.name, PriorEntry(maker.name, None, None, maker))
    return list(entries.values())


def _entry(name: str, folder: Path) -> PriorEntry:
    try:
        return PriorEntry(name, folder, read_card(folder))
    except BasisError as error:
        return PriorEntry(name, folder, None, problem=str(error))


def split_classes(source: str | Path) -> tuple[str | Path, list[str]]:
    """A source such as "cifar10:cat,dog" without the classes after its colon, and these."""
    if not isinstance(source, str) or os.path.isdir(source):
        return source, []
    before, colon, after = source.rpartition(":")
    # One letter is a drive's, and "hf" says that the rest is a name on the model hub.
    if not colon or len(before) < 2 or before == "hf" or any(c in after for c in "/\\@"):
        return source, []
    return before, [name.strip() for name in after.split(",")]


def find_prior(source: str | Path, root: str | Path | None = None) -> Path:
    """The folder of a prior given by name, by folder, or by its name on the model hub."""
    return prior_folder(source, find_entry(source, root), root)


def find_entry(source: str | Path, root: str | Path | None) -> PriorEntry | None:
    """The entry of this name, where the source is a plain name."""
    if not isinstance(source, str) or Path(source).name != source:
        return None
    found = next((entry for entry in list_priors(root) if entry.name == source), None)
    if found is not None and found.problem:
        raise BasisError(f"prior {source!r} cannot be used: {found.problem}")
    return found


def prior_folder(source: str | Path, entry: PriorEntry | None, root: str | Path | None) -> Path:
    """The folder of an entry, or of a source that has none."""
    if entry is not None and entry.folder is not None:
        return entry.folder
    wanted = hub_name(source)
    if wanted is not None:
        return fetch(*wanted)
    path = Path(source)
    if os.path.isdir(path):  # where Path.is_dir raises on a name too long
        return path
    known = [entry.name for entry in list_priors(root)]
    near = difflib.get_close_matches(path.name, [*known, *_neighbours(path)], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise BasisError(
        f"unknown prior {str(source)!r}{hint}: give a folder, hf:owner/name@revision for one on "
        f"the model hub, or one of these names: {', '.join(known) or 'none'}"
    )


def _neighbours(path: Path) -> list[str]:
    """The folders beside a missing one, for the one that was meant."""
    try:
        return [place.name for place in path.parent.iterdir() if (place / CARD).is_file()]
    except OSError:
        return []


def make_prior(maker: EntryPoint) -> Prior:
    """The prior that an installed package makes."""
    try:
        made: Callable[[], Any] = maker.load()
        prior = made()
    except Exception as error:
        # Another package's code: whatever it raises, the user is told whose it was.
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
    """owner/name and revision of hf:owner/name@revision; None for what does not begin so."""
    if not isinstance(source, str) or not source.startswith(_PREFIX):
        return None
    match = _HUB_NAME.fullmatch(source)
    if match is None:
        raise BasisError(
            f"{source!r} names no prior on the model hub: give hf:owner/name@revision, where the "
            "revision is a commit, a tag or a branch such as main"
        )
    return match[1], match[2]


def fetch(name: str, revision: str) -> Path:
    """The hub's files of a prior, from its cache where they are there already."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise BasisError(
            f"to take {name} from the model hub: pip install huggingface_hub"
        ) from error
    wanted = ["*.json", "*.safetensors", "*diffusion_pytorch_model.bin"]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except Exception as error:  # of the hub, of the network, of the disk
        raise BasisError(
            f"{name} at {revision} cannot be had from the model hub: {one_line(error)}"
        ) from error


def load_prior(
    source: str | Path,
    *,
    root: str | Path | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Prior:
    """Loads a prior by name ("mnist"), from a folder, or from the model hub.

    Args:
        source: A name from `list_priors`; a folder with a card and weights, or with a diffusers
            pipeline; or `hf:owner/name@revision` on the model hub, which needs the package
            huggingface_hub. Any of them may end in a colon and classes, "cifar10:cat,dog", for the
            prior of these alone (`Prior.condition`).
        root: The data root whose `priors` folder is searched after the package's own.
        device: Where it computes: "cpu", "cuda", or "auto" for a GPU where there is one.
        dtype: In which precision it computes.

    The prior is in evaluation mode and its weights do not ask for gradients.
    """
    device = find_device(device)
    source, classes = split_classes(source)
    if classes:
        return load_prior(source, root=root, device=device, dtype=dtype).condition(*classes)
    entry = find_entry(source, root)
    if entry is not None and entry.maker is not None:
        return make_prior(entry.maker).to(device, dtype)
    folder = prior_folder(source, entry, root)
    if (folder / CARD).exists():
        prior = _read_prior(folder)
    elif find_pipeline(folder):
        prior = from_diffusers(folder)
    else:
        raise BasisError(
            f"{folder} is not a prior's folder: it holds neither {CARD} nor a diffusers pipeline "
            "(unet/ and scheduler/)"
        )
    prior.eval().requires_grad_(False)
    if isinstance(getattr(prior, "module", None), DiffusersDenoiser):
        _try(prior, folder)
    # Likelihood models were measured to gain nothing by it, but for those that are a U-Net.
    module = getattr(prior, "module", None)
    if not prior.has_likelihood or isinstance(module, Denoiser):
        channels_last(prior)
    elif isinstance(head := getattr(module, "head", None), VarianceNetwork):
        channels_last(head)
    return prior.to(device, dtype)


def _try(prior: Prior, folder: Path) -> None:
    """Asks a network of another library once: its configuration may be such that it only builds."""
    with reading(folder, "a model that answers"), torch.inference_mode():
        x = torch.full((1, *prior.shape), prior.center)
        if prior.denoise(x, prior.sigma_max).shape != x.shape:
            raise ValueError("it answers with another shape than it was asked with")


def _read_prior(folder: Path) -> DenoiserPrior | LikelihoodPrior:
    card = read_card(folder)
    weights = checked_weights(folder, card.sha256)
    module = build_module(card.architecture, {n: t.shape for n, t in weights.items()})
    refusal = f"{folder / WEIGHTS} does not fit the architecture on its card"
    put_weights(module, weights, refusal)
    check_shape(folder / CARD, card, module)
    return network_prior(
        module,
        card.shape,
        card.sigma_min,
        card.sigma_max,
        name=card.name,
        value_range=card.value_range,
        center=card.center,
        std=card.std,
        errors=card.errors,
        card=card,
    )


def add_prior(
    source: str | Path, *, name: str | None = None, root: str | Path | None = None
) -> PriorEntry:
    """Copies a prior to the folder below the data root in which `load_prior` finds it by name.

    Args:
        source: A prior's folder, a pipeline's folder in diffusers' layout, or a name on the model
            hub (hf:owner/name@revision).
        name: What to call it; its folder's or hub name by default.
        root: The data root.

    It is loaded before it is put in place, so that whatever has a name works.
    """
    text = str(source).rstrip("/\\")
    hub = hub_name(source)
    folder = find_prior(source, root)
    called = name or (hub[0].split("/")[1] if hub else Path(text).name) or folder.name
    if not re.fullmatch(r"[\w.-]+", called) or called.startswith("."):
        raise BasisError(
            f"a prior cannot be called {called!r}: letters, digits, _, - and . will do"
        )
    place = data_root(root) / "priors"
    if (place / called).exists() or (EMBEDDED / called).exists():
        raise BasisError(f"there is a prior called {called!r} already; choose another with --name")
    prior = load_prior(folder)
    title = "@".join(hub) if hub else Path(text).name
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place, prefix=".adding-") as work:
            new = Path(work, called)
            if (folder / CARD).is_file():
                new.mkdir()
                weights = weights_path(folder, read_card(folder).sha256)
                shutil.copyfile(weights, new / WEIGHTS)
                shutil.copyfile(folder / CARD, new / CARD)
            else:
                write_prior(prior, new, name=called, title=f"converted from {printable(title)}")
            new.rename(place / called)
    except OSError as error:
        raise BasisError(f"cannot write {place}: {error.strerror or one_line(error)}") from error
    return PriorEntry(called, place / called, read_card(place / called))
