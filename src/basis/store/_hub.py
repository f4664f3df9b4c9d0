"""Priors on the model hub.

Only what is written as hf:owner/name@revision is asked of the hub: a path is never taken for a name
there, and what a name stands for may change from day to day, so that a revision belongs to it.
"""

from __future__ import annotations

import re
from pathlib import Path

from basis._errors import BasisError
from basis._texts import one_line

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
