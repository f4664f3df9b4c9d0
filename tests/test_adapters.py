"""Models of other libraries as priors, each against the library itself."""

import json
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from basis._check import check_prior, verdict
from basis._separate import separate
from basis.adapters.azula import from_azula
from basis.adapters.diffusers import from_diffusers
from basis.adapters.glow import from_glow, read_checkpoint
from basis.adapters.ncsn import from_ncsn
from basis.cli import main
from basis.errors import BasisError
from basis.metrics import psnr
from basis.nn.ncsn import NCSN, NCSNConfig, NCSNDenoiser
from basis.priors.gaussian import GaussianMixture
from basis.signals.datasets import load_images
from basis.store.folder import write_prior
from basis.store.loading import add_prior, list_priors, load_prior

diffusers = pytest.importorskip("diffusers")

GLOW = Path(__file__).parent / "fixtures" / "glow"


class Bomb:
    """A pickle that would leave a file behind if it were executed."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def tiny_unet(**settings):
    torch.manual_seed(0)
    config = {
        "sample_size": 8,
        "in_channels": 1,
        "out_channels": 1,
        "layers_per_block": 1,
        "block_out_channels": (8, 16),
        "down_block_types": ("DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D"),
        "norm_num_groups": 4,
        "add_attention": False,
    }
    return diffusers.UNet2DModel(**config | settings).eval()


# ---------------------------------------------------------------- diffusers


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("betas", ["linear", "squaredcos_cap_v2"])
def test_vp_models_denoise_as_their_own_scheduler(prediction, betas):
    model = tiny_unet()
    scheduler = diffusers.DDPMScheduler(
        prediction_type=prediction, beta_schedule=betas, clip_sample=False
    )
    prior = from_diffusers(model, scheduler)
    x = torch.rand(2, 1, 8, 8)
    for t in (3, 250, 900):
        kept = scheduler.alphas_cumprod[t].double()
        sigma = ((1 - kept) / kept).sqrt().item()
        noisy = kept.sqrt().float() * (2 * x - 1)
        with torch.no_grad():
            out = model(noisy, t).sample
            theirs = scheduler.step(out, t, noisy).pred_original_sample
        # Half of it: sigma is in pixels of [0, 1] here, and theirs are of [-1, 1].
        ours = prior.denoise(x, sigma / 2)
        assert torch.allclose(2 * ours - 1, theirs, atol=1e-5 * max(1, sigma))


def test_time_is_continuous_in_sigma():
    prior = from_diffusers(tiny_unet(), diffusers.DDPMScheduler())
    table = prior.module.table
    assert torch.allclose(prior.module.time(table.exp()), torch.arange(1000.0).to(table), atol=1e-6)
    between = ((table[10] + table[11]) / 2).exp()
    assert prior.module.time(between[None]).item() == pytest.approx(10.5, abs=1e-6)
    assert prior.sigma_min == pytest.approx(0.005, rel=0.01) and prior.sigma_max > 50


def test_variance_exploding_models_answer_with_the_score():
    model = tiny_unet(time_embedding_type="fourier")
    prior = from_diffusers(model, diffusers.ScoreSdeVeScheduler(sigma_min=0.01, sigma_max=50.0))
    x = torch.rand(3, 1, 8, 8)
    sigma = torch.tensor([0.05, 0.5, 5.0])
    with torch.no_grad():
        score = model(x, sigma).sample
    assert torch.allclose(prior.score(x, sigma), score, atol=1e-5 * score.abs().max())
    assert (prior.sigma_min, prior.sigma_max) == pytest.approx((0.01, 50.0))


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
def test_edm_models_are_preconditioned_as_their_scheduler_does(prediction):
    model = tiny_unet()
    scheduler = diffusers.EDMEulerScheduler(prediction_type=prediction)
    prior = from_diffusers(model, scheduler)
    x, sigma = torch.rand(2, 1, 8, 8), torch.tensor(0.4)
    own, s = 2 * x - 1, 2 * sigma
    with torch.no_grad():
        out = model(scheduler.precondition_inputs(own, s), scheduler.precondition_noise(s)).sample
        theirs = scheduler.precondition_outputs(own, out, s)
    assert torch.allclose(2 * prior.denoise(x, sigma) - 1, theirs, atol=1e-5)


def test_a_pipeline_is_a_prior_from_its_folder(tmp_path, capsys):
    model = tiny_unet()
    pipeline = diffusers.DDPMPipeline(model, diffusers.DDPMScheduler(clip_sample=False))
    pipeline.save_pretrained(tmp_path / "pipe")
    x = torch.rand(2, 1, 8, 8)
    # What is loaded lays its convolutions out for speed; what was given is left as it is.
    theirs = from_diffusers(pipeline).denoise(x, 0.3)
    loaded = load_prior(tmp_path / "pipe")
    assert torch.allclose(loaded.denoise(x, 0.3), theirs, atol=1e-6)
    direct = loaded
    result = separate(torch.rand(1, 1, 8, 8), loaded, effort=20)
    assert result.sources.shape == (1, 2, 1, 8, 8)

    # The older layout: everything in one folder, weights as a pickle of tensors.
    flat = tmp_path / "flat"
    model.save_pretrained(flat, safe_serialization=False)
    pipeline.scheduler.save_pretrained(flat)
    assert torch.equal(load_prior(flat).denoise(x, 0.3), direct.denoise(x, 0.3))

    root = str(tmp_path / "root")
    assert (
        main(["priors", "add", str(tmp_path / "pipe"), "--name", "mine", "--data-root", root]) == 0
    )
    assert torch.equal(load_prior("mine", root=root).denoise(x, 0.3), direct.denoise(x, 0.3))
    assert "mine" in [e.name for e in list_priors(root)]
    capsys.readouterr()
    assert (
        main(["priors", "add", str(tmp_path / "pipe"), "--name", "mine", "--data-root", root]) == 2
    )
    assert "already" in capsys.readouterr().err


def test_hostile_and_broken_pipelines_are_refused(tmp_path):
    model, scheduler = tiny_unet(), diffusers.DDPMScheduler()
    diffusers.DDPMPipeline(model, scheduler).save_pretrained(tmp_path / "good")

    def broken(name):
        return Path(shutil.copytree(tmp_path / "good", tmp_path / name))

    weights = "unet/diffusion_pytorch_model.safetensors"
    bomb = broken("bomb")
    (bomb / weights).unlink()
    torch.save({"a": Bomb(tmp_path / "boom")}, bomb / "unet/diffusion_pytorch_model.bin")
    with pytest.raises(BasisError, match="refused"):
        load_prior(bomb)
    assert not (tmp_path / "boom").exists()

    cut = broken("cut")
    data = (cut / weights).read_bytes()
    (cut / weights).write_bytes(data[: len(data) // 2])
    with pytest.raises(BasisError, match="damaged"):
        load_prior(cut)

    other = broken("other")
    config = json.loads((other / "unet/config.json").read_text())
    (other / "unet/config.json").write_text(json.dumps(config | {"block_out_channels": [16, 16]}))
    with pytest.raises(BasisError):
        load_prior(other)
    (other / "scheduler/scheduler_config.json").write_text('{"_class_name": "os.system"}')
    with pytest.raises(BasisError, match="not one of diffusers' own"):
        load_prior(other)
    (other / "scheduler/scheduler_config.json").write_text("{")
    with pytest.raises(BasisError, match="cannot be read"):
        load_prior(other)
    with pytest.raises(BasisError, match="class-conditional"):
        from_diffusers(tiny_unet(num_class_embeds=3), scheduler)
    with pytest.raises(BasisError, match="alphas_cumprod"):
        from_diffusers(model, diffusers.FlowMatchEulerDiscreteScheduler())
    with pytest.raises(BasisError, match="needs a pipeline"):
        from_diffusers(model)


@pytest.mark.slow
def test_a_small_diffusers_model_trained_on_digits_separates():
    digits = load_images("sample", "test").images.float() / 255
    digits = nn.functional.avg_pool2d(digits, 2)[:, :, 1:13, 1:13]
    train, test = digits[:480], digits[480:]
    model = tiny_unet(sample_size=12, block_out_channels=(16, 32)).train()
    scheduler = diffusers.DDPMScheduler(clip_sample=False)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)
    for step in range(300):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (300 - step) / 150)
        clean = 2 * train[torch.randint(len(train), (32,), generator=generator)] - 1
        noise = torch.randn(clean.shape, generator=generator)
        t = torch.randint(1000, (32,), generator=generator)
        out = model(scheduler.add_noise(clean, noise, t), t).sample
        loss = (out - noise).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    prior = from_diffusers(model, scheduler)
    truth = test[:8].view(4, 2, 1, 12, 12)
    mixture = truth.sum(dim=1)
    # A weak prior leaves much open: the mean of several draws is its best answer.
    result = separate(mixture, prior, sampler="gibbs", steps=48, samples=4)
    average = (mixture / 2)[:, None].expand_as(truth)
    assert (
        psnr(result.mean, truth, permute=True).mean()
        > psnr(average, truth, permute=True).mean() + 1.0
    )

    # The classic mistakes with such a model, by name.
    assert all(f.sound for f in check_prior(prior, test) if f.name in ("quantity", "range"))
    other = diffusers.DDPMScheduler(clip_sample=False, prediction_type="sample")
    assert "wrong prediction type" in verdict(check_prior(from_diffusers(model, other), test))
    unconverted = from_diffusers(model, scheduler, model_range=(0.0, 1.0))
    assert "not sound" in verdict(check_prior(unconverted, test))


# ---------------------------------------------------------------- azula


def test_azula_denoisers_are_priors():
    azula = pytest.importorskip("azula.denoise")
    from azula.linalg.covariance import DiagonalCovariance
    from azula.noise import VESchedule, VPSchedule

    mean, variance = torch.rand(1, 4, 4).double(), torch.rand(1, 4, 4).double() + 0.1
    x = torch.rand(2, 1, 4, 4).double()
    for schedule in (VPSchedule(), VESchedule()):
        theirs = azula.GaussianDenoiser(mean, DiagonalCovariance(variance), schedule)
        prior = from_azula(theirs, (1, 4, 4), model_range=(0.0, 1.0))
        s2 = 0.3**2
        exact = mean + variance / (variance + s2) * (x - mean)
        assert torch.allclose(prior.denoise(x, 0.3), exact, atol=1e-6)
        shifted = from_azula(theirs, (1, 4, 4))  # the same in [-1, 1]
        own, s2 = 2 * x - 1, 0.6**2
        exact = mean + variance / (variance + s2) * (own - mean)
        assert torch.allclose(2 * shifted.denoise(x, 0.3) - 1, exact, atol=1e-6)
    with pytest.raises(BasisError, match="azula Denoiser"):
        from_azula(lambda x, t: x, (1, 4, 4))


def test_an_azula_network_answers_the_same_as_a_prior():
    azula = pytest.importorskip("azula.denoise")
    from azula.noise import VPSchedule

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.conv = nn.Conv2d(1, 1, 3, padding=1)

        def forward(self, x, t):
            return self.conv(x) * (1 + t.view(-1, 1, 1, 1) / 10)

    theirs = azula.KarrasDenoiser(Net(), VPSchedule())
    prior = from_azula(theirs, (1, 8, 8))
    x, sigma = torch.rand(3, 1, 8, 8), torch.tensor([0.05, 0.4, 3.0])
    t = prior.module.time(2 * sigma.double()).float()
    alpha, noise = theirs.schedule(t)
    assert torch.allclose(noise / alpha, 2 * sigma, rtol=1e-4)
    with torch.no_grad():
        mean = theirs(alpha.view(-1, 1, 1, 1) * (2 * x - 1), t).mean
    assert torch.allclose(2 * prior.denoise(x, sigma) - 1, mean, atol=1e-5)
    assert separate(torch.rand(1, 1, 8, 8), prior, effort=20).sources.shape == (1, 2, 1, 8, 8)


# ---------------------------------------------------------------- NCSN


def published_ncsn(path, **entries):
    """A checkpoint as the authors' trainer writes it: DataParallel state, optimizer state."""
    torch.manual_seed(0)
    network = NCSN(NCSNConfig(channels=1, size=8, width=8, levels=10))
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.rand(1, 1, 8, 8), torch.tensor([3])).sum().backward()
    optimizer.step()
    state = nn.DataParallel(network).state_dict()
    torch.save([state | entries, optimizer.state_dict()], path)
    return network


