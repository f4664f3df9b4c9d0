"""diffusers models as priors, against diffusers itself."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from basis.adapters.diffusers import from_diffusers
from basis.cli import main
from basis.errors import BasisError
from basis.store.loading import add_prior, load_prior

diffusers = pytest.importorskip("diffusers")


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
    # A loaded prior has another memory layout, for speed.
    theirs = from_diffusers(pipeline).denoise(x, 0.3)
    loaded = load_prior(tmp_path / "pipe")
    assert torch.allclose(loaded.denoise(x, 0.3), theirs, atol=1e-6)
    direct = loaded

    assert main(["priors", "show", str(tmp_path / "pipe")]) == 0
    shown = capsys.readouterr().out
    assert "shape: [1, 8, 8]" in shown and "diffusers pipeline" in shown and "sigma_max" in shown

    # The older layout: everything in one folder, weights as a pickle of tensors.
    flat = tmp_path / "flat"
    model.save_pretrained(flat, safe_serialization=False)
    pipeline.scheduler.save_pretrained(flat)
    assert torch.equal(load_prior(flat).denoise(x, 0.3), direct.denoise(x, 0.3))

    add_prior(tmp_path / "pipe", name="mine", root=tmp_path)
    assert torch.equal(load_prior("mine", root=tmp_path).denoise(x, 0.3), direct.denoise(x, 0.3))
    with pytest.raises(BasisError, match="already"):
        add_prior(tmp_path / "pipe", name="mine", root=tmp_path)


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
    with pytest.raises(BasisError, match="not a diffusers folder"):
        from_diffusers(tmp_path)
