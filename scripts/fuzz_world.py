# ruff: noqa: SIM117
"""The good files of `scripts/fuzz.py`: one of every kind that is read."""

from __future__ import annotations

import contextlib
import gzip
import io
import pickle
import shutil
import struct
from pathlib import Path


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
    _make_jobs(world, rng.random((12, 1, 8, 8)).astype("float32"))
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


def _make_jobs(world: Path, mixtures) -> None:
    """A job that was stopped after two of its three shards, and the store of a finished one."""
    import numpy as np

    from basis.jobs.job import separate_job
    from basis.jobs.runner import ShardProgress
    from basis.store.loading import load_prior

    np.save(world / "many.npy", mixtures)
    prior = load_prior(world / "root" / "priors" / "tiny")

    def stop(progress: ShardProgress) -> None:
        if progress.now >= 8:
            raise InterruptedError

    for name, progress in (("stopped", stop), ("store", None)):
        with contextlib.suppress(InterruptedError):
            separate_job(
                mixtures, prior, world / name, shard=4, progress=progress,
                sampler="gibbs", steps=2, samples=32,
            )  # fmt: skip
    assert (world / "stopped" / "shards").is_dir()
    assert (world / "store" / "store.json").is_file()


def _make_models(world: Path) -> None:
    import torch

    from basis.cli import main
    from basis.lab.classifier import Classifier
    from basis.lab.inception import save_classifier
    from basis.nn.energy import Energy
    from basis.nn.glow import Glow, GlowConfig
    from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
    from basis.nn.unet import Denoiser, UNet, UNetConfig
    from basis.priors.denoiser import DenoiserPrior
    from basis.priors.likelihood import Ladder, LikelihoodPrior
    from basis.store.folder import write_prior

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
        "tiny-energy": (
            Energy(UNet(UNetConfig(widths=(8,), blocks=(1,), embedding=8)), 0.4, 0.3),
            1,
        ),
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
        prior = kind(module, (channels, 8, 8), low, high, name=name, value_range=(0.0, 1.0))
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
        "train", "--data", str(world / "images.npz"), "--widths", "8", "--blocks", "1", "--batch",
        "4", "--images", "8", "--held-out", "4", "--variance-images", "0", "--out",
        str(world / "run"),
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
