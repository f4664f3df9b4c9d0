"""Learning how sure a trained model is.

The model stays as it is; a small head learns the variance of each clean value given the noisy
signal, by the likelihood of errors of a mean: the analytic covariance of denoising, estimated as in
Nichol & Dhariwal 2021 and Bao et al. 2022 (arXiv:2206.07309), but per value and by a Gaussian
likelihood, whose optimum is the mean squared error. The head of a U-Net reads its last hidden state
and learns from its errors. A model of which only the density is known gets a `VarianceNetwork`,
which learns from errors of its own: those of a flow were measured to be no use, for they are mostly
what the flow does not know, where a separation has to know what cannot be known.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from tqdm import tqdm

from basis.nn.energy import Energy
from basis.nn.unet import Denoiser, VarianceHead
from basis.nn.variance import VarianceNetwork, variance_config
from basis.priors.prior import Prior
from basis.tensors import per_item
from basis.training.muon import Muon
from basis.training.objectives import Denoising, draw_told, log_uniform
from basis.training.signals import as_floats
from basis.training.teacher import Visited

_TELL_EVERY = 30.0  # seconds between lines where there is no terminal for a bar
_KEPT = 8  # batches that are kept to be looked at again

M = TypeVar("M", bound=nn.Module)
_Draw = Callable[[], tuple[Tensor, Tensor, Tensor, Tensor | None]]
"""Draws clean signals, noisy ones, noise levels and what is told of their classes."""
_Ask = Callable[[], tuple[Tensor, Tensor, Tensor, Tensor]]
"""Draws noisy signals and noise levels with a teacher's mean and variance."""


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
    teacher: Prior | None = None,
    labels: Tensor | None = None,
    seed: int = 0,
    progress: bool = True,
) -> list[float]:
    """Gives the model a `head` of its variance, or goes on with the one it has; the loss of each
    step.

    Args:
        model: Trained; its own weights are not changed. A `Denoiser`, whose `VarianceHead` reads
            its hidden state, or a model with `log_prob(x, sigma)`, whose `VarianceNetwork` sees the
            signal itself.
        images: Training data, (n, channels, *size), uint8 or floats.
        count: Images for the head to see; minutes on a CPU are enough.
        sigma_min, sigma_max: Noise levels are drawn log-uniformly between these.
        batch, lr: Images per step, and the first step size (it falls to zero).
        passes: How often a `VarianceHead` sees an image, for which the model is asked once; by
            default once, and four times for an energy, whose answers take a pass backward as well.
        teacher: A prior of the same signals, whose variance is learned (and, by a
            `VarianceNetwork`, its mean) instead of that of draws, half of it at states that the
            teacher's separations visit.
        labels: The class of each image, for a `Denoiser` that may be told classes.
        seed: Of the head's first weights and of everything drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device

    def draw() -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        pick = torch.randint(len(images), (batch,), generator=generator)
        clean = as_floats(images[pick])
        sigma = log_uniform(batch, sigma_min, sigma_max, generator)
        noisy = Denoising().noisy(clean, sigma, generator)
        told = None
        if labels is not None and isinstance(model, Denoiser):
            told = draw_told(labels[pick], model.network.config.classes, generator).to(device)
        return clean.to(device), noisy.to(device), sigma.to(device), told

    ask = None
    if teacher is not None:
        visited = Visited.known_to(teacher, images, batch // 4, sigma_min, sigma_max)
        ask = _teacher_answers(draw, teacher, visited, generator)
    head: nn.Module
    if isinstance(model, Denoiser):
        if model.head is None:
            config = model.network.config
            model.head = _seeded(lambda: VarianceHead(config), seed, device)
        head = model.head
        passes = passes or (4 if isinstance(model, Energy) else 1)
        losses_of = _head_loss(model, draw, passes, generator, ask)
        optimizer = Muon(head.parameters(), adam_lr=lr, betas=(0.9, 0.999), smallest=1 << 30)
    else:
        head = network = _network_of(model, tuple(images.shape[1:]), seed, device)
        denoiser = network.denoiser
        losses_of = _taught_loss(denoiser, ask) if ask else _network_loss(denoiser, draw)
        optimizer = Muon(head.parameters(), lr=10 * lr, adam_lr=lr, smallest=24)
    head.requires_grad_(True)
    steps = max(1, count // batch)
    losses: list[float] = []
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
        lowered, loss = losses_of()
        optimizer.zero_grad(set_to_none=True)
        lowered.backward()
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


def _seeded(make: Callable[[], M], seed: int, device: torch.device) -> M:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().to(device)


def _network_of(
    model: nn.Module, shape: tuple[int, ...], seed: int, device: torch.device
) -> VarianceNetwork:
    """The network that a model with a likelihood has as its head, or gets."""
    head = getattr(model, "head", None)
    if isinstance(head, VarianceNetwork):
        return head
    config: Any = model.config
    mean, std = config.mean, config.std
    network = _seeded(lambda: VarianceNetwork(variance_config(shape), mean, std), seed, device)
    model.head = network
    return network


def _head_loss(
    denoiser: Denoiser,
    draw: _Draw,
    passes: int,
    generator: torch.Generator,
    ask: _Ask | None = None,
) -> Callable[[], tuple[Tensor, Tensor]]:
    """The loss of a head, twice, on new images or on kept ones; a teacher's variance, if asked."""
    kept: list[tuple[Tensor, Tensor]] = []
    turn = 0

    def losses() -> tuple[Tensor, Tensor]:
        nonlocal turn
        if turn % passes == 0:
            with torch.no_grad():
                if ask:
                    x, sigma, _, square = ask()
                    features = denoiser.features(x, sigma)
                else:
                    clean, x, sigma, told = draw()
                    features, mean = denoiser.features_and_mean(x, sigma, told)
                    square = (mean - clean).square()
                unit = denoiser.output_scale(per_item(sigma, x)).square()
                kept.append((features, square / unit))
            del kept[:-_KEPT]
            features, error = kept[-1]
        else:
            features, error = kept[int(torch.randint(len(kept), (), generator=generator))]
        turn += 1
        assert denoiser.head is not None
        # torch's channels-last group normalisation cannot go backward to parameters alone.
        log_variance = denoiser.head(features.detach().requires_grad_())
        loss = _likelihood(log_variance, error)
        return loss, loss

    return losses


