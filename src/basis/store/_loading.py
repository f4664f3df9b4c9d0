"""Loading priors: by name, from a folder, or from the model hub.

A folder holds `card.json` and `weights.safetensors`, or a pipeline in diffusers' layout. Nothing is
ever unpickled but tensors.
"""

from __future__ import annotations

from pathlib import Path

import torch

from basis._devices import find_device
from basis._errors import BasisError
from basis._reading import reading
from basis._weights import channels_last, put_weights
from basis.adapters import DiffusersDenoiser, find_pipeline, from_diffusers
from basis.nn import Denoiser, VarianceNetwork
from basis.priors import DenoiserPrior, LikelihoodPrior, Prior
from basis.store._architectures import build_module, check_shape
from basis.store._card_files import CARD, read_card
from basis.store._lookup import find_entry, make_prior, prior_folder, split_classes
from basis.store._weight_files import WEIGHTS, checked_weights


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
            prior of these alone (`Prior.given`).
        root: The data root whose `priors` folder is searched after the package's own.
        device: Where it computes: "cpu", "cuda", or "auto" for a GPU where there is one.
        dtype: In which precision it computes.

    The prior is in evaluation mode and its weights do not ask for gradients.
    """
    device = find_device(device)
    source, classes = split_classes(source)
    if classes:
        return load_prior(source, root=root, device=device, dtype=dtype).given(*classes)
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
    kind = LikelihoodPrior if hasattr(module, "log_prob") else DenoiserPrior
    return kind(
        module,
        card.shape,
        card.sigma_min,
        card.sigma_max,
        name=card.name,
        low=card.low,
        high=card.high,
        center=card.center,
        spread=card.spread,
        errors=card.errors,
        card=card,
    )
