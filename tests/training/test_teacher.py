import json
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from basis.cli import main
from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.nn.energy import Energy
from basis.nn.unet import UNet, UNetConfig
from basis.priors.gaussian import GaussianMixture
from basis.priors.likelihood import LikelihoodPrior
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.objectives import DualScore, Likelihood, one_sigma
from basis.training.run import train
from basis.training.state import read_state
from basis.training.teacher import SeparationStates, Teacher
from basis.training.trainer import Trainer
from basis.training.variance import fit_variance

SHAPE = (1, 2, 2)
MEANS = torch.stack([torch.full(SHAPE, -1.0), torch.full(SHAPE, 1.0)])


def exact():
    """Two modes of unequal weight, of which everything is known."""
    prior = GaussianMixture(MEANS, torch.tensor([0.04, 0.04]), torch.tensor([0.75, 0.25]))
    prior.std = 1.0
    return prior


class OneMode(nn.Module):
    """A Gaussian whose mean is learned, of variance 1 without noise."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(SHAPE))

    def log_prob(self, x, sigma):
        variance = 1 + sigma.view(-1, 1, 1, 1).square()
        return -0.5 * ((x - self.mean).square() / variance + variance.log()).flatten(1).sum(dim=1)


def taught(count=4, score=2.0, data=None):
    data = exact().exact_samples(64, torch.Generator().manual_seed(0)) if data is None else data
    teacher = Teacher(exact(), SeparationStates(exact(), data, count, 0.05, 3.0))
    return Likelihood(score, 1.0, steps=0, teacher=teacher)


def test_the_gradient_is_compared_with_the_teachers():
    """By hand: the error at noised signals and at visited states, code length of the former."""
    torch.manual_seed(0)
    objective, model, teacher = taught(), OneMode(), exact()
    states, levels = objective.teacher.states.states()
    clean, sigma = teacher.exact_samples(3), torch.tensor([0.0, 0.2, 1.5])
    noisy = clean + sigma.view(-1, 1, 1, 1) * torch.randn(clean.shape)
    x, s = torch.cat([noisy, states]), torch.cat([sigma, levels]).view(-1, 1, 1, 1)
    score = (model.mean - x) / (1 + s.square())
    wrong = s * score - (teacher.denoise(x, s.flatten().clamp_min(1e-3)) - x) / s.clamp_min(1e-3)
    error = wrong.flatten(1).square().mean(dim=1) * (1 + s.flatten().square())
    code = objective.validate(model, clean, noisy, sigma).mean()
    known = code + 2.0 * error[1:].sum() / len(x)  # nothing is asked without noise
    assert objective.loss(model, clean, noisy, sigma).item() == pytest.approx(
        known.item(), rel=1e-4
    )


def test_the_gradient_of_an_energy_is_compared_too():
    """By hand: errors of the gradient everywhere, of the slope over noise levels where noised."""
    torch.manual_seed(0)
    teacher = GaussianMixture(torch.full((1, 1, 8, 8), 0.5), torch.tensor([0.04]))
    config = UNetConfig(widths=(8, 16), blocks=(1, 1), embedding=16)
    energy = Energy(UNet(config), 0.5, 0.3)
    data = teacher.exact_samples(16, torch.Generator().manual_seed(0)).float()
    teacher.std = 0.3
    visited = SeparationStates(teacher, data, 2, 0.05, 3.0)
    objective = DualScore(0.5, teacher=Teacher(teacher, visited))
    states, levels = (t.clone() for t in visited.states())
    clean, sigma = data[:3], torch.tensor([0.1, 0.4, 1.5])
    noisy = clean + sigma.view(-1, 1, 1, 1) * torch.randn(clean.shape)
    x, s = torch.cat([noisy, states]), torch.cat([sigma, levels])
    unit = energy.output_scale(s.view(-1, 1, 1, 1))
    wrong = ((energy(x, s) - teacher.denoise(x, s)) / unit).square().mean()
    slope = energy.slopes(noisy, sigma.log())[1]
    noise = ((noisy - clean) / sigma.view(-1, 1, 1, 1)).flatten(1).square().sum(dim=1)
    known = wrong + 0.5 * (slope - noise + 64).square().mean() / 128
    loss = objective.loss(energy, clean, noisy, sigma)
    assert loss.item() == pytest.approx(known.item(), rel=1e-4)
    assert not torch.equal(visited.states()[0], states)
    assert objective.tensors().keys() == {"state", "mixture", "index"}


def test_the_head_of_an_energy_learns_the_teachers_variance():
    teacher = GaussianMixture(torch.full((1, 1, 8, 8), 0.5), torch.tensor([0.01]))
    torch.manual_seed(0)
    energy = Energy(UNet(UNetConfig(widths=(8, 16), blocks=(1, 1), embedding=16)), 0.5, 0.3)
    data = teacher.exact_samples(64, torch.Generator().manual_seed(0)).float()
    settings = {"sigma_min": 0.1, "sigma_max": 1.0, "batch_size": 16, "lr": 1e-2}
    fit_variance(energy, data, count=16 * 150, teacher=teacher, progress=False, **settings)
    for sigma in (0.2, 0.6):
        x = data[:8] + sigma * torch.randn(8, 1, 8, 8)
        found = energy.moments(x, torch.full((8,), sigma))[1]
        known, first = (v * sigma**2 / (v + sigma**2) for v in (0.01, 0.09))
        assert (found / known).log().abs().mean() < 0.4 * math.log(first / known)


def test_separations_find_the_sources_of_their_mixtures():
    torch.manual_seed(0)
    visited = SeparationStates(exact(), MEANS.repeat(8, 1, 1, 1), 32, 0.05, 3.0)
    teacher, seen = exact(), []
    for _ in range(150):
        x, sigma = visited.states()
        assert (
            x.shape == (64, *SHAPE) and sigma.shape == (64,) and torch.equal(*sigma.view(-1, 2).T)
        )
        seen.append(sigma)
        index = visited.tensors["index"].clone()
        visited.move(*teacher.moments(x, sigma))
        on = visited.tensors["index"] - index
        assert ((on == 1) | ((visited.tensors["index"] == 0) & (index == 97))).all()
    levels = torch.cat(seen)
    assert levels.min().item() == pytest.approx(0.05) and levels.max().item() == pytest.approx(3.0)
    # Chains that have nearly ended have the two sources of their mixture, in some order.
    late = visited.tensors["index"] > 85
    state, mixed = visited.tensors["state"][late], visited.tensors["mixture"][late]
    assert late.sum() > 2
    assert (mixture((1.0, 1.0))(state) - mixed).abs().mean() < 0.5
    assert (state.abs() - 1).abs().mean() < 0.4


def test_lost_separations_begin_again():
    torch.manual_seed(0)
    visited = SeparationStates(exact(), MEANS.repeat(8, 1, 1, 1), 3, 0.05, 3.0)
    x, _ = visited.states()
    mean = x.clone()
    mean[2:4] = torch.nan
    visited.move(mean, torch.ones_like(x))
    assert visited.tensors["state"].isfinite().all()
    assert visited.tensors["index"].tolist() == [1, 0, 66]


def test_training_comes_near_to_the_teacher(tmp_path):
    """A tiny flow of data that its teacher knows exactly has the teacher's gradient."""
    teacher = exact()
    data = teacher.exact_samples(2048, torch.Generator().manual_seed(0))
    settings = {
        "batch_size": 32, "warmup": 320, "cooldown": 0.6, "lr": 0.02, "adam_lr": 0.01,
        "sigma_min": 0.05, "sigma_max": 3.0, "score_weight": 10.0,
        "levels": 1, "depth": 3, "width": 24, "embedding": 16,
    }  # fmt: skip
    states, errors = taught(16, data=data).teacher.states, {}
    torch.manual_seed(1)
    for _ in range(60):
        states.move(*teacher.moments(*states.states()))
    x, sigma = states.states()
    for images in (32, 32 * 150):
        prior = train(
            data, out=tmp_path / str(images), kind="glow", teacher=teacher, images=images,
            variance_images=0, energy_pairs=0, progress=False, **settings,
        )  # fmt: skip
        wrong = (prior.denoise(x, sigma) - teacher.denoise(x, sigma)).flatten(1).square().mean(1)
        errors[images] = (wrong / sigma.square()).mean().item()
    assert errors[32 * 150] < 0.3 * errors[32]
    assert prior.card.training["teacher"] == teacher.name


