"""Posterior samplers of another library on the same prior, mixtures and count of evaluations.

azula's MMPS (arXiv:2405.13712), TMPD (arXiv:2310.06721) and DPS (arXiv:2209.14687) differentiate
through the network. A back-propagation to its input costs about what an evaluation does and counts
as one, so that all methods spend the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from basis import metrics
from basis._mix import Pairs
from basis.errors import BasisError
from basis.lab.bench import Quality, quality_of
from basis.priors.prior import Prior

Peer = Literal["mmps", "tmpd", "dps"]
PEERS: tuple[Peer, ...] = get_args(Peer)
"""The methods of azula that are compared."""

_CALLS: dict[str, int] = {"mmps": 3, "tmpd": 3, "dps": 2}
"""network passes of a step, forward and backward, each source counted once"""
_NOISE = 1e-2  # of an exact mixture, in units of the prior's spread: the peers divide by it
_CHUNK = 64


class _Counted(torch.autograd.Function):
    """The identity, which counts how often a batch goes through the network and back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, passes: list[int]) -> Tensor:
        ctx.passes = passes
        passes[0] += 1
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.passes[0] += 1
        return grads[0], None


def measure_peer(
    peer: Peer,
    prior: Prior,
    pairs: Pairs,
    *,
    evaluations: int = 200,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Quality:
    """Separates all mixtures (of equal weights) by a method of azula.

    Args:
        peer: The method, with its own defaults.
        prior: Asked for all sources.
        pairs: The mixtures.
        evaluations: Passes through the network per mixture, forward and backward, at most.
        seed: Of everything drawn.
        progress: Called with how many mixtures are done.
    """
    if peer not in PEERS:
        raise BasisError(f"peers are {', '.join(PEERS)}, not {peer!r}")
    k = pairs.sources.shape[1]
    steps = evaluations // (k * _CALLS[peer])
    if steps < 1:
        least = k * _CALLS[peer]
        raise BasisError(f"{peer} needs at least {least} evaluations for {k} sources")
    started = time.perf_counter()
    found, passes = [], [0]
    mixtures = pairs.mix((1.0,) * k)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for m in mixtures.split(_CHUNK):
            passes[0] = 0
            found.append(_separate(peer, prior, m, k, steps, passes))
            if progress is not None:
                progress(sum(len(part) for part in found))
    sources = torch.cat(found)
    seconds = time.perf_counter() - started
    spent = torch.full((len(sources),), k * passes[0])
    residual = metrics.rms(mixtures - sources.sum(dim=1)).max().item()
    return quality_of(f"{peer} (azula)", sources, pairs, prior, spent, seconds, residual)


def _separate(peer: Peer, prior: Prior, m: Tensor, k: int, steps: int, passes: list[int]) -> Tensor:
    """One batch of mixtures: (batch, k, channels, *size)."""
    try:
        from azula.denoise import Denoiser, DiracPosterior
        from azula.guidance.dps import DPSSampler
        from azula.guidance.mmps import MMPSDenoiser
        from azula.guidance.tmpd import TMPDenoiser
        from azula.linalg.covariance import IsotropicCovariance
        from azula.noise import VESchedule
        from azula.sample import DDPMSampler
    except ImportError as error:
        raise BasisError("peers need azula: pip install --no-deps azula einops") from error

    shape = (-1, *prior.shape)
    least = max(prior.sigma_min, 0.03 * prior.std)
    most = min(prior.sigma_max, 10 * prior.std)

    class Network(Denoiser):  # type: ignore[misc]
        """The prior as azula asks for it, all sources of a mixture in one row."""

        schedule = VESchedule(least, most)

        def forward(self, x_t: Tensor, t: Tensor, **kwargs: Any) -> Any:
            _, sigma = self.schedule(t)
            x = _Counted.apply(x_t, passes)
            mean = prior.denoise(x.reshape(shape), sigma.item())
            return DiracPosterior(mean=mean.reshape(x_t.shape))

    def mix(x: Tensor) -> Tensor:
        return x.unflatten(1, (k, -1)).sum(dim=1)

    y = m.flatten(1)
    variance = (_NOISE * prior.std) ** 2
    settings: dict[str, Any] = {"steps": steps, "silent": True}
    if peer == "dps":
        # Its step is divided by the norm over the whole batch; so that a mixture is treated as if
        # it were alone, the strength grows with the root of their number.
        sampler: Any = DPSSampler(Network(), y, mix, zeta=math.sqrt(len(m)), **settings)
    elif peer == "tmpd":
        sampler = DDPMSampler(TMPDenoiser(Network(), y, mix, variance), **settings)
    else:
        guided = MMPSDenoiser(Network(), y, mix, IsotropicCovariance(variance))
        sampler = DDPMSampler(guided, **settings)
    start = sampler.init((len(m), k * math.prod(prior.shape)), mean=prior.center)
    x = sampler(start.to(m))
    x = x.reshape(len(m), k, *prior.shape)
    return x.clamp(prior.low, prior.high) if None not in (prior.low, prior.high) else x
