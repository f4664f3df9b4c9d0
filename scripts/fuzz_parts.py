"""Parts of the command lines of `scripts/fuzz.py`: files, priors, numbers, places, settings."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

from fuzz_damage import NUMBERS, TEXTS, damage

DATA = (
    "images.npz", "images.npy", "x-images-idx3-ubyte", "y-images-idx3-ubyte.gz", "folder",
    "root/cifar-10-batches-py", "church_lmdb", "root/MNIST/raw", "grey.png", "sound.npy",
)  # fmt: skip
PICTURES = (
    "grey.png", "grey.jpg", "grey.bmp", "grey.gif", "grey.webp", "grey.tif", "grey.pgm",
    "photo.png", "deep.png", "picture.eps.png",
)  # fmt: skip
MIXTURES = ("mixture.npz", "mixture.npz", "mixture.npy", "mixture.npy", *PICTURES)
PRIORS = (
    "tiny", "tiny", "tiny3", "tiny-glow", "tiny-ncsn", "tiny-vae", "tiny-pixelcnn", "tiny-ladder",
    "tiny-energy",
)  # fmt: skip


class Parts:
    """Puts the files of a case in place and writes parts of its command line."""

    def __init__(self, rng: random.Random, folder: Path, world: Path) -> None:
        self.rng, self.folder, self.world = rng, folder, world
        self.done: list[str] = []

    def file(self, names: Sequence[str], chance: float = 0.6) -> str:
        """A copy of one of the good files, damaged by chance; sometimes another file's name."""
        name = self.rng.choice(names)
        source = self.world / name
        if not source.exists():
            return str(source)
        to = self.folder / source.name
        if self.rng.random() < 0.04:
            odd = self.rng.choice(["line\nbreak", "\udcff\x1b[31m", "a" * 60, "-x", "é", "a b;c"])
            to = to.with_name(f"{odd}{source.suffix}")
        if not os.path.lexists(to):  # a link to nowhere is there too
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, to)
            if self.rng.random() < chance:
                self.done.append(damage(self.rng, to))
        return str(to)

    def prior(self, chance: float = 0.25) -> str:
        """A prior by name, or a damaged folder of one."""
        if self.rng.random() < chance:
            return self.file([f"root/priors/{n}" for n in PRIORS] + ["pipeline", "run"], 0.9)
        return self.rng.choice(PRIORS) if self.rng.random() < 0.95 else self.rng.choice(TEXTS)

    def number(self, good: str, chance: float = 0.85) -> str:
        # Counts that are only long work are left out: waiting for them is no finding.
        odd = [n for n in NUMBERS if n not in ("100000", "65537", "1e6", "4294967296")]
        return good if self.rng.random() < chance else self.rng.choice(odd)

    def text(self, good: str, chance: float = 0.9) -> str:
        return good if self.rng.random() < chance else self.rng.choice(TEXTS)

    def out(self, name: str = "o") -> str:
        """A place for results, odd by chance."""
        places = ["o\nx", "o/p/q", "taken", "taken/x", "\x1b[31m", "a" * 200, "pipe", "o"]
        if self.rng.random() < 0.85:
            return f"out/{name}"
        place = self.rng.choice(places)
        beside = self.folder.parent / "out"
        if place.startswith("taken"):
            (beside / "taken").write_text("taken")
        if place == "pipe":
            os.mkfifo(beside / "pipe")
        return f"out/{place}"

    def maybe(self, chance: float, *words: str) -> list[str]:
        return list(words) if self.rng.random() < chance else []

    def sampling(self) -> list[str]:
        rng = self.rng
        if rng.random() < 0.6:
            words = ["--effort", self.number("20")]
        else:
            names = ["gibbs", "langevin", "basis", "dirac", "ascent", "greedy", "posterior-ode"]
            words = ["--sampler", rng.choice(names), "--steps", self.number("2")]
            words += self.maybe(0.1, "--sigma-max", rng.choice(NUMBERS))
            if "basis" in words:
                words += ["--levels", self.number("2")]
        words += self.maybe(0.1, "--samples", self.number("2", 0.5))
        words += self.maybe(0.1, "--choose", rng.choice(["energy", "first", "likelihood", "x"]))
        words += self.maybe(0.1, "--chunk", self.number("2", 0.4))
        words += self.maybe(0.05, "--device", rng.choice(["meta", "cuda", "cpu:7", "x", "", "xla"]))
        return words + self.maybe(0.1, "--seed", rng.choice(NUMBERS))

    def shards(self) -> list[str]:
        """How a job is cut; schedulers that may yet come are waited for, and are left out."""
        rng = self.rng
        odd = ["0", "-1", "nan", "x", "999999999", "9223372036854775808"]
        words = self.maybe(0.3, "--shard", self.number("4", 0.5))
        words += self.maybe(
            0.05, "--scheduler", rng.choice(["", "foo://x:1", "tcp://", "tcp://x:y"])
        )
        words += self.maybe(0.05, "--workers", rng.choice(odd))
        words += self.maybe(0.1, "--worker-device", rng.choice(["cuda", "cpu", "x"]))
        return words + self.maybe(0.2, "--pictures")

    def data_set(self) -> str:
        return self.text(self.file(DATA))

    def json(self) -> list[str]:
        places = [
            "out/x.json",
            "out/x.json",
            "out",
            "/dev/null",
            "/dev/full",
            "out/\n.json",
            "out/a/b",
        ]
        names = sorted(str(p) for p in self.folder.iterdir())
        return self.maybe(0.25, "--json", self.rng.choice(places + names[:1]))
