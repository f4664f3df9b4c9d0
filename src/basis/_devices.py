"""Where to compute: a device by its name, checked before anything is moved there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from basis._errors import BasisError
from basis._texts import one_line

if TYPE_CHECKING:
    import torch

__all__ = ["find_device"]


def find_device(device: torch.device | str) -> torch.device:
    """A torch device that exists here; "auto" is a CUDA device where there is one, else the CPU."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.zeros(1, device=found).item()  # which a device without memory of its own cannot do
    except Exception as error:
        line = one_line(error)
        raise BasisError(
            f"device {str(device)!r} cannot be used here: {line}; auto, cpu, or cuda where there "
            "is a GPU are accepted"
        ) from error
    return found
