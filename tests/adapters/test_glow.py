"""Published Glow checkpoints as priors, against log p computed by TensorFlow."""

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from basis.adapters.glow import from_glow
from basis.adapters.tensorflow import read_checkpoint
from basis.errors import BasisError
from basis.priors.prior import Prior

GLOW = Path(__file__).parents[1] / "fixtures" / "glow"


@pytest.mark.parametrize("kind", ["affine", "additive"])
def test_a_flow_saved_by_tensorflow_has_the_likelihood_of_its_graph(kind):
    model = from_glow(GLOW / f"{kind}.ckpt", size=8, sigmas=[0.01]).module.rungs[0]
    known = np.load(GLOW / f"{kind}.npz")
    x = torch.from_numpy(known["images"])
    ours = model.log_prob(x, torch.zeros(len(x)))
    assert torch.allclose(ours, torch.from_numpy(known["log_prob"]), atol=1e-3)
    latents = model.encode(x, torch.zeros(len(x)))
    assert torch.allclose(model.decode(latents, torch.zeros(len(x))), x, atol=1e-4)


def varint(value):
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def block(entries):
    body = b"".join(varint(0) + varint(len(k)) + varint(len(v)) + k + v for k, v in entries)
    return body + struct.pack("<II", 0, 1)


def write_bundle(prefix, variables, compression=0):
    """A checkpoint in TensorFlow's format: float32 variables, one data file, one block."""
    data, entries = b"", [(b"", field(1, 1) + field(3, field(1, 1)))]
    for name in sorted(variables):
        value = np.ascontiguousarray(variables[name], dtype="<f4")
        dims = b"".join(field(2, field(1, size)) for size in value.shape)
        place = field(4, len(data)) + field(5, value.nbytes)
        entries.append((name.encode(), field(1, 1) + field(2, dims) + place))
        data += value.tobytes()
    trailer = bytes([compression]) + b"\0\0\0\0"
    first = block(entries)
    handle = varint(0) + varint(len(first))
    meta = block([])
    index = block([(b"\xff", handle)])
    at_meta = len(first) + 5
    at_index = at_meta + len(meta) + 5
    footer = varint(at_meta) + varint(len(meta)) + varint(at_index) + varint(len(index))
    footer = footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    table = first + trailer + meta + trailer[:0] + b"\0" * 5 + index + b"\0" * 5 + footer
    Path(f"{prefix}.index").write_bytes(table)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(data)


def test_checkpoints_of_any_scope_and_with_averages_are_read(tmp_path):
    variables = read_checkpoint(GLOW / "affine.ckpt")
    plain = {n: t.numpy() for n, t in variables.items()}
    assert plain["model/0/1/invconv/W"].shape == (12, 12)
    assert plain["model/pool0/conv/W"].shape == (3, 3, 7, 12)
    renamed = {f"church_model/{n}": v for n, v in plain.items()}
    # The averaged weights are the ones to take; the others are spoilt here.
    averaged = {f"{n}/ExponentialMovingAverage": v for n, v in renamed.items()}
    spoilt = {n: v + 1 for n, v in renamed.items()}
    write_bundle(tmp_path / "a.ckpt", averaged | spoilt | {"global_step": np.zeros(())})
    x = torch.rand(2, 3, 8, 8)
    ours = from_glow(tmp_path / "a.ckpt", size=8).log_prob(x, 0.0)
    direct = from_glow(GLOW / "affine.ckpt", size=8).log_prob(x, 0.0)
    assert torch.allclose(ours, direct)


def test_published_flows_become_a_ladder(tmp_path):
    files = [GLOW / "affine.ckpt", GLOW / "affine.ckpt.index"]
    made = Prior.from_glow(files, sigmas=[0.01, 1.0], size=8)
    prior = Prior.from_pretrained(made.save(tmp_path / "glow"))
    known = np.load(GLOW / "affine.npz")
    x = torch.from_numpy(known["images"])
    assert torch.allclose(prior.log_prob(x, 0.01), torch.from_numpy(known["log_prob"]), atol=1e-3)
    # Noiseless: published models see (255 x + 1/2) / 256 - 1/2, in units of which log p is given.
    plain = from_glow(GLOW / "affine.ckpt", size=8)
    own = (255 * x + 0.5) / 256
    shift = x[0].numel() * np.log(255 / 256)
    theirs = prior.log_prob(own, 0.01) + shift
    assert torch.allclose(plain.log_prob(x, 0.0), theirs, atol=1e-3)


def test_bad_tensorflow_checkpoints_are_refused(tmp_path):
    def copy(name):
        for suffix in (".index", ".data-00000-of-00001"):
            shutil.copyfile(f"{GLOW}/affine.ckpt{suffix}", tmp_path / f"{name}{suffix}")
        return tmp_path / name

    cut = copy("cut")
    data = Path(f"{cut}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:5000])
    with pytest.raises(BasisError, match="cut short"):
        read_checkpoint(cut)
    data.unlink()
    with pytest.raises(BasisError, match="cannot be read"):
        read_checkpoint(cut)
    index = Path(f"{copy('index')}.index")
    whole = index.read_bytes()
    for bad in (whole[:500], b"", whole[:100] + bytes(200) + whole[300:]):
        index.write_bytes(bad)
        with pytest.raises(BasisError, match="not a TensorFlow checkpoint"):
            read_checkpoint(index)
    variables = {n: t.numpy() for n, t in read_checkpoint(GLOW / "affine.ckpt").items()}
    write_bundle(tmp_path / "packed", variables, compression=1)
    with pytest.raises(BasisError, match="compressed"):
        read_checkpoint(tmp_path / "packed")
    write_bundle(tmp_path / "labels", variables | {"model/prior/y_emb/W": np.zeros((10, 4))})
    with pytest.raises(BasisError, match="class-conditional"):
        from_glow(tmp_path / "labels", size=8)
    del variables["model/1/0/f1/l_2/W"]
    write_bundle(tmp_path / "less", variables)
    with pytest.raises(BasisError, match="1/0/f1/l_2/W"):
        from_glow(tmp_path / "less", size=8)
    with pytest.raises(BasisError, match="divisible by 4"):
        from_glow(GLOW / "affine.ckpt", size=10)
    with pytest.raises(BasisError, match="one level for each"):
        from_glow([GLOW / "affine.ckpt"], sigmas=[], size=8)
    with pytest.raises(BasisError, match=r"none\.ckpt"):
        from_glow(tmp_path / "none.ckpt", size=8)