CONFIG = """\
!!python/object:argparse.Namespace
data: !!python/object:argparse.Namespace
  channels: 1
  dataset: MNIST
  image_size: 8
  logit_transform: false
model: !!python/object:argparse.Namespace
  ngf: 8
  num_classes: 10
  sigma_begin: 1.0
  sigma_end: 0.02
"""


def test_published_ncsn_checkpoints_become_priors(tmp_path, capsys):
    network = published_ncsn(tmp_path / "checkpoint.pth")
    (tmp_path / "config.yml").write_text(CONFIG)
    words = [str(tmp_path / "checkpoint.pth"), "--config", str(tmp_path / "config.yml")]
    assert main(["lab", "convert", "ncsn", *words, "--out", str(tmp_path / "ncsn")]) == 0
    prior = load_prior(tmp_path / "ncsn")
    assert (prior.shape, prior.sigma_min, prior.sigma_max) == ((1, 8, 8), 0.02, 1.0)
    levels = NCSNDenoiser(prior.module.network).levels
    x = torch.rand(4, 1, 8, 8)
    for index in (0, 4, 9):
        with torch.no_grad():
            score = network(x, torch.full((4,), index))
        ours = prior.score(x, levels[index].item())
        assert torch.allclose(ours, score, atol=1e-5 * max(1, 1 / levels[index].item() ** 2))
    assert separate(x[:1], prior, effort=20).sources.shape == (1, 2, 1, 8, 8)
    direct = from_ncsn(tmp_path / "checkpoint.pth", tmp_path / "config.yml")
    assert torch.allclose(direct.score(x, 0.1), prior.score(x, 0.1), atol=1e-4)


