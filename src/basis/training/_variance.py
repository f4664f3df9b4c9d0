"""Learning how sure a trained model is.

The model stays as it is; a small head learns the variance of each clean value given the noisy
signal, by the likelihood of the errors that the model makes: the analytic covariance of denoising,
estimated as in Nichol & Dhariwal 2021 and Bao et al. 2022 (arXiv:2206.07309), but per value and by
a Gaussian likelihood, whose optimum is the mean squared error. The head of a U-Net reads its last
hidden state; a model of which only the density is known gets a `VarianceNetwork`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from tqdm import tqdm

from basis._tensors import per_item
from basis.nn import Denoiser, VarianceHead, VarianceNetwork, variance_sizes
from basis.priors import LikelihoodPrior
from basis.training._muon import Muon
from basis.training._objectives import Denoising
from basis.training._sigmas import log_uniform
from basis.training._signals import as_floats

_TELL_EVERY = 30.0  # seconds between lines where there is no terminal for a bar
_KEPT = 8  # batches that are kept to be looked at again

_Seen = tuple[Tensor, ...]
"""What a head reads, and last the squared errors of the model in units of the output scale."""


def fit_variance(
    model: nn.Module,
    images: Tensor,
    *,
    count: int = 100_000,
    sigma_min: float = 0.01,
    sigma_max: float = 10.0,
    batch: int = 128,
    lr: float = 3e-3,
    passes: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> list[float]:
    """Gives the model a `head` of its variance, or goes on with the one it has; the loss of each
    step.

    Args:
        model: Trained; its own weights are not changed. A `Denoiser`, whose `VarianceHead` reads
            its hidden state, or a model with `log_prob(x, sigma)`, whose `VarianceNetwork` is one
            of its own.
        images: Training data, (n, channels, *size), uint8 or floats.
        count: Images for the head to see; minutes on a CPU are enough.
        sigma_min, sigma_max: Noise levels are drawn log-uniformly between these.
        batch, lr: Images per step, and the first step size (it falls to zero).
        passes: How often the head sees an image, for which the model is asked once; by default once
            for a denoiser, and four times where an answer takes a pass backward as well.
        seed: Of the head's first weights and of everything drawn.
    """
    passes = passes or (4 if hasattr(model, "log_prob") else 1)
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    if isinstance(model, Denoiser):
        ask, answer = _of_features(model, seed)
    else:
        ask, answer = _of_density(model, images, seed)
    head = model.head
    assert isinstance(head, nn.Module)
    head.requires_grad_(True)
    # A network of its own has matrices that are worth orthogonal steps.
    smallest = 1 << 30 if isinstance(model, Denoiser) else 24
    optimizer = Muon(head.parameters(), lr=0.02, adam_lr=lr, betas=(0.9, 0.999), smallest=smallest)
    steps = max(1, count // batch)
    losses: list[float] = []
    kept: list[_Seen] = []
    bar = tqdm(
        range(steps), desc="variance", dynamic_ncols=True, disable=None if progress else True
    )
    silent, told = bool(progress and bar.disable), time.monotonic()
    if silent:
        print(f"learning how sure the network is: {steps * batch:,} images", file=sys.stderr)
    for step in bar:
        if silent and time.monotonic() - told > _TELL_EVERY:
            print(f"{step * batch:,} of {steps * batch:,} images seen", file=sys.stderr, flush=True)
            told = time.monotonic()
        if step % passes == 0:
            pick = torch.randint(len(images), (batch,), generator=generator)
            clean = as_floats(images[pick])
            sigma = log_uniform(batch, sigma_min, sigma_max, generator)
            noisy = Denoising().noisy(clean, sigma, generator)
            kept = [*kept, ask(*(t.to(device) for t in (clean, noisy, sigma)))][-_KEPT:]
            *inputs, error = kept[-1]
        else:
            *inputs, error = kept[int(torch.randint(len(kept), (), generator=generator))]
        log_variance = answer(*inputs)
        loss = (log_variance + error * (-log_variance).exp()).mean() / 2
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.set_factor(min(1.0, (step + 1) / 20) * (1 - step / steps))
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0:
            bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.4f}")
    head.requires_grad_(False)
    return losses


def learns_variance(model: nn.Module, sigma_min: float, sigma_max: float) -> bool:
    """Whether `fit_variance` takes this model, trained for these noise levels.

    A likelihood of a single noise level is asked at no other, and so never how sure it is.
    """
    known = all(hasattr(getattr(model, "config", None), name) for name in ("mean", "std"))
    density = hasattr(model, "log_prob") and known and 0 < sigma_min < sigma_max
    return isinstance(model, Denoiser) or density


def _of_features(
    denoiser: Denoiser, seed: int
) -> tuple[Callable[[Tensor, Tensor, Tensor], _Seen], Callable[..., Tensor]]:
    """How a U-Net is asked for what its head reads, and the head."""
    if denoiser.head is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            denoiser.head = VarianceHead(denoiser.network.config)
        denoiser.head.to(next(denoiser.parameters()).device)
    head = denoiser.head

    def ask(clean: Tensor, noisy: Tensor, sigma: Tensor) -> _Seen:
        with torch.no_grad():
            features, mean = denoiser.features_and_mean(noisy, sigma)
            unit = denoiser.output_scale(per_item(sigma, noisy))
            return features, ((mean - clean) / unit).square()

    # torch's channels-last group normalisation cannot go backward to parameters alone.
    return ask, lambda features: head(features.detach().requires_grad_())


def _of_density(
    model: nn.Module, images: Tensor, seed: int
) -> tuple[Callable[[Tensor, Tensor, Tensor], _Seen], Callable[..., Tensor]]:
    """How a density is asked for its errors, and the network beside it."""
    shape = tuple(images.shape[1:])
    network = getattr(model, "head", None)
    if not isinstance(network, VarianceNetwork):
        config = model.config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = VarianceNetwork(variance_sizes(shape), config.mean, config.std)
        network.to(next(model.parameters()).device)
        model.head = network
    prior = LikelihoodPrior(model, shape, 0.0, float("inf"), low=None, high=None)

    def ask(clean: Tensor, noisy: Tensor, sigma: Tensor) -> _Seen:
        mean = prior.denoise(noisy, sigma).detach()
        unit = network.output_scale(per_item(sigma, noisy))
        return noisy, sigma, ((mean - clean) / unit).square()

    return ask, network.log_variance
