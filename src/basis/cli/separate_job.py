"""`basis separate` on thousands of mixtures: as a job of shards."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from basis.cli.arguments import out_folder
from basis.cli.job_flags import (
    first_good,
    folder_pictures,
    item_name,
    print_end,
    run_job_command,
    write_pictures,
)
from basis.cli.result_report import in_steps
from basis.cli.sampling import priors_from, sampler_from, way
from basis.cli.separate_input import (
    Input,
    check_data_set_flags,
    check_weights,
    mixing_from,
    with_limits,
)
from basis.errors import BasisError

if TYPE_CHECKING:
    from torch import Tensor

    from basis.jobs.store import JobStore
    from basis.jobs.streams import ObservationStream
    from basis.mixings.mixing import Mixing
    from basis.priors.prior import Prior


_SHOWN = 24  # mixtures in the panel


def separate_as_job(args: argparse.Namespace) -> None:
    """Runs the job, then writes a panel of its first mixtures and says how it went."""
    from basis.jobs.job import separate_job
    from basis.plots.drawing import to_picture

    _check_flags(args)
    sampler = sampler_from(args)
    out = out_folder(args.out)
    check_weights(args)
    prior = priors_from(args)[0]
    stream, mixing = _stream_and_mixing(args, prior)
    job = partial(
        separate_job,
        stream,
        args.prior or ["mnist"],
        out=out,
        mixing=mixing,
        batch_size=args.chunk,
        method=sampler or args.effort or "balanced",
        samples=args.samples,
        estimate={"mean": "mean", "draw": "sample"}.get(args.choose, "mode"),
    )
    store = run_job_command(args, "separating", "inputs", job)
    _write_panel(args, store, stream, mixing, prior, out)
    if args.pictures:
        picture = partial(to_picture, low=prior.low, high=prior.high)
        write_pictures(store, "sources", "source", out, picture)
    _print_figures(store, prior)
    print_end("separate", store)


def _check_flags(args: argparse.Namespace) -> None:
    """Refuses what a job does not do."""
    from basis.cli.blind import is_unknown

    if args.keep:
        raise BasisError("--keep goes with fewer mixtures; a job keeps no states")
    if args.away:
        raise BasisError("--away goes with fewer mixtures; a job asks the priors as they are")
    if is_unknown(args):
        raise BasisError("a job needs known weights; unknown ones go with fewer mixtures")


def _stream_and_mixing(args: argparse.Namespace, prior: Prior) -> tuple[ObservationStream, Mixing]:
    """The mixtures, read as they are needed, and how they were mixed."""
    import torch

    from basis._mix import draw_indices
    from basis.jobs.streams import PairStream
    from basis.mixings.matrix import mixtures
    from basis.signals.datasets import NAMES, load_images

    priors = [prior] * max(1, len(args.prior or ()))
    if len(args.inputs) == 1 and args.inputs[0] in NAMES:
        check_data_set_flags(args)
        images = load_images(args.inputs[0], "test", root=args.data_root)
        rows = args.alphas or [[1.0] * (args.k or max(2, len(priors)))]
        indices = draw_indices(images, args.count, k=len(rows[0]), seed=args.seed)
        made = mixtures(rows).fit(tuple(images.images.shape[1:]))
        stream: ObservationStream = PairStream(images, indices, made, args.noise, args.seed)
        return stream, with_limits(args, made.replace(noise=args.noise))
    stream = _file_stream(args, prior)
    given = Input([], torch.empty(1, *stream.shape), None, None)
    return stream, mixing_from(args, priors, given)


def _file_stream(args: argparse.Namespace, prior: Prior) -> ObservationStream:
    """Files, each brought to what the prior needs as far as the flags ask for it."""
    import torch

    from basis.jobs.streams import FileStream, open_array
    from basis.signals.observation import MAX_PIXELS as MOST_PIXELS
    from basis.signals.old_observation import fit_observation, read_mixture

    dims = len(prior.shape) - 1
    wanted = (1 if args.grey else prior.shape[0], *prior.shape[1:])
    asked = {name: getattr(args, name) for name in ("convert", "invert", "resize")}

    def fit(item: Tensor) -> Tensor:
        return fit_observation(item[None], wanted, low=prior.low, high=prior.high, **asked)[0]

    if len(args.inputs) == 1 and Path(args.inputs[0]).suffix.lower() in (".npy", ".npz"):
        return open_array(args.inputs[0], dims, (lambda m: torch.stack([fit(one) for one in m])))

    def read(path: Path) -> Tensor:
        found = read_mixture(path, dims=dims, most=None if args.resize else MOST_PIXELS).mixture
        if len(found) != 1:
            raise BasisError(f"{path} holds {len(found)} mixtures; one of each file is taken here")
        return fit(found[0])

    return FileStream(folder_pictures(args.inputs, args.out), read)


def _write_panel(
    args: argparse.Namespace,
    store: JobStore,
    stream: ObservationStream,
    mixing: Mixing,
    prior: Prior,
    out: Path,
) -> None:
    """A picture of the first mixtures that could be separated."""
    import torch

    from basis.plots.drawing import write_picture
    from basis.plots.panels import separation_panel

    good = first_good(store, _SHOWN)
    if not good:
        return
    pieces = [stream.checked(i, i + 1) for i in good]
    sources = torch.from_numpy(store["sources"][good])
    truths = [piece.sources for piece in pieces if piece.sources is not None]
    names = store.names
    judged = store["plausibility"] if "plausibility" in store.arrays else None
    panel = separation_panel(
        torch.cat([piece.observation for piece in pieces]),
        sources,
        mixing.fit(tuple(sources.shape[2:])),
        truth=torch.cat(truths) if truths else None,
        names=[item_name(store, i, names) for i in good],
        title=f"{prior.name} prior, {way(args)}; the first {len(good)} of {len(store)}",
        low=prior.low,
        high=prior.high,
        plausibility=torch.from_numpy(judged[good]) if judged is not None else None,
    )
    write_picture(out / "panel.png", panel)


def _print_figures(store: JobStore, prior: Prior) -> None:
    import numpy as np
    import torch

    from basis import metrics
    from basis.priors.card import LIKELY

    if "psnr" in store.arrays:
        scores = torch.from_numpy(store["psnr"][~np.isnan(store["psnr"])])
        print(f"PSNR {metrics.summarize(scores)} dB")
    good = len(store) - len(store.failures)
    worst = in_steps(np.nanmax(store["residual"]), prior)
    print(
        f"{good} mixture{'s' if good != 1 else ''} separated, residual at most {worst:.2f}/255 rms"
    )
    if "plausibility" in store.arrays:
        print(f"plausible: {int((store['plausibility'] >= LIKELY).sum())} of {good}")