def test_bad_ncsn_checkpoints_are_refused(tmp_path):
    path = tmp_path / "checkpoint.pth"
    published_ncsn(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BasisError, match=r"checkpoint\.pth"):
        from_ncsn(path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(BasisError, match="damaged"):
        from_ncsn(path)
    path.write_bytes(pickle.dumps([{"a": Bomb(tmp_path / "boom")}]))
    with pytest.raises(BasisError, match="refused"):
        from_ncsn(path)
    torch.save([{"a": Bomb(tmp_path / "boom")}, {}], path)
    with pytest.raises(BasisError, match="refused"):
        from_ncsn(path)
    assert not (tmp_path / "boom").exists()
    torch.save([{"module.other": torch.zeros(3)}], path)
    with pytest.raises(BasisError, match="not a published NCSN"):
        from_ncsn(path)
    published_ncsn(path, **{"module.extra.weight": torch.zeros(2)})
    with pytest.raises(BasisError, match="does not fit"):
        from_ncsn(path)
    published_ncsn(path)
    (tmp_path / "config.yml").write_text("data:\n  image_size: 8\n  logit_transform: true\n")
    with pytest.raises(BasisError, match="logit"):
        from_ncsn(path, tmp_path / "config.yml")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- Glow of TensorFlow


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


def test_published_flows_become_a_ladder_that_separates(tmp_path, capsys):
    files = [str(GLOW / "affine.ckpt"), str(GLOW / "affine.ckpt.index")]
    words = ["--sigmas", "0.01", "1.0", "--size", "8", "--out", str(tmp_path / "glow")]
    assert main(["lab", "convert", "glow", *files, *words]) == 0
    prior = load_prior(tmp_path / "glow")
    known = np.load(GLOW / "affine.npz")
    x = torch.from_numpy(known["images"])
    assert torch.allclose(prior.log_prob(x, 0.01), torch.from_numpy(known["log_prob"]), atol=1e-3)
    result = separate(x[:1], prior, sampler="basis", steps=2, delta=1e-8)
    assert result.sources.shape == (1, 2, 3, 8, 8)
    # Noiseless: published models see (255 x + 1/2) / 256 - 1/2, in units of which log p is given.
    plain = from_glow([GLOW / "affine.ckpt"], sigmas=[0.0], size=8)
    own = (255 * x + 0.5) / 256
    shift = x[0].numel() * np.log(255 / 256)
    theirs = prior.log_prob(own, 0.01) + shift
    assert torch.allclose(plain.log_prob(x, 0.0), theirs, atol=1e-3)


def test_bad_tensorflow_checkpoints_are_refused(tmp_path, capsys):
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
    assert (
        main(["lab", "convert", "glow", str(tmp_path / "none.ckpt"), "--out", str(tmp_path / "o")])
        == 2
    )
    assert len(capsys.readouterr().err.splitlines()) == 1


# ---------------------------------------------------------------- sharing


def test_priors_are_saved_and_added(tiny_prior, tmp_path, monkeypatch):
    folder = write_prior(tiny_prior, tmp_path / "tiny", title="a test", license="MIT")
    x = torch.rand(2, 1, 8, 8)
    again = load_prior(folder)
    assert torch.equal(again.denoise(x, 0.2), tiny_prior.denoise(x, 0.2))
    assert again.card.license == "MIT" and len(again.card.sha256) == 64
    assert again.value_range == (0.0, 1.0) and again.std == tiny_prior.std
    entry = add_prior(folder, root=tmp_path / "root")
    assert entry.name == "tiny"
    assert torch.equal(
        load_prior("tiny", root=tmp_path / "root").denoise(x, 0.2), again.denoise(x, 0.2)
    )
    with pytest.raises(BasisError, match="cannot be called"):
        add_prior(folder, name="../up", root=tmp_path / "root")
    (folder / "weights.safetensors").write_bytes(b"changed")
    with pytest.raises(BasisError, match="checksum"):
        add_prior(folder, name="other", root=tmp_path / "root")
    assert [p.name for p in (tmp_path / "root" / "priors").iterdir()] == ["tiny"]
    with pytest.raises(BasisError, match="not a network"):
        write_prior(GaussianMixture(torch.rand(1, 1, 2, 2), torch.ones(1)), tmp_path / "g")


def test_hub_names_are_fetched_and_absence_is_told(tiny_prior, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    folder = write_prior(tiny_prior, tmp_path / "snapshot")
    asked = []

    def snapshot(name, revision, allow_patterns):
        asked.append((f"{name} at {revision}", allow_patterns))
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    x = torch.rand(1, 1, 8, 8)
    prior = load_prior("hf:someone/digits@v1")
    assert torch.equal(prior.denoise(x, 0.1), tiny_prior.denoise(x, 0.1))
    assert {name for name, _ in asked} == {"someone/digits at v1"}
    assert not any(p.endswith((".py", ".pt", ".pkl", "*")) for _, ps in asked for p in ps)
    assert add_prior("hf:someone/digits@v1", root=tmp_path / "root").name == "digits"
    monkeypatch.undo()

    def absent(name, revision, allow_patterns):
        raise hub.errors.LocalEntryNotFoundError("no connection\nand more lines")

    monkeypatch.setattr(hub, "snapshot_download", absent)
    with pytest.raises(BasisError, match="cannot be had from the model hub: no connection") as told:
        load_prior("hf:someone/digits@v1")
    assert "\n" not in str(told.value)


def test_packages_register_priors(tmp_path):
    """A real installed package, seen by a fresh interpreter."""
    (tmp_path / "toypriors.py").write_text(
        "import torch, basis\n"
        "def dots():\n"
        "    return basis.GaussianMixture(torch.rand(2, 1, 4, 4), torch.full((2,), 0.01))\n"
        "def wrong():\n    return 3\n"
        "def broken():\n    raise RuntimeError('no weights here')\n"
    )
    info = tmp_path / "toypriors-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toypriors\nVersion: 1.0\n")
    names = "\n".join(f"{n} = toypriors:{n}" for n in ("dots", "wrong", "broken"))
    (info / "entry_points.txt").write_text(f"[basis.priors]\n{names}\n")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import basis\n"
        "from basis.cli import main\n"
        "assert basis.load_prior('dots').shape == (1, 4, 4)\n"
        "for name in ('wrong', 'broken'):\n"
        "    try: basis.load_prior(name)\n"
        "    except basis.BasisError as error: print(error)\n"
        "main(['priors']); main(['priors', 'dots'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "'wrong': toypriors:wrong did not return a Prior" in done.stdout
    assert "RuntimeError: no weights here" in done.stdout
    assert done.stdout.count("made by the package toypriors") == 4