def _network_loss(denoiser: Denoiser, draw: _Draw) -> Callable[[], tuple[Tensor, Tensor]]:
    """The denoising error with the loss of the head that reads the same features, and the latter
    alone.
    """

    def losses() -> tuple[Tensor, Tensor]:
        clean, noisy, sigma, _ = draw()
        features, mean = denoiser.features_and_mean(noisy, sigma)
        error = ((mean - clean) / denoiser.output_scale(per_item(sigma, noisy))).square()
        assert denoiser.head is not None
        # The head takes the error as it is: a mean that lowers it by way of the variance would
        # neglect whatever is unsure.
        loss = _likelihood(denoiser.head(features), error.detach())
        return error.mean() + 0.1 * loss, loss

    return losses


def _taught_loss(denoiser: Denoiser, ask: _Ask) -> Callable[[], tuple[Tensor, Tensor]]:
    """The same against a teacher's mean and variance."""

    def losses() -> tuple[Tensor, Tensor]:
        x, s, own, variance = ask()
        features, mean = denoiser.features_and_mean(x, s)
        unit = denoiser.output_scale(per_item(s, x))
        assert denoiser.head is not None
        loss = _likelihood(denoiser.head(features), variance / unit.square())
        return ((mean - own) / unit).square().mean() + 0.1 * loss, loss

    return losses


def _teacher_answers(
    draw: _Draw, teacher: Prior, visited: Visited, generator: torch.Generator
) -> _Ask:
    """Asks a teacher, half at noised signals and half at states that its separations visit."""

    def ask() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        _, noisy, sigma, _ = draw()
        # Chains draw torch's own numbers, of which the caller's are left alone.
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            states, levels = visited.states()
            count = len(states)
            x = torch.cat([states.to(noisy), noisy[count:]])
            s = torch.cat([levels.to(sigma), sigma[count:]])
            mean, variance = teacher.moments(x, s.clamp(teacher.sigma_min, teacher.sigma_max))
            visited.move(mean[:count], variance[:count])
        return x, s, mean, variance

    return ask


def _likelihood(log_variance: Tensor, error: Tensor) -> Tensor:
    """Minus the mean log-likelihood of errors, without its constant."""
    return (log_variance + error * (-log_variance).exp()).mean() / 2
