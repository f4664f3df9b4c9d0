"""Two networks as one prior, by noise level."""

from dataclasses import replace

import pytest
import torch

import basis
from basis.cli import main
from basis.errors import BasisError
from basis.nn.experts import Experts
from basis.nn.kinds import describe_module
from basis.nn.unet import Denoiser, UNet, UNetConfig, VarianceHead
from basis.priors.denoiser import DenoiserPrior
from basis.priors.guidance import join_by_noise
from basis.store.folder import write_prior
from basis.store.loading import load_prior
from basis.training.config import TrainConfig
from basis.training.run import train

SIZES = UNetConfig(channels=1, widths=(12, 24), blocks=(1, 1), embedding=16, classes=2)


def denoiser(seed, sizes=SIZES, head=True):
    torch.manual_seed(seed)
    network = UNet(sizes)
    for parameter in network.parameters():  # nothing at zero, or all answers would be alike
        torch.nn.init.normal_(parameter, std=0.1)
    return Denoiser(network, 0.3, 0.25, VarianceHead(sizes) if head else None)


def prior(seed, name="digits", sizes=SIZES, head=True, sigma_min=0.01, **more):
    return DenoiserPrior(denoiser(seed, sizes, head), (1, 8, 8), sigma_min, 5.0, name=name, **more)


def test_each_network_answers_for_its_own_noise(tmp_path):
    small = prior(0, errors={0.1: 0.2, 1.0: 0.1})
    large = prior(1, sizes=replace(SIZES, blocks=(1, 2)), sigma_min=0.2, errors={1.0: 0.05})
    x = torch.rand(4, 1, 8, 8)
    mixed = torch.tensor([0.1, 0.5, 1.0, 0.29])
    expected = torch.cat(
        [
            (small if sigma < 0.3 else large).denoise(x[i : i + 1], sigma)
            for i, sigma in enumerate(mixed.tolist())
        ]
    )
    variance = torch.cat(
        [
            (small if sigma < 0.3 else large).moments(x[i : i + 1], sigma)[1]
            for i, sigma in enumerate(mixed.tolist())
        ]
    )
    both = join_by_noise(small, large, 0.3)
    assert both.errors == {0.1: 0.2, 1.0: 0.05}
    told = small.condition(1).denoise(x, 0.1), large.condition(1).denoise(x, 1.0)
    with torch.no_grad():
        assert torch.allclose(both.denoise(x, mixed), expected, atol=1e-6)
        assert torch.allclose(both.moments(x, mixed)[1], variance, atol=1e-6)
        for sigma, one in ((0.1, small), (1.0, large)):
            assert torch.equal(both.denoise(x, sigma), one.denoise(x, sigma))
        assert torch.equal(both.condition(1).denoise(x, 0.1), told[0])
        assert torch.equal(both.condition(1).denoise(x, 1.0), told[1])
        assert describe_module(both.module)["kind"] == "experts"
        write_prior(both, tmp_path / "both")
        again = load_prior(tmp_path / "both")
        assert isinstance(again.module, Experts)
        assert torch.allclose(again.denoise(x, mixed), expected, atol=1e-6)


@pytest.mark.parametrize(("least", "second"), [(None, False), (0.1, False), (0.15, True)])
def test_training_goes_on_from_the_network_of_its_noise(tmp_path, least, second):
    sizes = replace(SIZES, classes=0)
    both = join_by_noise(prior(0, sizes=sizes), prior(1, sizes=sizes), 0.3)
    images = (torch.rand(64, 1, 8, 8) * 255).to(torch.uint8)
    config = TrainConfig(images=0, sigma_min=least)
    on = train(
        images, out=tmp_path / "on", widths=(12, 24), blocks=(1, 1), embedding=16,
        **vars(config), init=both, energy_pairs=0, variance_images=0, progress=False,
    )  # fmt: skip
    assert on is not None
    network = both.module.above.network if second else both.module.network
    ours = network.state_dict()
    for name, weight in on.module.network.state_dict().items():
        assert torch.allclose(weight, ours[name], atol=2e-3), name


def test_what_cannot_be_joined_is_refused():
    small = prior(0)
    for other, told in (
        (prior(1, head=False), "only one has a variance head"),
        (prior(1, value_range=(-1.0, 1.0)), "differ in their value_range"),
        (prior(1, sizes=replace(SIZES, classes=3)), "differ in their classes"),
        (prior(1, sigma_min=0.5), "sigma must be a noise level of both priors, from 0.5"),
        (basis.load_prior("mnist-energy"), "'mnist-energy' is none"),
        (join_by_noise(prior(1), prior(2), 1.0), "both priors know, from 1 to"),
    ):
        with pytest.raises(BasisError, match=told):
            join_by_noise(small, other, 0.3)


def test_a_command_joins_two_priors(tmp_path, capsys):
    small, large = prior(0), prior(1, sigma_min=0.2)
    for one, folder in ((small, "small"), (large, "large")):
        write_prior(one, tmp_path / folder, training={"images_seen": 1})
    words = ["priors", "join", str(tmp_path / "small"), str(tmp_path / "large")]
    out = ["--out", str(tmp_path / "both")]
    assert main([*words, "--sigma", "0.3", *out]) == 0
    both = load_prior(tmp_path / "both")
    x = torch.rand(2, 1, 8, 8)
    for sigma, one in ((0.1, small), (1.0, large)):
        assert torch.allclose(both.denoise(x, sigma), one.denoise(x, sigma), atol=2e-2)
    assert both.card.training["above"] == {"sigma": 0.3, "images_seen": 1}
    assert both.energies is None and both.spectrum is None
    # Joined again, the prior that was joined gives its second network.
    again = [str(tmp_path / "small"), str(tmp_path / "both"), "--sigma", "0.4"]
    assert main(["priors", "join", *again, "--out", str(tmp_path / "again")]) == 0
    other = load_prior(tmp_path / "again")
    assert torch.allclose(other.denoise(x, 0.35), small.denoise(x, 0.35), atol=2e-2)
    assert not torch.allclose(other.denoise(x, 0.35), both.denoise(x, 0.35), atol=2e-2)
    assert torch.equal(other.denoise(x, 1.0), both.denoise(x, 1.0))
    assert other.card.training["above"] == {"sigma": 0.4, "images_seen": 1}
    for wrong in (["--sigma", "0.3", *out], ["--sigma", "0.3"], out, ["--sigma", "0.1", *out[:1],
                  str(tmp_path / "other")]):  # fmt: skip
        assert main([*words, *wrong]) == 2
    assert not (tmp_path / "other").exists()
    capsys.readouterr()
    for words in (
        ["add", "a", "b"],
        ["measure", "a", "b"],
        ["mnist", "--out", "a"],
        ["--sigma", "1"],
    ):
        assert main(["priors", *words]) == 2
        assert "go with: basis priors join" in capsys.readouterr().err
    # The second network of a joined prior is replaced.
    newer = prior(2, sigma_min=0.2)
    again = join_by_noise(both, newer, 0.3)
    assert torch.allclose(again.denoise(x, 1.0), newer.denoise(x, 1.0))
    assert torch.allclose(again.denoise(x, 0.1), both.denoise(x, 0.1))
