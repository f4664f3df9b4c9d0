"""`basis colorize` on thousands of photos: as a job of shards."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from basis.cli.arguments import out_folder
from basis.cli.job_flags import (
    first_good,
    folder_pictures,
    print_end,
    run_job_command,
    write_pictures,
)

if TYPE_CHECKING:
    from torch import Tensor

    from basis.jobs.store import JobStore
    from basis.jobs.streams import ObservationStream


_SHOWN = 12  # photos in the panel


def colorize_as_job(args: argparse.Namespace) -> None:
    """Runs the job, then writes a panel of its first photos and says how it went."""
    import numpy as np

    from basis.jobs.job import colorize_job
    from basis.plots.drawing import to_picture

    out = out_folder(args.out)
    stream = _grey_stream(args)
    job = partial(
        colorize_job,
        stream,
        args.prior,
        out=out,
        side=args.side,
        samples=args.samples,
        diverse=args.diverse,
        preview=args.preview,
        vivid=args.vivid,
    )
    store = run_job_command(args, "colouring", "photos", job)
    _write_panel(store, stream, out)
    if args.pictures:
        write_pictures(store, "colors", "colors", out, lambda c: to_picture(c.float().div(255)))
    off = np.nanmax(store["difference"])
    print(
        f"{len(store) - len(store.failures)} photos coloured, {off:.2f}/255 from the grey at most"
    )
    print_end("colorize", store)


def _grey(photos: Tensor) -> Tensor:
    """(..., c, height, width) to (..., 1, height, width)."""
    return photos.mean(dim=-3, keepdim=True)


def _grey_stream(args: argparse.Namespace) -> ObservationStream:
    """The grey of the photos that the arguments name, read as it is needed."""
    import torch

    from basis.jobs.streams import ArrayStream, FileStream, open_array
    from basis.signals.datasets import NAMES, load_images

    photos: list[str] = args.photos
    if len(photos) == 1 and photos[0] in NAMES:
        images = load_images(photos[0], "test", root=args.data_root, size=args.size).images
        return ArrayStream(images[: args.count], _grey)
    if len(photos) == 1 and Path(photos[0]).suffix.lower() in (".npy", ".npz"):
        return ArrayStream(open_array(photos[0], 2).array[: args.count], _grey)

    def read(path: Path) -> Tensor:
        images = load_images(path, size=args.size)
        return _grey(images.floats(torch.tensor([0]))[0])

    return FileStream(folder_pictures(photos, args.out)[: args.count], read)


def _write_panel(store: JobStore, stream: ObservationStream, out: Path) -> None:
    """A picture of the first photos that could be coloured."""
    import torch

    from basis.plots.drawing import write_picture
    from basis.plots.panels import pictures_panel

    good = first_good(store, _SHOWN)
    if good:
        grey = torch.cat([stream.checked(i, i + 1).observation for i in good])
        colours = torch.from_numpy(store["colors"][good]).float().div(255)
        shown = torch.cat([grey.expand(-1, 3, -1, -1)[:, None], colours], dim=1)
        captions = ["grey", *(f"colouring {i + 1}" for i in range(colours.shape[1]))]
        write_picture(out / "panel.png", pictures_panel(shown, captions))
