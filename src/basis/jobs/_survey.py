"""What a job is about, found in one pass over its mixtures before any work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from basis._errors import BasisError
from basis.jobs._streams import MixtureStream
from basis.samplers import content_digest

_AT_ONCE = 256


@dataclass(frozen=True)
class Survey:
    """What is known of a stream's mixtures.

    Attributes:
        fingerprint: Of all values in their order: the same input again has the same.
        occurrences: How often each mixture came before, (n,). Seeds depend on it, so that a
            mixture that is repeated is drawn anew however the job is cut into shards.
        failures: What is wrong with those that cannot be used, by index.
    """

    fingerprint: str
    occurrences: np.ndarray
    failures: dict[int, str]


def survey(stream: MixtureStream, progress: Callable[[int], None] | None = None) -> Survey:
    """Reads everything once: 16 bytes are kept of each mixture."""
    count = len(stream)
    digests = np.zeros((count, 2), dtype="<u8")
    whole = hashlib.sha256(f"{count} {stream.shape}".encode())
    failures: dict[int, str] = {}
    for start in range(0, count, _AT_ONCE):
        piece = stream.checked(start, min(count, start + _AT_ONCE))
        for place, item in enumerate(piece.mixture):
            digest = content_digest(item)
            whole.update(digest + _bytes(piece.failures.get(place, "")))
            digests[start + place] = np.frombuffer(digest[:16], dtype="<u8")
        failures |= {start + place: reason for place, reason in piece.failures.items()}
        if progress is not None:
            progress(min(count, start + _AT_ONCE))
    if len(failures) == count:
        reason = next(iter(failures.values()))
        raise BasisError(f"none of the {count} mixtures can be used; the first: {reason}")
    return Survey(whole.hexdigest(), _occurrences(digests), failures)


def _bytes(reason: str) -> bytes:
    # Names of files that are not UTF-8 have surrogates in them.
    return reason.encode(errors="surrogatepass")


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
