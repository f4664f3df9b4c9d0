"""What docs/scale.md says of workers, memory and processes, measured: each by one command.

    python scripts/measure_scale.py workers     # one and two workers of one thread each
    python scripts/measure_scale.py memory      # peak memory of 1,000 and of 10,000 mixtures
    python scripts/measure_scale.py training    # torchrun's two processes, and two threads

Each prints what it measured as JSON, with the ratio that counts; on a machine that does nothing
else, for other work takes more from one of the two than from the other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def workers(args: argparse.Namespace) -> dict[str, Any]:
    """Times of one job on one worker and on two."""
    rows = {count: [_job_seconds(args, count) for _ in range(args.repeats)] for count in (1, 2)}
    whole = {count: min(total for total, _ in times) for count, times in rows.items()}
    working = {count: min(busy for _, busy in times) for count, times in rows.items()}
    return {
        "mixtures": args.count,
        "effort": args.effort,
        "seconds_of_one_worker": round(whole[1], 2),
        "seconds_of_two_workers": round(whole[2], 2),
        "ratio": round(whole[1] / whole[2], 3),
        "ratio_without_start": round(working[1] / working[2], 3),
    }


def _job_seconds(args: argparse.Namespace, count: int) -> tuple[float, float]:
    """Seconds of a job with so many workers: in all, and from when its shards were handed out."""
    from basis._mix import draw_pairs
    from basis.jobs.job import ShardProgress, separate_job
    from basis.signals.datasets import load_images

    mixtures = draw_pairs(load_images("sample"), args.count, seed=args.seed).sources.sum(dim=1)
    began = time.perf_counter()
    first: list[float] = []

    def note(progress: ShardProgress) -> None:
        if progress.now and not first:
            first.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as place:
        separate_job(
            mixtures, "mnist", place, effort=args.effort, seed=args.seed, shard=args.shard,
            workers=count, progress=note,
        )  # fmt: skip
        ended = time.perf_counter()
        record = json.loads(Path(place, "run.json").read_text())
    # Shards are handed out when the workers are there; the first one loads the prior as well.
    handed = first[0] - max(record["shard_seconds"][:1])
    return ended - began, ended - handed


def memory(args: argparse.Namespace) -> dict[str, Any]:
    """Peak memory of a job from an array on disk, by the number of its mixtures."""
    peaks = {}
    for count in args.counts:
        words = [sys.executable, __file__, "one-job", "--count", str(count)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        peaks[count] = int(done.stdout.split()[-1]) / 1e6
    first, *_, last = peaks.values()
    told = {f"peak_mb_of_{count}": round(peak, 1) for count, peak in peaks.items()}
    return {**told, "ratio": round(last / first, 3)}


def one_job(args: argparse.Namespace) -> int:
    """Runs a job of so many mixtures from an .npy in this process; its peak of memory in bytes."""
    import numpy as np
    import torch

    from basis.jobs.job import separate_job
    from basis.priors.denoiser import DenoiserPrior

    class Shrink(torch.nn.Module):
        """The mean of N(0.5, 0.3^2) given noisy values: a prior that takes no memory of its own."""

        def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
            trust = 0.09 / (0.09 + sigma.square())
            return 0.5 + (x - 0.5) * trust.view(-1, *[1] * (x.ndim - 1))

    torch.set_num_threads(1)
    shape = (1, 28, 28)
    prior = DenoiserPrior(Shrink(), shape, 0.01, 10.0, name="shrink", value_range=(0.0, 1.0))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "many.npy")
        array = np.lib.format.open_memmap(path, "w+", np.float32, (args.count, *shape))
        random = np.random.default_rng(0)
        for start in range(0, args.count, 500):
            array[start : start + 500] = random.random(array[start : start + 500].shape)
        array.flush()
        del array
        separate_job(path, prior, Path(place, "store"), sampler="gibbs", steps=2, samples=4)
    scale = 1 if sys.platform == "darwin" else 1024
    return scale * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def training(args: argparse.Namespace) -> dict[str, Any]:
    """Images per second of the same training by two processes and by one with two threads."""
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ways = {
        "images_per_second_of_two_threads": [[], "2"],
        "images_per_second_of_two_processes": [several, "1"],
    }
    rates = {
        name: max(_training_rate(args, *way) for _ in range(args.repeats))
        for name, way in ways.items()
    }
    threads, processes = rates.values()
    rounded = {name: round(rate, 1) for name, rate in rates.items()}
    return {"images": args.images, **rounded, "ratio": round(processes / threads, 3)}


def _training_rate(args: argparse.Namespace, starter: list[str], threads: str) -> float:
    from basis.training.state import read_state

    with tempfile.TemporaryDirectory() as place:
        words = ["train", "--data", args.data, "--images", args.images, "--batch-size", args.batch,
                 "--held-out", 64, "--variance-images", 0, "--threads", threads,
                 "--out", Path(place, "run")]  # fmt: skip
        own = {**os.environ, "OMP_NUM_THREADS": threads}
        subprocess.run(
            [sys.executable, *starter, "-m", "basis", *map(str, words)],
            check=True, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        state = read_state(Path(place, "run"))
        assert state is not None
        return args.images / float(state[0].seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    work: dict[str, Callable[[argparse.Namespace], Any]] = {
        "workers": workers, "memory": memory, "training": training, "one-job": one_job
    }  # fmt: skip
    add = {name: kinds.add_parser(name) for name in work}
    add["workers"].add_argument("--count", type=int, default=512, help="mixtures (512)")
    add["workers"].add_argument("--effort", type=int, default=40, help="of each (40)")
    add["workers"].add_argument("--shard", type=int, default=32, help="mixtures in a shard (32)")
    add["workers"].add_argument("--seed", type=int, default=0)
    add["memory"].add_argument("--counts", type=int, nargs="+", default=[1_000, 10_000])
    add["training"].add_argument("--data", default="sample")
    add["training"].add_argument("--images", type=int, default=6_400)
    add["training"].add_argument("--batch", type=int, default=64)
    add["one-job"].add_argument("--count", type=int, required=True)
    for name in ("workers", "training"):
        add[name].add_argument("--repeats", type=int, default=1, help="the best counts (1)")
    args = parser.parse_args()
    print(json.dumps(work[args.kind](args), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
