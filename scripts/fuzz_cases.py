"""The cases of `scripts/fuzz.py`: command lines about files that may be damaged."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz_damage import NUMBERS, TEXTS, damage
from fuzz_parts import MIXTURES, PICTURES, PRIORS, Parts

COMMANDS = (
    "separate", "colorize", "mix", "evaluate", "bench", "study", "distance", "reproduce", "train",
    "ladder", "classifier", "sample", "check", "priors", "convert", "data", "job",
)  # fmt: skip
"""Kinds of cases: a command each, and jobs, which are `separate` and `colorize` in shards."""
WEIGHTS = (14, 4, 8, 4, 1, 5, 8, 3, 10, 1, 4, 5, 8, 12, 10, 3, 9)
"""How often each is drawn: those with more readers more often."""


@dataclass(frozen=True)
class Case:
    """A command line, and what was done to its files."""

    command: str
    words: list[str]
    done: str

    def __str__(self) -> str:
        return f"[{self.done}] {json.dumps(self.words)[:400]}"


class _Maker(Parts):
    """Writes command lines: a method for each kind of case."""

    def separate(self) -> list[str]:
        inputs = [self.file(MIXTURES) for _ in range(self.rng.choice([1, 1, 1, 2]))]
        if self.rng.random() < 0.1:
            inputs = [self.rng.choice(["sample", "mnist", *TEXTS])]
        words = [*inputs, "--out", self.out(), "--prior", self.prior(), *self.sampling()]
        words += self.maybe(0.1, "--prior", self.prior())
        words += self.maybe(0.2, "--alphas", self.number("1", 0.5), self.number("0.5", 0.7))
        words += self.maybe(0.1, "--alphas", self.number("1"), self.number("1"))
        words += self.maybe(0.15, "--k", self.number("2", 0.4))
        words += self.maybe(0.1, "--mask", self.file(PICTURES))
        words += self.maybe(0.05, "--grey")
        words += self.maybe(0.1, "--noise", self.rng.choice(NUMBERS))
        words += self.maybe(0.1, "--count", self.number("2", 0.6))
        words += self.maybe(0.05, "--alphas", "unknown", self.number("unknown", 0.5))
        words += self.maybe(0.03, "--k", "unknown")
        words += self.maybe(0.1, self.rng.choice(["--clipped", "--rounded"]))
        words += self.maybe(0.1, self.rng.choice(["--convert", "--invert", "--resize"]))
        return words + self.maybe(0.1, "--keep", self.rng.choice(NUMBERS))

    def job(self) -> list[str]:
        """Shards: of good and damaged inputs, and in a folder whose own files are damaged."""
        rng = self.rng
        if rng.random() < 0.25:
            words = ["colorize", self.file([*PICTURES, "folder", "images.npy"]), "--prior", "tiny3"]
            words += ["--samples", "1", "--side", "8", "--job", "--out", self.out()]
            words += self.maybe(0.5, "--size", self.number("8"))
            return [*words, *self.maybe(0.3, "--count", self.number("2", 0.5)), *self.shards()]
        if rng.random() < 0.5:  # goes on with a job, or looks a finished one over
            name = rng.choice(["stopped", "store"])
            place = self.folder.parent / "out" / name
            shutil.copytree(self.world / name, place)
            self.done.append(damage(rng, place))
            words = ["separate", str(self.world / "many.npy"), "--prior", "tiny", "--shard", "4"]
            words += ["--sampler", "gibbs", "--steps", "2", "--samples", "32", "--job"]
            return [*words, "--out", f"out/{name}", *self.maybe(0.1, *self.shards())]
        given = self.file(["many.npy", "mixture.npz", "mixture.npy", "folder", *PICTURES])
        words = ["separate", given, "--job", "--prior", self.prior(), "--out", self.out()]
        words += self.maybe(0.3, "--alphas", self.number("0.5", 0.7), self.number("0.5", 0.7))
        words += self.maybe(0.1, "--mask", self.file(PICTURES))
        words += self.maybe(0.1, rng.choice(["--clipped", "--rounded", "--convert", "--invert"]))
        return [*words, *self.sampling(), *self.shards()]

    def colorize(self) -> list[str]:
        photos = [self.file(PICTURES) for _ in range(self.rng.choice([1, 1, 2]))]
        prior = "tiny3" if self.rng.random() < 0.8 else self.prior()
        words = [*photos, "--prior", prior, "--samples", self.number("1"), "--out", self.out()]
        words += [*self.maybe(0.3, "--preview"), *self.maybe(0.3, "--diverse")]
        return [*words, "--side", self.number("8")]

    def mix(self) -> list[str]:
        kinds = (*PICTURES, "images.npy", "mixture.npy", "sound.npy")
        images = [self.text(self.file(kinds)) for _ in range(self.rng.choice([1, 2, 2, 3]))]
        name = self.rng.choice(["m.npz", "m.npy", "m.png", "m.png", "m.txt", "m"])
        words = [*images, "--out", self.out(name)]
        if self.rng.random() < 0.05:
            words[-1] = images[0]
        words += self.maybe(0.4, "--alphas", *[self.number("0.5") for _ in images])
        words += self.maybe(0.2, "--noise", self.number("0.1", 0.5))
        return words + self.maybe(0.2, "--dims", self.number("1", 0.6))

    def evaluate(self) -> list[str]:
        words = ["--data", self.data_set(), "--pairs", self.number("2"), "--prior", self.prior()]
        words += self.maybe(0.2, "--protocol", self.rng.choice(["split", "agnostic", "x"]))
        words += self.maybe(0.1, self.rng.choice(["--clip", "--clipped", "--rounded"]))
        return [*words, *self.sampling(), *self.json()]

    def bench(self) -> list[str]:
        words = ["--data", self.data_set(), "--pairs", self.number("2"), "--prior", self.prior()]
        ways = ["--ways", self.rng.choice(["20", "0", "x", "gibbs-", ""])]
        return [*words, *ways, "--mixtures", "--sources", "--no-times", "--out", self.out()]

    def study(self) -> list[str]:
        if self.rng.random() < 0.2:
            words = ["scale", "--store", self.file(["store", "stopped", "folder"], 0.8)]
            words += ["--separations", self.number("100"), "--losses", self.number("0.01", 0.5)]
            return [*words, "--workers", self.number("2"), "--out", self.out()]
        kinds = ["gradients", "likelihoods", "cost", "weights", "calibration", "x"]
        kind, data = self.rng.choice(kinds), self.data_set()
        if kind == "calibration":  # a minute of work, unless its input is refused before
            data = "out/none"
        words = [kind, "--data", data]
        words += ["--pairs", self.number("2"), "--priors", self.prior(), "--out", self.out()]
        return [*words, *self.sampling(), *self.maybe(0.3, "--sides", self.number("8", 0.6))]

    def distance(self) -> list[str]:
        images = self.file(["store"], 0.8) if self.rng.random() < 0.2 else self.data_set()
        words = [images, self.data_set(), "--splits", self.number("2")]
        if self.rng.random() < 0.8:
            words += ["--network", self.text(self.file(["classifier"]))]
        words += self.maybe(0.2, "--size", self.number("8", 0.7))
        words += self.maybe(0.1, "--weights", self.file(["ncsn.pth"]), "--network", "inception")
        return [*words, *self.maybe(0.3, "--count", self.number("4", 0.5)), *self.json()]

    def reproduce(self) -> list[str]:
        bad = [["--size", self.rng.choice(NUMBERS[8:])], ["--data", self.rng.choice(TEXTS[:13])],
               ["--device", "meta"], ["--seed", "-1"]]  # fmt: skip
        names = [self.rng.choice(["all", "teaser", "colour", "x", "\n"])]
        return [*names, *self.rng.choice(bad[1:]), *self.maybe(0.3, *bad[0]), "--out", self.out()]

    def train(self) -> list[str]:
        rng = self.rng
        words = ["--batch", self.number("4"), "--images", self.number("8", 0.97)]
        words += ["--held-out", self.number("4"), "--variance-images", self.number("0", 0.97)]
        if rng.random() < 0.45:  # goes on with a run whose files are damaged
            run = self.folder.parent / "out" / "run"
            shutil.copytree(self.world / "run", run)
            name = rng.choice(["state.safetensors", "state.safetensors", "log.jsonl", "card.json"])
            self.done.append(damage(rng, run / name))
            data = str(self.world / "images.npz")
            words = ["--batch", "4", "--images", rng.choice(["8", "12"]), "--held-out", "4"]
            more = ["--widths", "8", "--blocks", "1", "--variance-images", "0", "--data", data]
            return [*words, *more, "--out", "out/run"]
        words += ["--data", self.data_set(), "--out", self.out()]
        kinds = {"unet": ["--widths", "8", "--blocks", "1"],
                 "energy": ["--widths", "8", "--blocks", "1"],
                 "glow": ["--width", "4", "--depth", "1"], "ncsn": ["--width", "4"],
                 "vae": ["--width", "4", "--latent", "4"],
                 "pixelcnn": ["--width", "4", "--blocks", "1"]}  # fmt: skip
        kind = rng.choice(list(kinds))
        words += ["--architecture", kind, *kinds[kind]]
        flags = ["--lr", "--adam-lr", "--warmup", "--cooldown", "--average", "--sigma-min",
                 "--seed", "--sigma-max", "--sigma-focus", "--sigma-spread", "--sigma-uniform",
                 "--clip", "--smallest", "--dropout", "--embedding", "--fold", "--attention",
                 "--single",
                 "--threads", "--size", "--classes", "--head-width"]  # fmt: skip
        for flag in rng.sample(flags, rng.choice([0, 1, 1, 2])):
            words += [flag, rng.choice(NUMBERS)]
        words += self.maybe(0.1, "--init", self.prior(0.7))
        return words + self.maybe(0.1, "--name", rng.choice(TEXTS))

    def ladder(self) -> list[str]:
        words = ["--data", self.file(["images.npz"]), "--first", self.number("8"), "--each", "8"]
        words += ["--batch", self.number("8"), "--held-out", "4", "--width", self.number("4", 0.6)]
        return [*words, "--depth", self.number("1", 0.2), "--levels", self.number("1", 0.2),
                "--lr", self.rng.choice(NUMBERS), "--out", self.out()]  # fmt: skip

    def classifier(self) -> list[str]:
        words = ["--data", self.data_set(), "--epochs", self.number("0.1")]
        return [*words, "--out", self.out(), *self.maybe(0.2, "--seed", self.rng.choice(NUMBERS))]

    def sample(self) -> list[str]:
        words = [self.prior(0.5), "--count", self.number("2"), "--steps", self.number("2")]
        return [*words, "--out", self.out(), *self.maybe(0.2, "--seed", self.rng.choice(NUMBERS))]

    def check(self) -> list[str]:
        words = [self.prior(0.4), "--data", self.data_set(), "--count", self.number("12")]
        return [*words, *self.json(), *self.maybe(0.1, "--size", self.number("8"))]

    def priors(self) -> list[str]:
        rng = self.rng
        root = self.folder.parent / "out" / "root"
        shutil.copytree(self.world / "root" / "priors", root / "priors")
        for _ in range(rng.choice([1, 2])):
            self.done.append(damage(rng, root / "priors" / rng.choice(PRIORS)))
        words = rng.choice(
            [[], [rng.choice(PRIORS)], [rng.choice(TEXTS)], ["add", self.prior(0.9)],
             ["add", self.file(["pipeline", "run", "classifier", "folder"]),
              "--name", self.text("n", 0.7)],
             ["add", rng.choice(TEXTS)], [self.prior(0.9)],
             ["measure", f"out/root/priors/{rng.choice(PRIORS)}", "--pairs", self.number("2"),
              "--held-out", self.number("4"), "--effort", "20", "--data", self.data_set()]]
        )  # fmt: skip
        return [*words, "--data-root", "out/root", *self.json()]

    def convert(self) -> list[str]:
        rng = self.rng
        if rng.random() < 0.5:
            words = ["ncsn", self.text(self.file(["ncsn.pth", "old.pth"], 0.75))]
            words += self.maybe(0.5, "--config", self.file(["config.yml"], 0.7))
            words += self.maybe(0.2, "--size", self.number("8", 0.5))
        else:
            for name in ("additive.ckpt.index", "additive.ckpt.data-00000-of-00001"):
                self.file([name], 0.45)
            words = ["glow", str(self.folder / "additive.ckpt"), "--size", self.number("8")]
            words += self.maybe(0.5, "--sigmas", self.number("0.1", 0.6))
        return [*words, "--out", self.out(), *self.maybe(0.1, "--name", rng.choice(TEXTS))]

    def data(self) -> list[str]:
        bad = ["download", self.rng.choice(["x", "", "sample", "\n", "cifar100"])]
        words = self.rng.choice([[], ["list"], bad, ["x"]])
        roots = [self.file(["root", "grey.png", "folder"]), self.rng.choice(TEXTS)]
        return [*words, "--data-root", self.rng.choice(roots), *self.json()]


def make_case(rng: random.Random, folder: Path, world: Path, commands: Sequence[str]) -> Case:
    """A case of one of the commands; its files are written to `folder`."""
    weights = [WEIGHTS[COMMANDS.index(name)] for name in commands]
    command = rng.choices(list(commands), weights)[0]
    maker = _Maker(rng, folder, world)
    words = getattr(maker, command)()
    words = words if command == "job" else [command, *words]
    if "--json" in words:  # a file that is no input may well be named for an output
        at = words.index("--json") + 1
        if words[at].startswith(str(folder)) and words.count(words[at]) == 1:
            words[at] = "out/x.json"
    if rng.random() < 0.02:
        words.insert(rng.randrange(1, len(words) + 1), rng.choice([*TEXTS, *NUMBERS]))
    # A command line cannot hold a zero, and what is not UTF-8 comes as halves of characters.
    return Case(command, [w.replace("\0", "") for w in words], ", ".join(maker.done) or "as it is")
