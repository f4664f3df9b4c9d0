"""A result as pictures and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from basis._errors import BasisError
from basis._files import whole_file
from basis._run_folder import RunFolder
from basis.panels import separation_panel, to_picture, write_picture
from basis.separation._result_rows import has_draws, verdict_rows

if TYPE_CHECKING:
    from PIL import Image

    from basis.separation._result import Result

_SHOWN = 24  # mixtures in a panel


def result_panel(
    result: Result, rows: int = _SHOWN, names: Sequence[str] | None = None
) -> Image.Image:
    """The first mixtures with their sources, their sum and the residual."""
    if result.mixture is None or result.mixing is None:
        raise BasisError("this result does not know its mixture, and cannot be drawn")
    if not drawable(result):
        shape = tuple(result.sources.shape[2:])
        raise BasisError(f"sources of shape {shape} cannot be drawn; pictures and sound can")
    low, high = result.span
    return separation_panel(
        result.mixture[:rows],
        result.sources[:rows],
        result.mixing.rows(slice(rows)),
        names=None if names is None else list(names[:rows]),
        low=low,
        high=high,
        plausibility=None if result.plausibility is None else result.plausibility[:rows],
        deviation=result.std[:rows] if has_draws(result) else None,
    )


def drawable(result: Result) -> bool:
    """Whether there is a picture of its sources: images or sound."""
    return result.sources.ndim in (4, 5) and result.mixture is not None


def save_result(result: Result, folder: str | Path, names: Sequence[str] | None = None) -> Path:
    """Writes sources as pictures, all arrays, a panel and a record; returns the folder."""
    count = len(result.sources)
    digits = max(2, len(str(count)))
    names = [f"{i + 1:0{digits}d}" for i in range(count)] if names is None else list(names)
    if len(names) != count or len(set(names)) < count or any(Path(n).name != n for n in names):
        raise BasisError(f"names must be {count} different names of files, without folders")
    if Path(folder).exists() and not Path(folder).is_dir():
        raise BasisError(f"{folder} is a file; save takes a folder")
    run = RunFolder(folder)
    low, high = result.span
    if result.sources.ndim == 5:
        for name, item in zip(names, result.sources, strict=True):
            for i, image in enumerate(item):
                write_picture(run.path(f"{name}-source{i + 1}.png"), to_picture(image, low, high))
    arrays: dict[str, Any] = {"sources": result.sources, "samples": result.samples}
    if result.mixture is not None:
        arrays["mixture"] = result.mixture
    with whole_file(run.path("sources.npz")) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **{name: t.cpu().numpy() for name, t in arrays.items()})
    if drawable(result):
        write_picture(run.path("panel.png"), result_panel(result, names=names))
    run.finish(
        {
            "seed": result.seed,
            "evaluations_per_mixture": result.evaluations,
            "seconds": round(result.seconds, 3),
            "settings": result.settings,
            "mixtures": [
                {"name": n, "residual_rms": r, **told}
                for n, r, told in zip(
                    names, result.residual.tolist(), verdict_rows(result), strict=True
                )
            ],
        }
    )
    return Path(folder)
