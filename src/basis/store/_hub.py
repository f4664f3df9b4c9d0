"""Priors on the model hub."""

from __future__ import annotations

import re
from pathlib import Path

from basis._errors import BasisError

_HUB_NAME = re.compile(r"hf:(\w[\w.-]*/[\w.-]+)")


def hub_name(source: str | Path) -> str | None:
    """owner/name where the source says hf:owner/name; anything else is a folder or a name here.

    A mistyped folder reads like a name on the hub, and is not to be asked of strangers.
    """
    match = _HUB_NAME.fullmatch(source) if isinstance(source, str) else None
    return match[1] if match else None


def fetch(name: str) -> Path:
    """The hub's files of a prior, from its cache where they are there already."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise BasisError(
            f"to take {name!r} from the model hub: pip install huggingface_hub"
        ) from error
    wanted = ["*.json", "*.safetensors", "*diffusion_pytorch_model.bin"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise BasisError(f"{name!r} cannot be had from the model hub: {line}") from error
