# ruff: noqa: E501, SIM117, I001, RUF028
"""The cases of `scripts/fuzz.py`: good files, what is done to them, command lines about them."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

NUMBERS = (
    "0", "-1", "1", "2", "3", "nan", "inf", "-inf", "1e309", "1e-320", "0.5", "1.5", "-0.0", "1e6",
    "999999999999999999999999", "9223372036854775807", "9223372036854775808", "4294967296", "0x10",
    "", " ", "abc", "1_0", "٣", "1e3", "--", "1\n2", "\x1b[31m", "100000", "65537", "1e-9",
)  # fmt: skip
TEXTS = (
    "", "x", "../../x", "/etc/passwd", "hf:a/b", "a/b", "~", "~nobody/x", "\n", "a\nb", "\x1b[2J",
    "a" * 300, "\udcff\udcfe", "%s%n", "$(id)", "sample", "mnist", "cifar10", "tiny", "-", ".", "..",
    "/dev/null", "/dev/zero", "/proc/self/mem", "/proc/self/environ", "CON", "é", "\u202e", "*", "::",
    "sample:3", "sample:99999999999999999999", "sample:-1",
)  # fmt: skip
VALUES = (
    None, True, False, 0, -1, 1, 1.5, 1e300, 10**30, float("nan"), float("inf"), "", "x", "\n", [],
    {}, [1], [[]], {"a": 1}, [10**9, 10**9], [1, 2, 3, 4, 5, 6, 7, 8, 9], "unet", "glow", 65_536,
    [60_000] * 60, 2**40, -(2**70), [None], ["1"], "a" * 100_000, "\x1b[31m\u202e",
)  # fmt: skip
COMMANDS = (
    "separate", "colorize", "mix", "evaluate", "bench", "study", "distance", "reproduce", "train",
    "ladder", "classifier", "sample", "check", "priors", "convert", "data",
)  # fmt: skip
WEIGHTS = (14, 5, 8, 4, 1, 4, 8, 3, 14, 1, 4, 5, 8, 12, 10, 3)
"""How often each command is drawn: those with more readers more often."""


@dataclass(frozen=True)
class Case:
    """A command line, and what was done to its files."""

    command: str
    words: list[str]
    done: str

    def __str__(self) -> str:
        return f"[{self.done}] {json.dumps(self.words)[:400]}"


# Good files --------------------------------------------------------------------------------------


def make_world(world: Path) -> Path:
    """Writes one good file or folder of every kind that is read, once."""
    import numpy as np
    import torch
    from PIL import Image

    world.mkdir(parents=True)
    rng = np.random.default_rng(0)
    digits = rng.integers(0, 256, (24, 8, 8), dtype=np.uint8)
    photos = rng.integers(0, 256, (24, 3, 8, 8), dtype=np.uint8)
    labels = (np.arange(24) % 10).astype(np.int64)
    np.savez_compressed(world / "images.npz", images=digits[:, None], labels=labels)
    np.save(world / "images.npy", digits[:, None])
    np.save(world / "mixture.npy", rng.random((2, 1, 8, 8)).astype("float32"))
    sources = rng.random((2, 2, 1, 8, 8)).astype("float32")
    np.savez(
        world / "mixture.npz", mixture=sources.sum(1), sources=sources, alphas=np.ones(2, "f4")
    )
    np.save(world / "sound.npy", rng.standard_normal((6, 1, 32)).astype("float32"))
    for ending in ("png", "jpg", "bmp", "gif", "webp", "tif", "pgm"):
        Image.fromarray(digits[0]).save(world / f"grey.{ending}")
    Image.fromarray(photos[0].transpose(1, 2, 0)).save(world / "photo.png")
    Image.fromarray(rng.integers(0, 65536, (8, 8), dtype=np.uint16)).save(world / "deep.png")
    (world / "picture.eps.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    idx = bytes([0, 0, 8, 3]) + struct.pack(">III", *digits.shape) + digits.tobytes()
    (world / "x-images-idx3-ubyte").write_bytes(idx)
    (world / "y-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx))
    for name in ("a", "b"):
        (world / "folder" / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(digits[i]).save(world / "folder" / name / f"{i}.png")
    _make_root(world / "root", digits, photos, labels)
    _make_lmdb(world / "church_lmdb", photos)
    _make_models(world)
    torch.manual_seed(0)
    return world


def _make_root(root: Path, digits, photos, labels) -> None:
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in ("train", "t10k"):
        head = bytes([0, 0, 8, 3]) + struct.pack(">III", *digits.shape)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(head + digits.tobytes())
        head = bytes([0, 0, 8, 1]) + struct.pack(">I", len(labels))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.astype("uint8").tobytes())
    import numpy as np

    cifar = root / "cifar-10-batches-py"
    cifar.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (4, 3072), dtype=np.uint8)
    batch = pickle.dumps({b"data": pixels, b"labels": [0, 1, 2, 3]}, protocol=2)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (cifar / name).write_bytes(batch)


def _make_lmdb(folder: Path, photos) -> None:
    try:
        import lmdb
    except ImportError:
        return
    from PIL import Image

    with lmdb.open(str(folder), map_size=1 << 22) as environment:
        with environment.begin(write=True) as transaction:
            for i, photo in enumerate(photos[:8]):
                data = io.BytesIO()
                Image.fromarray(photo.transpose(1, 2, 0)).save(data, "BMP")
                transaction.put(f"{i:04d}".encode(), data.getvalue())
    (folder / "lock.mdb").unlink(missing_ok=True)


def _make_models(world: Path) -> None:
    import torch

    from basis.cli import main
    from basis.nn import (
        NCSN, VAE, Denoiser, Glow, GlowConfig, NCSNConfig, NCSNDenoiser, PixelCNN, PixelCNNConfig,
        UNet, UNetConfig, VAEConfig,
    )  # fmt: skip
    from basis.perception import Classifier, save_classifier
    from basis.priors import DenoiserPrior, Ladder, LikelihoodPrior
    from basis.store import write_prior

    torch.manual_seed(0)
    shelf = world / "root" / "priors"
    networks = {
        "tiny": (Denoiser(UNet(UNetConfig(widths=(8,), blocks=(1,), embedding=8)), 0.4, 0.3), 1),
        "tiny3": (
            Denoiser(UNet(UNetConfig(channels=3, widths=(8,), blocks=(1,), embedding=8)), 0.4, 0.3),
            3,
        ),
        "tiny-glow": (Glow(GlowConfig(size=8, levels=1, depth=1, width=4, conditioned=True)), 1),
        "tiny-ncsn": (NCSNDenoiser(NCSN(NCSNConfig(size=8, width=4, levels=3))), 1),
        "tiny-vae": (VAE(VAEConfig(size=8, width=4, latent=4, embedding=8)), 1),
        "tiny-pixelcnn": (PixelCNN(PixelCNNConfig(width=4, blocks=1, logistics=2, embedding=8)), 1),
        "tiny-ladder": (
            Ladder({s: Glow(GlowConfig(size=8, levels=1, depth=1, width=4)) for s in (0.1, 0.5)}),
            1,
        ),
    }
    for name, (module, channels) in networks.items():
        if hasattr(module, "started"):
            module.started.data.fill_(1.0)
        kind = LikelihoodPrior if hasattr(module, "log_prob") else DenoiserPrior
        low, high = (0.1, 0.5) if name == "tiny-ladder" else (0.01, 1.0)
        prior = kind(module, (channels, 8, 8), low, high, name=name, low=0.0, high=1.0)
        write_prior(prior, shelf / name)
    save_classifier(Classifier(1, 8, 10, 4, 8), world / "classifier", {"accuracy": 0.5})
    network = NCSN(NCSNConfig(size=8, width=4, levels=3))
    state = {f"module.{n}": t for n, t in network.state_dict().items()}
    torch.save([state, {}], world / "ncsn.pth")
    torch.save(state, world / "old.pth", _use_new_zipfile_serialization=False)
    (world / "config.yml").write_text(
        "data:\n  image_size: 8\nmodel:\n  sigma_begin: 1\n  sigma_end: 0.01\n"
    )
    glow = Path(__file__).parent.parent / "tests" / "fixtures" / "glow"
    for path in glow.glob("additive.ckpt*"):
        shutil.copy(path, world)
    words = [
        "train", "--data", str(world / "images.npz"), "--widths", "8", "--blocks", "1", "--batch", "4",
        "--images", "8", "--held-out", "4", "--variance-images", "0", "--out", str(world / "run"),
    ]  # fmt: skip
    assert main(words) == 0
    try:
        import diffusers
    except ImportError:
        return
    model = diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(4, 4),
        norm_num_groups=2, down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2,
    )  # fmt: skip
    model.save_pretrained(world / "pipeline" / "unet")
    diffusers.DDPMScheduler().save_pretrained(world / "pipeline" / "scheduler")


# What is done to them ----------------------------------------------------------------------------


def damage(rng: random.Random, path: Path) -> str:
    """Does something to a file, and says what."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        return damage(rng, rng.choice(files)) if files else "left alone"
    ways: list[Callable[[random.Random, Path], None]] = [_flip, _cut, _stretch, _overwrite, _swap]
    if path.suffix == ".json":
        ways += [_entry] * 12
    elif path.suffix in (".jsonl", ".yml"):
        ways += [_line] * 6
    elif path.suffix == ".safetensors":
        ways += [_header] * 8
    elif path.suffix == ".npz":
        ways += [_member] * 5
    elif path.suffix == ".npy":
        ways += [_shape] * 3
    elif path.name.endswith("_batch") or path.name.startswith("data_batch"):
        ways += [_pickle] * 4
    way = rng.choice([*ways, _special] if rng.random() < 0.3 else ways)
    try:
        way(rng, path)
    except (
        ValueError,
        KeyError,
        OSError,
        AttributeError,
        TypeError,
        struct.error,
        zipfile.BadZipFile,
    ):
        path.write_bytes(rng.randbytes(64))  # it was damaged before
    return f"{way.__name__.strip('_')} {path.name}"


