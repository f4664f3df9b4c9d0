"""`basis separate` on thousands of mixtures: as a job of shards."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis._errors import BasisError
from basis.cli._arguments import out_folder
from basis.cli._job_flags import folder_pictures, job_device, print_failures, shard_progress
from basis.cli._sampling import priors_from, sampler_from, way

if TYPE_CHECKING:
    from basis import Mixing, Prior
    from basis.jobs import JobStore, MixtureStream

_SHOWN = 24  # mixtures in the panel


def separate_as_job(args: argparse.Namespace) -> None:
    """Runs the job, then writes a panel of its first mixtures and says how it went."""
    from basis.cli._separate_command import _check_weights
    from basis.jobs import separate_job

    _check_flags(args)
    sampler = sampler_from(args)
    out = out_folder(args.out)
    _check_weights(args)
    prior = priors_from(args)[0]
    stream, mixing = _stream_and_mixing(args, prior)
    with shard_progress("separating") as progress:
        store = separate_job(
            stream,
            args.prior or ["mnist"],
            out,
            mixing=mixing,
            shard=args.shard,
            workers=args.workers,
            scheduler=args.scheduler,
            keep_samples=args.keep_samples,
            chunk=args.chunk,
            root=args.data_root,
            device=job_device(args),
            record={"command": args.line, "inputs": args.inputs, "seed": args.seed},
            progress=progress,
            sampler=sampler,
            effort=args.effort,
            samples=args.samples,
            choose=args.choose,
            seed=args.seed,
            finish=not args.no_finish,
        )
    _write_panel(args, store, stream, mixing, prior, out)
    if args.pictures:
        _write_pictures(store, prior, out / "pictures")
    _print_figures(store)
    print_failures("separate", store)
    print(f"store: {out}  picture: {out / 'panel.png'}")


def _check_flags(args: argparse.Namespace) -> None:
    """Refuses what a job does not do."""
    from basis.cli._blind import is_unknown
    from basis.data import NAMES

    if args.keep:
        raise BasisError("--keep goes with fewer mixtures; a job keeps no states")
    if is_unknown(args):
        raise BasisError("a job needs known weights; unknown ones go with fewer mixtures")
    if args.convert or args.invert or args.resize:
        raise BasisError(
            "--convert, --invert and --resize go with fewer mixtures; a job takes pictures as they "
            "are"
        )
    if (args.clipped or args.rounded) and args.inputs[0] in NAMES:
        raise BasisError("--clipped and --rounded go with files of mixtures in a job")


def _stream_and_mixing(args: argparse.Namespace, prior: Prior) -> tuple[MixtureStream, Mixing]:
    """The mixtures, read as they are needed, and how they were mixed."""
    import torch

    from basis.cli._separate_command import _Input, _mixing
    from basis.data import NAMES, load_images
    from basis.jobs import PairStream
    from basis.mixings import mixtures
    from basis.pairs import draw_indices

    priors = [prior] * max(1, len(args.prior or ()))
    if len(args.inputs) == 1 and args.inputs[0] in NAMES:
        if args.grey or args.mask:
            raise BasisError(
                "--grey and --mask go with files of mixtures, not with a data set's name"
            )
        images = load_images(args.inputs[0], "test", root=args.data_root)
        rows = args.alphas or [[1.0] * (args.k or max(2, len(priors)))]
        indices = draw_indices(images, args.count, k=len(rows[0]), seed=args.seed)
        made = mixtures(rows).fit(tuple(images.images.shape[1:]))
        stream: MixtureStream = PairStream(images, indices, made, args.noise, args.seed)
        return stream, made.noisy(args.noise)
    stream = _file_stream(args, len(prior.shape) - 1)
    given = _Input([], torch.empty(1, *stream.shape), None, None)
    return stream, _mixing(args, priors, given)


def _file_stream(args: argparse.Namespace, dims: int) -> MixtureStream:
    from basis.data import read_mixture
    from basis.jobs import FileStream, open_array

    if len(args.inputs) == 1 and Path(args.inputs[0]).suffix.lower() in (".npy", ".npz"):
        return open_array(args.inputs[0], dims)

    def read(path: Path) -> Any:
        found = read_mixture(path, dims=dims).mixture
        if len(found) != 1:
            raise BasisError(f"{path} holds {len(found)} mixtures; one of each file is taken here")
        return found[0]

    return FileStream(folder_pictures(args.inputs), read)


def _write_panel(
    args: argparse.Namespace,
    store: JobStore,
    stream: MixtureStream,
    mixing: Mixing,
    prior: Prior,
    out: Path,
) -> None:
    """A picture of the first mixtures that could be separated."""
    import torch

    from basis.panels import separation_panel, write_picture

    good = [i for i in range(min(len(store), 4 * _SHOWN)) if i not in store.failures][:_SHOWN]
    if not good:
        return
    pieces = [stream.checked(i, i + 1) for i in good]
    sources = torch.from_numpy(store["sources"][good])
    truths = [piece.truth for piece in pieces if piece.truth is not None]
    names = store.names
    digits = len(str(len(store)))
    panel = separation_panel(
        torch.cat([piece.mixture for piece in pieces]),
        sources,
        mixing.fit(tuple(sources.shape[2:])),
        truth=torch.cat(truths) if truths else None,
        names=[names[i] if names else f"{i + 1:0{digits}d}" for i in good],
        title=f"{prior.name} prior, {way(args)}; the first {len(good)} of {len(store)}",
        low=prior.low,
        high=prior.high,
    )
    write_picture(out / "panel.png", panel)


def _write_pictures(store: JobStore, prior: Prior, folder: Path) -> None:
    import torch

    from basis.panels import to_picture, write_picture

    names, digits, sources = store.names, len(str(len(store))), store["sources"]
    for index in range(len(store)):
        if index in store.failures:
            continue
        name = names[index] if names else f"{index + 1:0{digits}d}"
        for i, image in enumerate(torch.from_numpy(sources[index].copy())):
            picture = to_picture(image, low=prior.low, high=prior.high)
            write_picture(folder / f"{name}-source{i + 1}.png", picture)


def _print_figures(store: JobStore) -> None:
    import numpy as np
    import torch

    from basis import metrics

    if "psnr" in store.arrays:
        scores = torch.from_numpy(store["psnr"][~np.isnan(store["psnr"])])
        print(f"PSNR {metrics.summarise(scores)} dB")
    worst = np.nanmax(store["residual"])
    print(f"{len(store) - len(store.failures)} mixtures separated, residual at most {worst:.2g}")
