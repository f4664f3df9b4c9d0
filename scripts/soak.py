"""A job that is killed at random, again and again, and whose shards are damaged on the way.

    python scripts/soak.py --kills 100 --shards 300 --out soak.json

The job is run once undisturbed, then by a process that is killed (SIGKILL) after a random number of
shards and a random delay, until it has been killed as often as asked for; now and then a byte of a
shard is changed between two lives. The store must be the same, byte for byte. With --workers it is
worker processes that are killed, and the job itself lives.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch

from basis.jobs.job import separate_job
from basis.priors.gaussian import GaussianMixture

PER_SHARD = 4
SETTINGS = {"sampler": "gibbs", "steps": 3, "samples": 128 // PER_SHARD}


def prior() -> GaussianMixture:
    means = torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(0)).round()
    return GaussianMixture(means, torch.full((8,), 1e-3))


def mixtures(shards: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    pick = torch.randint(8, (shards * PER_SHARD, 2), generator=generator)
    noise = 0.01 * torch.randn(len(pick), 1, 6, 6, generator=generator)
    return prior().means.reshape(8, 1, 6, 6)[pick].sum(dim=1).float() + noise


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "run.json"}


def life(given: torch.Tensor, folder: Path) -> int:
    """Starts the job in a process of its own; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        separate_job(given, prior(), folder, shard=PER_SHARD, **SETTINGS)
        code = 0
    finally:
        os._exit(code)


def made(folder: Path) -> int:
    return len(list((folder / "shards").glob("0*.safetensors")))


def wait_for(child: int, seconds: float) -> int | None:
    """The exit code of a process that ends within so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def kill_jobs(
    given: torch.Tensor, folder: Path, kills: int, shards: int, chance: random.Random
) -> dict[str, int]:
    """Lives and deaths of the job until it was killed often enough; then it may finish."""
    killed = flipped = 0
    pace = 1.2 * shards / kills  # shards per life, so that kills are spread over the job
    while killed < kills:
        child = life(given, folder)
        target = made(folder) + chance.uniform(0, pace)
        while made(folder) < target and (code := wait_for(child, 0.005)) is None:
            pass
        code = wait_for(child, chance.uniform(0, 0.05))
        if code is not None:
            break  # it came to its end before it was killed often enough
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1
        there = sorted((folder / "shards").glob("0*.safetensors"))
        if there and chance.random() < 0.1:
            path = chance.choice(there)
            data = bytearray(path.read_bytes())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            flipped += 1
    code = wait_for(life(given, folder), 3600)
    return {"kills": killed, "bytes_changed": flipped, "last_exit_code": code or 0}


def kill_workers(
    given: torch.Tensor, folder: Path, kills: int, workers: int, chance: random.Random
) -> dict[str, int]:
    """The job on worker processes, of which one is killed after a random number of shards."""
    import psutil

    every = max(1, len(given) // PER_SHARD // (kills + 1))
    state = {"kills": 0, "last": 0}

    def progress(p: object) -> None:
        done = p.now // PER_SHARD  # type: ignore[attr-defined]
        if done - state["last"] >= every and state["kills"] < kills:
            children = psutil.Process().children(recursive=True)
            found = [c for c in children if "spawn_main" in " ".join(c.cmdline())]
            if found:
                chance.choice(found).kill()
                state["kills"] += 1
                state["last"] = done

    separate_job(
        given, prior(), folder, shard=PER_SHARD, workers=workers, progress=progress, **SETTINGS
    )
    return {"kills": state["kills"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--shards", type=int, default=300)
    parser.add_argument("--workers", type=int, help="kill worker processes instead of the job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the counts as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    given, chance = mixtures(args.shards), random.Random(args.seed)
    with tempfile.TemporaryDirectory() as place:
        calm, wild = Path(place, "calm"), Path(place, "wild")
        assert wait_for(life(given, calm), 3600) == 0
        if args.workers:
            counts = kill_workers(given, wild, args.kills, args.workers, chance)
        else:
            counts = kill_jobs(given, wild, args.kills, args.shards, chance)
        same = contents(calm) == contents(wild)
        record = json.loads((wild / "run.json").read_text())
    names = ("shards", "shards_started", "shards_started_again", "shards_damaged")
    result = {**counts, **{name: record[name] for name in names}, "identical": same}
    print(json.dumps(result, indent=2))
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if same and counts["kills"] == args.kills else 1


if __name__ == "__main__":
    sys.exit(main())
