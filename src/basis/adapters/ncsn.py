"""Published NCSN checkpoints (the authors' `checkpoint.pth`) as priors."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from basis.adapters.weights import build_fitting, put_weights, read_pickle, tensors_of
from basis.errors import BasisError
from basis.files import read_text, reading
from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.priors.denoiser import DenoiserPrior
from basis.settings import settings_from

_KEYS = ("sigma_begin", "sigma_end", "image_size", "logit_transform")


def from_ncsn(
    checkpoint: str | Path,
    config: str | Path | None = None,
    *,
    name: str = "ncsn",
    **sizes: Any,
) -> DenoiserPrior:
    """A published checkpoint as a prior.

    Args:
        checkpoint: A list whose first entry is the state of a `DataParallel` (or that state
            itself).
        config: The `config.yml` in its folder: noise levels and image size. Published values
            else.
        name: What records call the prior.
        sizes: `size`, `sigma_max`, `sigma_min`, without a `config`.
    """
    path = Path(checkpoint)
    state = read_pickle(path)
    if isinstance(state, list | tuple) and state:
        state = state[0]
    weights = {n.removeprefix("module."): t for n, t in tensors_of(state, path).items()}
    try:
        width, channels = weights["begin_conv.weight"].shape[:2]
        levels = len(weights["normalizer.embed.weight"])
    except (KeyError, ValueError, TypeError) as error:
        raise BasisError(
            f"{checkpoint} is not a published NCSN: it has no begin_conv and normalizer.embed"
        ) from error
    published = _read_config(Path(config)) if config is not None else {}
    if published.get("logit_transform") == "true":
        raise BasisError(f"{config}: networks of logit-transformed images are not supported")
    known: dict[str, Any] = {
        "size": int(float(published.get("image_size", 28 if channels == 1 else 32))),
        "sigma_max": float(published.get("sigma_begin", 1.0)),
        "sigma_min": float(published.get("sigma_end", 0.01)),
        **{key: value for key, value in sizes.items() if value is not None},
    }
    values = {"channels": channels, "width": width, "levels": levels, **known}
    own = settings_from(NCSNConfig, values, str(checkpoint))
    shapes = {n: t.shape for n, t in weights.items()}
    with reading(checkpoint, "a published NCSN"):
        network = build_fitting(lambda: NCSN(own), shapes, f"{checkpoint} is not a published NCSN")
    put_weights(network, weights, f"{checkpoint} is not a published NCSN, this does not fit")
    c = network.config
    shape = (c.channels, c.size, c.size)
    module = NCSNDenoiser(network)
    return DenoiserPrior(module, shape, c.sigma_min, c.sigma_max, name=name)


def _read_config(path: Path) -> dict[str, str]:
    """The few values needed from a config.yml; Python objects in it are never built."""
    text = read_text(path)
    found = dict(re.findall(r"^\s*(\w+):\s*([-+.\w]+)\s*$", text, flags=re.MULTILINE))
    for key in _KEYS[:3]:
        try:
            number = float(found.get(key, 1))
        except ValueError:
            number = math.nan
        whole = key == "image_size"
        if not 0 < number < 1e6 or (whole and number != int(number)):
            kind = "a whole number of pixels" if whole else "a positive number"
            raise BasisError(f"{path}: {key} must be {kind}, not {found[key]:.60}")
    return {key: found[key] for key in _KEYS if key in found}
