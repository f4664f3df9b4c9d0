"""`separate_job` and `colorize_job`: a folder of results from any number of mixtures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis._colorize import colourings_drawn
from basis._separate import settled_plan
from basis.devices import default_workers
from basis.errors import BasisError
from basis.jobs.engines import Engine, ProcessEngine, ThreadEngine
from basis.jobs.recipe import CHAINS, Recipe, block_size, own_device
from basis.jobs.runner import Job, ShardProgress, run_job, shard_size
from basis.jobs.store import JobStore
from basis.jobs.streams import ArrayStream, MixtureStream, open_array
from basis.mixings.matrix import mixture
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.priors.tiled import large_enough
from basis.store.loading import load_prior

Mixtures = MixtureStream | np.ndarray | Tensor | str | Path
Priors = str | Path | Prior | Sequence[str | Path | Prior]
OnShard = Callable[[ShardProgress], None]


def separate_job(
    mixtures: Mixtures,
    prior: Priors,
    out: str | Path,
    *,
    alphas: Sequence[float] | None = None,
    mixing: Mixing | None = None,
    shard: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    keep_samples: bool = False,
    chunk: int = CHAINS,
    root: str | Path | None = None,
    device: str = "cpu",
    record: Mapping[str, Any] | None = None,
    progress: OnShard | None = None,
    **settings: Any,
) -> JobStore:
    """Separates any number of mixtures into a folder, in shards.

    Stopped in any way, the same call goes on; at most the shards under way are lost. The store is
    the same bit for bit however the job was cut, stopped or spread over workers of one kind of
    processor. A mixture that cannot be used fails alone.

    Args:
        mixtures: A stream, an array (n, channels, *size), or the path of an .npy; arrays on disk
            are read piece by piece.
        prior: One for all sources or one per source; a name or folder, which every worker loads
            once, or a prior as it is.
        out: The folder. One that holds another job is refused.
        alphas, mixing: As in `separate`.
        shard: Mixtures in a shard; rounded up to a whole number of blocks, that is of mixtures
            that are worked on together.
        workers: Worker processes on this machine; threads of this process by default, or a
            process for each of several GPUs.
        scheduler: The address of a Dask scheduler whose workers to use.
        keep_samples: Whether all samples are kept, in `samples`, not only the chosen one.
        chunk: Chains at once on a GPU. On a processor they are always 128, so that results do not
            depend on it.
        root: The data root that priors are looked for in.
        device: Where to compute: "cpu", "cuda", or "auto", a worker's own GPU where it has one.
        record: What else run.json shall say.
        progress: Called after every shard.
        settings: Of `separate`: effort, sampler, samples, choose, seed, finish and a sampler's own.
    """
    for name in ("keep", "occurrences", "progress"):
        if name in settings:
            raise BasisError(f"a job has no {name}; `separate` has")
    stream = _stream(mixtures, prior)
    given = _priors(prior)
    size = tuple(stream.shape[1:])
    loaded = large_enough(_load(given, root), size)
    mixing = mixing if mixing is not None else mixture(alphas or (1.0,) * max(2, len(given)))
    mixing = mixing.fit(loaded[0].shape)
    _check_shape(stream.shape, loaded[0], mixing)
    plan = settled_plan(loaded[0] if len(loaded) == 1 else loaded, mixing=mixing, **_plan(settings))
    seed = settings.get("seed", 0)
    chains = CHAINS if device in ("cpu", "auto") else chunk
    first = loaded[0]
    recipe = Recipe(
        "separate",
        given,
        size,
        block_size(chains, plan.widest),
        {**settings, "mixing": mixing},
        chains,
        keep_samples,
        None if root is None else str(root),
        device,
        _checksums(given, loaded),
        None if first.low is None or first.high is None else (first.low, first.high),
    )
    identity = {
        "sampler": plan.settings(),
        "seed": seed,
        "mixing": _described(mixing),
        "priors": _identities(loaded),
        "samples_kept": keep_samples,
        "plausibility": plan.verdict,
        "chains": chains,
    }
    shown = plan.rounds[0].chains if keep_samples else 0
    each = 4 * math.prod(first.shape) * mixing.sources * (1 + shown)
    job = Job(
        stream,
        recipe,
        identity,
        Path(out),
        shard_size(shard, recipe.block, len(stream)),
        each,
        record or {},
    )
    return run_job(job, lambda: choose_engine(workers, scheduler, device), progress)


def colorize_job(
    grey: Mixtures,
    prior: str | Path | Prior,
    out: str | Path,
    *,
    side: int = 64,
    samples: int = 3,
    diverse: bool = False,
    preview: bool = False,
    vivid: float = 1.0,
    seed: int = 0,
    shard: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    root: str | Path | None = None,
    device: str = "cpu",
    record: Mapping[str, Any] | None = None,
    progress: OnShard | None = None,
) -> JobStore:
    """Colours any number of grey photos of one size into a folder, in shards.

    The store holds `colours`, uint8 (n, samples, 3, height, width), and in `difference` how far
    their mean is from the grey at most, in 8-bit steps.

    Args:
        grey: As `separate_job` takes mixtures, (n, 1, height, width) in [0, 1].
        prior: Of colour images.
        side, samples, diverse, preview, vivid, seed: As in `colorize`.
        out, shard, workers, scheduler, root, device, record, progress: As in `separate_job`.
    """
    stream = _stream(grey, prior)
    if len(stream.shape) != 3 or stream.shape[0] != 1:
        raise BasisError(f"grey photos must be (n, 1, height, width), not (n, {stream.shape})")
    given = _priors(prior)
    loaded = _load(given, root)
    drawn = colourings_drawn(samples, diverse)
    settings: dict[str, Any] = {"side": side, "samples": samples, "seed": seed}
    settings |= {"diverse": diverse, "preview": preview, "vivid": vivid}
    recipe = Recipe(
        "colorize",
        given,
        tuple(stream.shape[1:]),
        block_size(CHAINS, drawn),
        settings,
        root=None if root is None else str(root),
        device=device,
        checksums=_checksums(given, loaded),
    )
    identity = settings | {"priors": _identities(loaded)}
    job = Job(
        stream,
        recipe,
        identity,
        Path(out),
        shard_size(shard, recipe.block, len(stream)),
        3 * samples * math.prod(stream.shape),
        record or {},
    )
    return run_job(job, lambda: choose_engine(workers, scheduler, device), progress)


def choose_engine(workers: int | None, scheduler: str | None, device: str) -> Engine:
    """Who works: threads here, processes here, or the workers of a scheduler."""
    if workers is not None and scheduler is not None:
        raise BasisError("give a number of local workers or a scheduler, not both")
    gpus = torch.cuda.device_count() if device in ("cuda", "auto") else 0
    if gpus > 1 and workers is None and scheduler is None:
        workers = gpus
    if scheduler is not None:
        from basis.jobs.dask_engine import DaskEngine

        return DaskEngine(scheduler)
    if workers is not None:
        return ProcessEngine(workers)
    return ThreadEngine(default_workers(torch.device(own_device(device))))


def _stream(mixtures: Mixtures, prior: Priors) -> MixtureStream:
    if isinstance(mixtures, MixtureStream):
        return mixtures
    if isinstance(mixtures, str | Path):
        first = prior if isinstance(prior, Prior) else None
        return open_array(mixtures, None if first is None else len(first.shape) - 1)
    return ArrayStream(mixtures)


def _priors(prior: Priors) -> tuple[str | Prior, ...]:
    several = [prior] if isinstance(prior, str | Path | Prior) else list(prior)
    if not several:
        raise BasisError("prior must be a prior, its name or folder, or a non-empty list of those")
    return tuple(p if isinstance(p, Prior) else str(p) for p in several)


def _load(given: Sequence[str | Prior], root: str | Path | None) -> list[Prior]:
    return [p if isinstance(p, Prior) else load_prior(p, root=root) for p in given]


def _plan(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "seed"}


def _check_shape(shape: tuple[int, ...], prior: Prior, mixing: Mixing) -> None:
    wanted = mixing.observed_shape(prior.shape)
    if tuple(shape) != tuple(wanted):
        raise BasisError(
            f"the mixtures have shape {tuple(shape)}; prior {prior.name!r} and this mixing take "
            f"{tuple(wanted)}"
        )


def _checksums(given: Sequence[str | Prior], loaded: Sequence[Prior]) -> tuple[str, ...]:
    """The weights that workers must have; priors that travel themselves need no check."""
    if not all(isinstance(p, str) for p in given):
        return ()
    return tuple(_card_checksum(prior) for prior in loaded)


def _card_checksum(prior: Prior) -> str:
    prior = getattr(prior, "prior", prior)  # through tiles
    return prior.card.sha256 if prior.card is not None else ""


def _identities(priors: Sequence[Prior]) -> list[dict[str, Any]]:
    """What tells priors from others: what they say of themselves, and their weights."""
    found = []
    for prior in priors:
        mark = _card_checksum(prior) or _weights_digest(prior)
        found.append({**prior.describe(), "weights": mark})
    return found


def _described(mixing: Mixing) -> dict[str, Any]:
    """A mixing's record of itself, with all of its numbers."""
    state = {k: v for k, v in vars(mixing).items() if isinstance(v, Tensor)}
    plain = {
        name: value
        for name, value in sorted(vars(mixing).items())
        if isinstance(value, bool | int | float | str | None)
    }
    return {**mixing.describe(), "fields": plain, "tensors": _digest(state)}


def _weights_digest(prior: Prior) -> str:
    state = dict(prior.state_dict())
    state |= {k: v for k, v in vars(prior).items() if isinstance(v, Tensor)}
    return _digest(state)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
