"""What tells one job from another: its observations, its arguments, its priors, the versions."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from basis._version import __version__
from basis.errors import BasisError
from basis.files import check_regular, sha256
from basis.jobs.streams import ObservationStream
from basis.mixings.mixing import Mixing
from basis.priors.prior import Prior
from basis.samplers.problem import content_digest

_AT_ONCE = 256
_SIGNS = 4  # random products that are kept of an outcome


@dataclass(frozen=True)
class Survey:
    """What is known of a stream after it was read once.

    Attributes:
        fingerprint: A checksum of all values in their order.
        occurrences: How many equal observations come before each, (n,). Seeds depend on it, so that
            equal observations get different samples however the job is cut into shards.
        failures: Why observations cannot be used, by index.
    """

    fingerprint: str
    occurrences: np.ndarray
    failures: dict[int, str]


def survey(stream: ObservationStream) -> Survey:
    """Reads everything once; 16 bytes are kept of each observation."""
    count = len(stream)
    digests = np.zeros((count, 2), dtype="<u8")
    whole = hashlib.sha256(f"{count} {stream.shape}".encode())
    failures: dict[int, str] = {}
    for start in range(0, count, _AT_ONCE):
        piece = stream.checked(start, min(count, start + _AT_ONCE))
        for i, item in enumerate(piece.observation):
            found = content_digest(item)
            # Names of files in a reason may hold bytes that are not UTF-8, as surrogates.
            whole.update(found + piece.failures.get(i, "").encode(errors="surrogatepass"))
            digests[start + i] = np.frombuffer(found[:16], dtype="<u8")
        failures |= {start + i: reason for i, reason in piece.failures.items()}
    if len(failures) == count:
        reason = next(iter(failures.values()))
        raise BasisError(f"none of the {count} observations can be used; the first: {reason}")
    return Survey(whole.hexdigest(), _occurrences(digests), failures)


def _occurrences(digests: np.ndarray) -> np.ndarray:
    """How many equal rows come before each row: (n,)."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: equal rows stay in their order
    ranked = digests[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    starts = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    counts = np.empty(len(order), dtype=np.int64)
    counts[order] = np.arange(len(order)) - starts
    return counts


def identify(
    kind: str, found: Survey, priors: Sequence[Prior], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that the results of a job depend on, as JSON holds it.

    Functions cannot be compared: priors and mixings made from them are applied to a fixed input
    instead, and numbers of the outcome are kept.

    Args:
        kind: What the job does.
        found: What is known of the observations.
        priors: The priors, loaded.
        arguments: All arguments that change results.
    """
    shape = tuple(priors[0].shape)
    settings = {name: described(value, shape) for name, value in arguments.items()}
    settings["priors"] = [described(prior, shape) for prior in priors]
    settings["versions"] = {"basis": __version__, "torch": torch.__version__}
    record = {
        "task": kind,
        "count": len(found.occurrences),
        "input": found.fingerprint,
        "settings": settings,
    }
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain


def checksum(identity: Mapping[str, Any]) -> str:
    """The checksum that shards and stores of a job carry."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def difference(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What sets two jobs apart, in a few words."""
    for key in ("task", "count"):
        if was.get(key) != now[key]:
            return f"{key} {was.get(key)} -> {now[key]}"
    return _first_change(was.get("settings"), now["settings"]) or "other observations"


def _first_change(was: Any, now: Any, path: str = "") -> str:
    """The first setting that differs, with both values; nothing where none does."""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [*now, *(key for key in was if key not in now)]
        pairs = [(f"{path}.{key}".lstrip("."), was.get(key), now.get(key)) for key in keys]
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = [(path, *pair) for pair in zip(was, now, strict=True)]
    else:
        return "" if was == now else f"{path} {json.dumps(was)[:40]} -> {json.dumps(now)[:40]}"
    return next(filter(None, (_first_change(old, new, at) for at, old, new in pairs)), "")


def described(value: Any, shape: tuple[int, ...]) -> Any:
    """An argument as JSON holds it, with checksums in place of arrays.

    Args:
        value: Any argument of `separate`.
        shape: The shape of the prior's signals.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Prior):
        return _described_prior(value)
    if isinstance(value, Mixing):
        return _described_mixing(value, shape)
    if isinstance(value, Tensor | np.ndarray):
        return _digest({"": torch.as_tensor(value)})
    if isinstance(value, os.PathLike):
        check_regular(Path(value))
        return sha256(Path(value))
    if dataclasses.is_dataclass(value):  # a sampler, a plan
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__} | {n: described(v, shape) for n, v in fields.items()}
    if isinstance(value, Mapping):
        return {str(name): described(one, shape) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [described(one, shape) for one in value]
    return f"{type(value).__module__}.{type(value).__qualname__}"


def card_checksum(prior: Prior) -> str:
    """The checksum of the weights that a prior's card tells; nothing where it has none."""
    return prior.card.sha256 if prior.card is not None else ""


def _described_prior(prior: Prior) -> dict[str, Any]:
    own = card_checksum(prior)
    if own:
        return {**prior.describe(), "weights": own}
    tensors = {k: v for k, v in vars(prior).items() if isinstance(v, Tensor)}
    weights = _digest({**dict(prior.state_dict()), **tensors})
    low, high = max(prior.sigma_min, 1e-6), max(prior.sigma_max, 1e-6)

    def probed(sigma: float) -> Tensor:
        noisy = prior.center + sigma * _probe((1, *prior.shape)).to(prior.device)
        return prior.denoise(noisy, sigma)

    levels = (low, (low * high) ** 0.5, high)
    probe = [_numbers(partial(probed, sigma)) for sigma in levels]
    return {**prior.describe(), "weights": weights, "probe": probe}


def _described_mixing(mixing: Mixing, shape: tuple[int, ...]) -> dict[str, Any]:
    fitted = mixing.fit(shape)
    plain = {
        name: value
        for name, value in sorted(vars(mixing).items())
        if isinstance(value, bool | int | float | str | None)
    }
    tensors = {k: v for k, v in vars(mixing).items() if isinstance(v, Tensor)}
    signals = _probe((1, fitted.sources, *shape))
    probe = [_numbers(lambda: fitted(signals)), _numbers(lambda: fitted.adjoint(fitted(signals)))]
    return {**mixing.describe(), "fields": plain, "tensors": _digest(tensors), "probe": probe}


def _probe(shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _numbers(outcome: Callable[[], Tensor]) -> list[str]:
    """Numbers of an outcome: its mean, its size, and its products with random signs.

    Few digits are kept: the last ones depend on the processor.
    """
    with torch.no_grad():
        try:
            x = outcome().detach().double().cpu().flatten()
        except Exception as error:  # `separate` says what is wrong
            return [type(error).__name__]
    generator = torch.Generator().manual_seed(1)
    signs = 2.0 * torch.randint(2, (_SIGNS, len(x)), generator=generator).double() - 1
    products = (signs @ x / x.norm().clamp_min(1e-30)).tolist()
    sizes = [f"{v.item():.4g}" for v in (x.mean(), x.square().mean().sqrt())]
    return sizes + [f"{v + 0.0:.2f}" for v in products]


def _digest(tensors: Mapping[str, Tensor]) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        found.update(f"{name} {plain.dtype} {tuple(plain.shape)}".encode())
        found.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
