"""How fast a prior's network runs, beside what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from basis.priors import Prior


@dataclass(frozen=True)
class Speed:
    """How fast the network runs, beside what the machine can do.

    Attributes:
        images_per_second: Signals denoised per second.
        gflop_per_image: Operations of one denoising, in 10^9.
        network_gflops: Operations of the network per second, in 10^9.
        matmul_gflops: The same for a large matrix product.
        threads: Threads that torch uses.
    """

    images_per_second: float
    gflop_per_image: float
    network_gflops: float
    matmul_gflops: float
    threads: int

    @property
    def share(self) -> float:
        """The network's arithmetic as a share of the machine's measured matrix-multiply speed."""
        return self.network_gflops / self.matmul_gflops


def measure_speed(prior: Prior, *, batch: int = 256, seconds: float = 3.0) -> Speed:
    """Times the prior's denoiser as separations run it (a worker per core), and a matrix product.

    Args:
        prior: Any prior.
        batch: Signals per call.
        seconds: How long each of the two is timed.
    """
    from concurrent.futures import ThreadPoolExecutor

    from torch.utils.flop_counter import FlopCounterMode

    from basis.separation import default_workers, threads

    device = prior.device or torch.device("cpu")
    x = torch.rand(batch, *prior.shape, device=device)
    sigma = (prior.sigma_min * prior.sigma_max) ** 0.5
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        prior.denoise(x[:1], sigma)
    flop = counter.get_total_flops() / 1e9

    workers = default_workers(device)

    def denoise() -> None:
        with torch.inference_mode():
            prior.moments(x, sigma)
        _wait(device)

    own = torch.get_num_threads()
    with threads(1 if workers > 1 else own), ThreadPoolExecutor(workers) as pool:
        counts = pool.map(lambda _: _repeat(denoise, seconds), range(workers))
        rate = sum(batch * n / took for n, took in counts)

    side = 2048
    a, b = (torch.rand(side, side, device=device) for _ in range(2))

    def multiply() -> None:
        torch.mm(a, b)
        _wait(device)

    n, took = _repeat(multiply, seconds)
    return Speed(rate, flop, rate * flop, n * 2 * side**3 / took / 1e9, own)


def _repeat(call: Callable[[], object], seconds: float) -> tuple[int, float]:
    """How often `call` ran and how long that took, after one run to warm up."""
    call()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        call()
        count += 1
    return count, time.perf_counter() - started


def _wait(device: torch.device) -> None:
    """Waits until a device that computes on its own has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
