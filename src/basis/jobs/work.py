"""What is done with the observations of a shard, in any process: the same bits everywhere.

Networks round differently in batches of different sizes and on different numbers of threads. So a
job works in blocks of a fixed number of observations, counted from its beginning, with one thread
each; a shard is a whole number of blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from basis._colorize import colorize_batch
from basis._separate import separate_batch
from basis.errors import BasisError
from basis.jobs.store import Arrays, Made, blank
from basis.priors.prior import Prior
from basis.result import Result, _scores
from basis.signals.observation import Observation
from basis.store.loading import load_prior


@dataclass(frozen=True)
class Payload:
    """The observations of a shard, as they are sent to a worker.

    Attributes:
        observation: float32 (n, c, *size).
        occurrences: How many equal observations come before each in the job.
        failures: Why observations cannot be used, by their index in the shard.
        sources: float32 (n, k, C, *size) where the true sources are known.
    """

    observation: np.ndarray
    occurrences: list[int]
    failures: dict[int, str]
    sources: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """How every block of a job is worked on.

    Attributes:
        kind: What is done.
        priors: Names or folders, which every worker loads once, or priors.
        block: Observations at once.
        arguments: The arguments of `separate` or `colorize` besides observations and priors.
        device: Where to compute; "auto" is a worker's own GPU where it has one.
        checksums: The weights of priors given by name, so that no worker uses others.
    """

    kind: Literal["separate", "colorize"]
    priors: tuple[str | Prior, ...]
    block: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    checksums: tuple[str, ...] = ()


_LOADED: dict[Any, list[Prior]] = {}
_LOADING = threading.Lock()


def load_priors(task: Task, device: str) -> list[Prior]:
    """The priors of a task, loaded once in a process."""
    names = tuple(p if isinstance(p, str) else id(p) for p in task.priors)
    key = (names, device)
    with _LOADING:
        if key not in _LOADED:
            _LOADED.clear()  # a worker that begins another job needs the memory
            found = [
                load_prior(p, device=device) if isinstance(p, str) else p.to(device)
                for p in task.priors
            ]
            for prior, checksum in zip(found, task.checksums, strict=False):
                if checksum != (prior.card.sha256 if prior.card is not None else ""):
                    raise BasisError(
                        f"prior {prior.name!r} has other weights here than where the job was "
                        "started; put the same folder on every worker"
                    )
            _LOADED[key] = [prior.eval() for prior in found]
        return _LOADED[key]


def own_device(device: str, number: int | None = None) -> str:
    """Where a worker computes: "auto" is its own GPU, or the CPU where it has none.

    Args:
        device: The device of the task.
        number: The worker's number, where several workers see the same GPUs and share them.
    """
    if device not in ("auto", "cuda"):
        return device
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not gpus:
        return "cpu"
    return f"cuda:{0 if number is None else number % gpus}"


def work(
    task: Task, payload: Payload, device: str = "cpu", check: Callable[[], None] | None = None
) -> Made:
    """The results of a shard, block after block.

    Args:
        task: What to do.
        payload: The observations.
        device: Where to compute.
        check: Called after every step; raises when the work is to stop.
    """
    priors = load_priors(task, device)
    if device == "cpu":
        torch.set_num_threads(1)

    def compute(rows: list[int]) -> Arrays:
        return _compute(task, priors, payload, rows, check)

    blocks: list[tuple[int, Arrays]] = []
    failures: dict[int, str] = dict(payload.failures)
    for start in range(0, len(payload.observation), task.block):
        rows = list(range(start, min(start + task.block, len(payload.observation))))
        blocks.append((len(rows), _block(rows, failures, compute)))
    like = next((arrays for _, arrays in blocks if arrays), None)
    if like is None:
        return Made({}, failures)
    filled = [arrays or blank(like, count) for count, arrays in blocks]
    return Made({name: np.concatenate([a[name] for a in filled]) for name in like}, failures)


def _block(
    rows: list[int], failures: dict[int, str], compute: Callable[[list[int]], Arrays]
) -> Arrays:
    """The results of a block; none if no observation can be used.

    An observation that cannot be used is replaced by another one, so that the others are worked on
    in a batch of the same size; its results are then blanked. New failures are added to `failures`.
    """
    good = [row for row in rows if row not in failures]
    if not good:
        return {}
    try:
        arrays = compute([row if row in good else good[0] for row in rows])
    except BasisError as error:
        if len(good) == 1:
            failures[good[0]] = str(error)
            return {}
        # One at a time, to find those that fail.
        found = [_block([row], failures, compute) for row in rows]
        like = next((one for one in found if one), None)
        if like is None:
            return {}
        each = [one or blank(like, 1) for one in found]
        return {name: np.concatenate([one[name] for one in each]) for name in like}
    empty = blank(arrays, 1)
    for i in (i for i, row in enumerate(rows) if row in failures):
        for name in arrays:
            arrays[name][i] = empty[name][0]
    return arrays


def _compute(
    task: Task,
    priors: list[Prior],
    payload: Payload,
    rows: list[int],
    check: Callable[[], None] | None,
) -> Arrays:
    """The results of some observations, worked on together."""

    def progress(_: object) -> None:
        if check is not None:
            check()

    items = torch.from_numpy(payload.observation[rows])
    truth = None if payload.sources is None else torch.from_numpy(payload.sources[rows])
    arguments = {**task.arguments, "workers": 1, "progress": progress}
    arguments["occurrences"] = [payload.occurrences[row] for row in rows]
    if task.kind == "colorize":
        return _colorized(colorize_batch(items, priors[0], **arguments))
    observation = Observation(items, batched=True, sources=truth)
    return _separated(separate_batch(observation, priors, **arguments))


def _separated(result: Result) -> Arrays:
    arrays = {
        "sources": result.sources,
        "residual": result.residual,
        "evaluations": result.item_evaluations,
        "samples": result.samples,
        "plausibility": None if result.plausibility is None else result.plausibility.float(),
        "alphas": None if result.identifiable is None and result.counts is None else result.alphas,
    }
    scores = _scores(result)
    if scores is not None:
        arrays[scores[0].lower()] = scores[1]
    return {name: x.cpu().numpy() for name, x in arrays.items() if x is not None}


def _colorized(result: Result) -> Arrays:
    colors = result.sources if result.samples is None else result.samples[:, :, 0]
    off = (colors.mean(dim=2) - result.observation).abs().flatten(1).amax(dim=1) * 255
    return {
        "colors": (colors * 255).round().to(torch.uint8).cpu().numpy(),
        "difference": off.cpu().numpy(),
        "evaluations": result.item_evaluations.cpu().numpy(),
    }
