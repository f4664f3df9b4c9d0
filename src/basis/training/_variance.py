"""Learning how sure a trained denoiser is.

The denoiser stays as it is; a small head on its last hidden state learns the variance of each clean
value given the noisy signal, by the likelihood of the errors that the denoiser makes: the analytic
covariance of denoising, estimated as in Nichol & Dhariwal 2021 and Bao et al. 2022
(arXiv:2206.07309), but per value and by a Gaussian likelihood, whose optimum is the mean squared
error.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor
from tqdm import tqdm

from basis._tensors import per_item
from basis.nn import Denoiser, VarianceHead
from basis.training._objectives import Denoising
from basis.training._sigmas import log_uniform
from basis.training._signals import as_floats

_TELL_EVERY = 30.0  # seconds between lines where there is no terminal for a bar


def fit_variance(
    denoiser: Denoiser,
    images: Tensor,
    *,
    count: int = 100_000,
    sigma_min: float = 0.01,
    sigma_max: float = 10.0,
    batch: int = 128,
    lr: float = 3e-3,
    seed: int = 0,
    progress: bool = True,
) -> list[float]:
    """Gives the denoiser a `VarianceHead`, or goes on with the one it has; the loss of each step.

    Args:
        denoiser: Trained; its own weights are not changed.
        images: Training data, (n, channels, *size), uint8 or floats.
        count: Images to see; minutes on a CPU are enough.
        sigma_min, sigma_max: Noise levels are drawn log-uniformly between these.
        batch, lr: Images per step, and the first step size (it falls to zero).
        seed: Of the head's first weights and of everything drawn.
    """
    device = next(denoiser.parameters()).device
    if denoiser.head is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            denoiser.head = VarianceHead(denoiser.network.config).to(device)
    head = denoiser.head
    head.requires_grad_(True)
    optimizer = torch.optim.Adam(head.parameters(), lr)
    generator = torch.Generator().manual_seed(seed)
    steps = max(1, count // batch)
    losses = []
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
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 20) * (1 - step / steps)
        pick = torch.randint(len(images), (batch,), generator=generator)
        clean = as_floats(images[pick])
        sigma = log_uniform(batch, sigma_min, sigma_max, generator)
        noisy = Denoising().noisy(clean, sigma, generator)
        clean, noisy, sigma = (t.to(device) for t in (clean, noisy, sigma))
        with torch.no_grad():
            features, mean = denoiser.features_and_mean(noisy, sigma)
            unit = denoiser.output_scale(per_item(sigma, noisy))
            error = ((mean - clean) / unit).square()
        # torch's channels-last group normalisation cannot go backward to parameters alone.
        log_variance = head(features.requires_grad_())
        loss = (log_variance + error * (-log_variance).exp()).mean() / 2
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0:
            bar.set_postfix(loss=f"{sum(losses[-50:]) / len(losses[-50:]):.4f}")
    head.requires_grad_(False)
    return losses