def _flip(rng: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 30])):
        if data:
            data[rng.randrange(min(len(data), rng.choice([16, 200, 10**9])))] = rng.randrange(256)
    path.write_bytes(data)


def _cut(rng: random.Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.choice([0, 1, 7, len(data) // 2, max(0, len(data) - 3)])])


def _stretch(rng: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.choice([1, 100, 5000])))


def _overwrite(rng: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    at, filler = rng.randrange(len(data) + 1), rng.choice([b"\0", b"\xff", b"9", b"[", b"\x42"])
    data[at : at + rng.choice([4, 8, 64])] = filler * rng.choice([4, 8, 64])
    path.write_bytes(data)


def _swap(rng: random.Random, path: Path) -> None:
    """The bytes of a file of another kind under this one's name."""
    path.write_bytes(
        rng.choice(
            [
                b"",
                b"\0" * 100,
                b"{}",
                b"[]",
                b"null",
                b"PK\x05\x06" + b"\0" * 18,
                b"\x1f\x8b\x08",
                b"\x80\x02cos\nsystem\n(S'exit 9'\ntR.",
                b"%!PS-Adobe-3.0",
                b"\x89PNG\r\n\x1a\n",
                b"GIF89a",
                b"\x93NUMPY",
                b"\xff" * 8,
                "é".encode("latin-1"),
                rng.randbytes(300),
            ]
        )  # fmt: skip
    )


def _special(rng: random.Random, path: Path) -> None:
    """Something that is no file of bytes under this name."""
    path.unlink()
    kind = rng.randrange(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/nowhere"]))
    # else: it is not there at all


def _places(value, path=()) -> list[tuple]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else ()
    for key, item in items:
        found += _places(item, (*path, key))
    return found


def _entry(rng: random.Random, path: Path) -> None:
    """A JSON file with an entry changed, taken away or added."""
    value = json.loads(path.read_text())
    _change(rng, value)
    path.write_text(json.dumps(value))


def _change(rng: random.Random, value: dict) -> None:
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        places = _places(value)
        place = rng.choice(places)
        at = value
        for key in place[:-1]:
            at = at[key]
        if rng.random() < 0.15:
            at.pop(place[-1], None)
        elif rng.random() < 0.1:
            at["unknown"] = rng.choice(VALUES)
        else:
            at[place[-1]] = rng.choice(VALUES)


def _line(rng: random.Random, path: Path) -> None:
    lines = path.read_text().splitlines() or [""]
    at = rng.randrange(len(lines))
    key = lines[at].split(":")[0]
    lines[at] = rng.choice(
        [f"{key}: {rng.choice(NUMBERS)}", json.dumps(rng.choice(VALUES)), "[" * 3000, "",
         json.dumps({"step": rng.choice(VALUES), "images": rng.choice(VALUES)}),
         json.dumps({"step": 1, "images": 2, "loss": rng.choice(VALUES)}),
         json.dumps({"step": 1, "images": 2, "held_out": rng.choice(VALUES)})]
    )  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def _header(rng: random.Random, path: Path) -> None:
    """A safetensors file with its header changed: shapes, types, places, metadata."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.get("__metadata__", {})
    told = next((k for k in ("training", "classifier") if k in metadata), None)
    if told and rng.random() < 0.7:
        inner = json.loads(metadata[told])
        _change(rng, inner)
        metadata[told] = json.dumps(inner)
    else:
        _change(rng, header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def _member(rng: random.Random, path: Path) -> None:
    """An .npz with a member changed: another name, shape, type, or a bomb of zeros."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    way = rng.randrange(6)
    if way == 0:
        members[rng.choice(["../x.npy", "x.txt", "images", "\n.npy"])] = members.pop(name)
    elif way == 1:
        members[name] = members[name][: rng.choice([0, 5, 100])]
    elif way == 2:
        members[name] = _npy(rng) + bytes(rng.choice([0, 100]))
    elif way == 3:
        members[name] = _npy(rng, "(20000000, 1, 8, 8)") + bytes(64 * 10**6)
    elif way == 4:
        members = {}
    else:
        members[name] = rng.randbytes(50)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for key, data in members.items():
            archive.writestr(key, data)


def _npy(rng: random.Random, shape: str = "") -> bytes:
    shape = shape or rng.choice(
        ["()", "(0,)", "(1, 8, 8)", "(999999999999,)", "(-1, 8)", "(8, 8)", "(1, 1, 0, 8)", "(2, 3, 4, 5)",
         "(1, 2, 1, 8, 8)", "(1" + ", 1" * 40 + ")", "(True, 8)", "'x'", "(1, 1, 8, 8)"]
    )  # fmt: skip
    kind = rng.choice(
        ["|u1", "<f4", "<f8", "|O", "<c8", "|b1", "|S0", "<M8[s]", "|V4", "<i8", "x", "<f2"]
    )
    text = f"{{'descr': '{kind}', 'fortran_order': {rng.choice(['True', 'False'])}, 'shape': {shape}, }}"
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def _shape(rng: random.Random, path: Path) -> None:
    path.write_bytes(_npy(rng) + rng.randbytes(rng.choice([0, 64, 256, 4096])))


def _pickle(rng: random.Random, path: Path) -> None:
    import numpy as np

    rebuild = np.empty(0).__reduce__()[0]

    class Odd:
        def __reduce__(self):
            kind = rng.choice(["V8", "O", "u1", "f8", "V8"])
            flags = rng.choice([0, 1, 63, 255, -1])
            kept = (rng.choice([3, 4]), "|", None, None, None, 8, 8, flags)
            return (np.dtype, (kind, False, True), kept)

    class Array:
        def __reduce__(self):
            shape = rng.choice([(1, 3072), (2**40,), (-1, 3072), (1,), ()])
            state = (1, shape, Odd(), rng.choice([False, True]), b"\x42" * rng.choice([8, 3072]))
            return (rebuild, (np.ndarray, (0,), b"b"), state)

    class Call:
        def __reduce__(self):
            return (rng.choice([os.system, print, eval]), ("1",))

    data = rng.choice([Array(), Call(), np.zeros((1, 3072)), np.zeros((2, 3072), "u1"), b"x", 3])
    labels = rng.choice([[0], [True], ["x"], 7, [10**30], [0, 1]])
    value = rng.choice([{b"data": data, b"labels": labels}, [data], data])
    path.write_bytes(pickle.dumps(value, protocol=rng.choice([0, 1, 2, 4, 5])))


# Command lines -----------------------------------------------------------------------------------

DATA = (
    "images.npz", "images.npy", "x-images-idx3-ubyte", "y-images-idx3-ubyte.gz", "folder",
    "root/cifar-10-batches-py", "church_lmdb", "root/MNIST/raw", "grey.png", "sound.npy",
)  # fmt: skip
PICTURES = (
    "grey.png", "grey.jpg", "grey.bmp", "grey.gif", "grey.webp", "grey.tif", "grey.pgm", "photo.png",
    "deep.png", "picture.eps.png",
)  # fmt: skip
MIXTURES = ("mixture.npz", "mixture.npz", "mixture.npy", "mixture.npy", *PICTURES)
PRIORS = (
    "tiny", "tiny", "tiny3", "tiny-glow", "tiny-ncsn", "tiny-vae", "tiny-pixelcnn", "tiny-ladder",
)  # fmt: skip


class _Maker:
    """Puts the files of a case in place and writes its command line."""

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
        if not to.exists():
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
        return words + self.maybe(0.1, "--keep", self.rng.choice(NUMBERS))

    def colorize(self) -> list[str]:
        photos = [self.file(PICTURES) for _ in range(self.rng.choice([1, 1, 2]))]
        prior = "tiny3" if self.rng.random() < 0.8 else self.prior()
        words = [*photos, "--prior", prior, "--samples", self.number("1"), "--out", self.out()]
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

    def _data(self) -> str:
        return self.text(self.file(DATA))

    def evaluate(self) -> list[str]:
        words = ["--data", self._data(), "--pairs", self.number("2"), "--prior", self.prior()]
        words += self.maybe(0.2, "--protocol", self.rng.choice(["split", "agnostic", "x"]))
        return [*words, *self.sampling(), *self.json()]

    def bench(self) -> list[str]:
        words = ["--data", self._data(), "--pairs", self.number("2"), "--prior", self.prior()]
        ways = ["--ways", self.rng.choice(["20", "0", "x", "gibbs-", ""])]
        return [*words, *ways, "--mixtures", "--sources", "--no-times", "--out", self.out()]

    def study(self) -> list[str]:
        words = [self.rng.choice(["gradients", "likelihoods", "cost", "x"]), "--data", self._data()]
        words += ["--pairs", self.number("2"), "--priors", self.prior(), "--out", self.out()]
        return [*words, *self.sampling(), *self.maybe(0.3, "--sides", self.number("8", 0.6))]

    def distance(self) -> list[str]:
        words = [self._data(), self._data(), "--splits", self.number("2")]
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
        words = ["--batch", self.number("4"), "--images", self.number("8", 0.97),
                 "--held-out", self.number("4"), "--variance-images", self.number("0", 0.97)]  # fmt: skip
        if rng.random() < 0.45:  # goes on with a run whose files are damaged
            run = self.folder.parent / "out" / "run"
            shutil.copytree(self.world / "run", run)
            name = rng.choice(["state.safetensors", "state.safetensors", "log.jsonl", "card.json"])
            self.done.append(damage(rng, run / name))
            data = str(self.world / "images.npz")
            words = ["--batch", "4", "--images", rng.choice(["8", "12"]), "--held-out", "4"]
            more = ["--widths", "8", "--blocks", "1", "--variance-images", "0", "--data", data]
            return [*words, *more, "--out", "out/run"]
        words += ["--data", self._data(), "--out", self.out()]
        kinds = {"unet": ["--widths", "8", "--blocks", "1"], "glow": ["--width", "4", "--depth", "1"],
                 "ncsn": ["--width", "4"], "vae": ["--width", "4", "--latent", "4"],
                 "pixelcnn": ["--width", "4", "--blocks", "1"]}  # fmt: skip
        kind = rng.choice(list(kinds))
        words += ["--architecture", kind, *kinds[kind]]
        flags = ["--lr", "--adam-lr", "--warmup", "--cooldown", "--average", "--sigma-min", "--seed",
                 "--sigma-max", "--sigma-focus", "--sigma-spread", "--sigma-uniform", "--clip",
                 "--smallest", "--dropout", "--embedding", "--fold", "--attention", "--single",
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
        words = ["--data", self._data(), "--epochs", self.number("0.1")]
        return [*words, "--out", self.out(), *self.maybe(0.2, "--seed", self.rng.choice(NUMBERS))]

    def sample(self) -> list[str]:
        words = [self.prior(0.5), "--count", self.number("2"), "--steps", self.number("2")]
        return [*words, "--out", self.out(), *self.maybe(0.2, "--seed", self.rng.choice(NUMBERS))]

    def check(self) -> list[str]:
        words = [self.prior(0.4), "--data", self._data(), "--count", self.number("12")]
        return [*words, *self.json(), *self.maybe(0.1, "--size", self.number("8"))]

    def priors(self) -> list[str]:
        rng = self.rng
        root = self.folder.parent / "out" / "root"
        shutil.copytree(self.world / "root" / "priors", root / "priors")
        for _ in range(rng.choice([1, 2])):
            self.done.append(damage(rng, root / "priors" / rng.choice(PRIORS)))
        words = rng.choice(
            [[], [rng.choice(PRIORS)], [rng.choice(TEXTS)], ["add", self.prior(0.9)],
             ["add", self.file(["pipeline", "run", "classifier", "folder"]), "--name", self.text("n", 0.7)],
             ["add", rng.choice(TEXTS)], [self.prior(0.9)]]
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


def make_case(rng: random.Random, folder: Path, world: Path, commands: Sequence[str]) -> Case:
    """A case of one of the commands; its files are written to `folder`."""
    weights = [WEIGHTS[COMMANDS.index(name)] for name in commands]
    command = rng.choices(list(commands), weights)[0]
    maker = _Maker(rng, folder, world)
    words = [command, *getattr(maker, command)()]
    if "--json" in words:  # a file that is no input may well be named for an output
        at = words.index("--json") + 1
        if words[at].startswith(str(folder)) and words.count(words[at]) == 1:
            words[at] = "out/x.json"
    if rng.random() < 0.02:
        words.insert(rng.randrange(1, len(words) + 1), rng.choice([*TEXTS, *NUMBERS]))
    # A command line cannot hold a zero, and what is not UTF-8 comes as halves of characters.
    return Case(command, [w.replace("\0", "") for w in words], ", ".join(maker.done) or "as it is")