def test_the_variance_is_learned_from_the_teacher_too():
    """Between the modes it is large and at them small, whatever the mean of the model is."""
    teacher, model = exact(), OneMode()
    model.config = SimpleNamespace(mean=-0.5, std=0.9)
    data = teacher.exact_samples(256, torch.Generator().manual_seed(0))
    before = torch.get_rng_state()
    settings = {"count": 64 * 150, "sigma_min": 0.1, "sigma_max": 3.0, "batch_size": 64}
    losses = fit_variance(model, data, teacher=teacher, progress=False, **settings)
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(losses[-20:]) < sum(losses[:20])
    x = torch.linspace(-1.2, 1.2, 9).view(-1, 1, 1, 1).expand(-1, *SHAPE).contiguous()
    prior = LikelihoodPrior(model, SHAPE, 0.1, 3.0, value_range=None)
    for sigma in (0.8, 1.5):
        known, found = teacher.moments(x, sigma)[1], prior.moments(x, sigma)[1]
        first = 0.81 * sigma**2 / (0.81 + sigma**2)  # what it knew untrained
        off, start = ((v / known).log().abs().mean() for v in (found, torch.full_like(x, first)))
        assert off < 0.5 * start
    assert (model.mean == 0).all()


def test_a_resumed_run_with_a_teacher_is_identical(tmp_path):
    data = exact().exact_samples(64, torch.Generator().manual_seed(0))
    config = TrainConfig(images=80, batch_size=8, warmup=16, sigma_min=0.05, sigma_max=3.0)

    def trainer(name):
        return Trainer(
            OneMode(), data, tmp_path / name, config, sigmas=one_sigma(0.5), objective=taught()
        )

    whole = trainer("whole")
    assert whole.run(progress=False)
    first = trainer("parts")
    for _ in range(4):
        first.train_step()
    first.save()
    first.train_step()  # lost, as in a crash after the last save
    second = trainer("parts")
    assert second.step == 4 and second.run(progress=False)
    a, b = read_state(tmp_path / "whole")[1], read_state(tmp_path / "parts")[1]
    assert {"objective.state", "objective.mixture", "objective.index"} < a.keys()
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t | {"index": t["index"] + 1000},
        lambda t: t | {"state": t["state"][:2]},
        lambda t: {"state": t["state"]},
    ],
)
def test_states_of_another_run_are_refused(change):
    objective = taught()
    objective.teacher.states.states()
    saved = dict(objective.tensors())
    objective.load({})
    assert not objective.tensors()
    objective.load(saved)
    with pytest.raises(ValueError, match="its separations"):
        objective.load(change(saved))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "unet"}, "not for unet"),
        ({"teacher": "mnist"}, "for signals of shape"),
        ({"value_range": (-9.0, 9.0)}, "from None to None, the data from -9.0 to 9.0"),
        ({"teacher": "nobody"}, "nobody"),
        ({"score_weight": 0.0}, "score"),
        ({"sigma": 0.0}, "of which none above 0 are trained"),
    ],
)
def test_what_cannot_be_taught_is_one_line(tmp_path, changes, message):
    data = exact().exact_samples(64, torch.Generator().manual_seed(0))
    settings = {"kind": "glow", "teacher": exact(), "images": 8, "batch_size": 8} | changes
    if "kind" not in changes:
        settings |= {"levels": 1, "depth": 1, "width": 8}
    with pytest.raises(BasisError, match=message) as caught:
        train(data, out=tmp_path / "run", progress=False, **settings)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_the_teacher_belongs_to_the_run(tmp_path, capsys):
    words = ["train", "sample", "--kind", "glow", "--width", "8", "--depth", "1"]
    words += ["--images", "16", "--batch-size", "8", "--held-out", "16", "--sigma-max", "1.0"]
    words += ["--variance-images", "0", "--energy-pairs", "0", "--out", str(tmp_path / "run")]
    assert main([*words, "--teacher", "mnist"]) == 0
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["training"]["teacher"] == "mnist"
    assert load_prior(tmp_path / "run").has_likelihood
    capsys.readouterr()
    words[words.index("16")] = "24"
    assert main([*words, "--teacher", "mnist-energy"]) == 2
    assert "teacher mnist -> mnist-energy" in capsys.readouterr().err
    assert main([*words, "--teacher", "mnist"]) == 0
