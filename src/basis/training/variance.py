"""Training the variance of a trained model's answers.

The model stays as it is; a small head learns the variance of each clean value given the noisy
signal, by the likelihood of the errors of a mean: the analytic covariance of denoising, estimated
as in Nichol & Dhariwal 2021 and Bao et al. 2022 (arXiv:2206.07309), but per value and by a Gaussian
likelihood, whose optimum is the mean squared error. The head of a U-Net reads its last hidden state
and learns from its errors. A model of which only the density is known gets a `VarianceNetwork`,
which learns from its own errors: those of a flow are mostly its own mistakes, while a separation
needs to know what the noise leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from basis.nn.energy import Energy
from basis.nn.unet import Denoiser, VarianceHead
from basis.nn.variance import VarianceNetwork, variance_config
from basis.priors.prior import Prior
from basis.tensors import per_item
from basis.training.data import as_floats
from basis.training.muon import Muon
from basis.training.objectives import Denoising, draw_conditions, log_uniform
from basis.training.processes import progress_bar
from basis.training.teacher import SeparationStates

_KEPT = 8  # batches that a head sees again

M = TypeVar("M", bound=nn.Module)
_Batch = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]
"""Noisy signals, noise levels, conditions, the clean signals, and no variance; with a teacher the
latter two are its mean and variance, and half of the signals are states of its separations."""


def _batches(
    model: nn.Module,
    images: Tensor,
    batch_size: int,
    levels: tuple[float, float],
    teacher: Prior | None,
    labels: Tensor | None,
    g: torch.Generator,
) -> Iterator[_Batch]:
    """Random batches; arguments as for `fit_variance`."""
    device = next(model.parameters()).device
    classes = model.network.config.classes if isinstance(model, Denoiser) else 0
    states = SeparationStates(teacher, images, batch_size // 4, *levels) if teacher else None
    while True:
        pick = torch.randint(len(images), (batch_size,), generator=g)
        clean = as_floats(images[pick])
        sigma = log_uniform(batch_size, *levels, g)
        noisy = Denoising().noisy(clean, sigma, g).to(device)
        condition = None
        if labels is not None and classes:
            condition = draw_conditions(labels[pick], classes, g).to(device)
        clean, sigma = clean.to(device), sigma.to(device)
        if teacher is None or states is None:
            yield noisy, sigma, condition, clean, None
            continue
        # Separations use torch's global generator, which is the caller's.
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(int(torch.randint(2**62, (), generator=g)))
            visited, own = states.states()
            count = len(visited)
            x = torch.cat([visited.to(noisy), noisy[count:]])
            s = torch.cat([own.to(sigma), sigma[count:]])
            mean, variance = teacher.moments(x, s.clamp(teacher.sigma_min, teacher.sigma_max))
            states.move(mean[:count], variance[:count])
        yield x, s, None, mean, variance


def fit_variance(
    model: nn.Module,
    images: Tensor,
    *,
    count: int = 100_000,
    sigma_min: float = 0.01,
    sigma_max: float = 10.0,
    batch_size: int = 128,
    lr: float = 3e-3,
    passes: int | None = None,
    teacher: Prior | None = None,
    labels: Tensor | None = None,
    seed: int = 0,
    progress: bool = True,
) -> list[float]:
    """Gives the model a `head` for its variance, or trains the one it has; the loss of each step.

    Args:
        model: Trained; its own weights are not changed. A `Denoiser`, whose `VarianceHead` reads
            its hidden state, or a model with `log_prob(x, sigma)`, whose `VarianceNetwork` reads
            the signal itself.
        images: Training data, (n, channels, *size), uint8 or floats.
        count: Images that the head sees; minutes on a CPU are enough.
        sigma_min, sigma_max: Noise levels are drawn log-uniformly between these.
        batch_size, lr: Images per step, and the first learning rate (it falls to zero).
        passes: How often a `VarianceHead` sees an image, for which the model is evaluated once; by
            default once, and four times for an energy, which also takes a pass backward.
        teacher: A prior of the same signals, whose variance is learned (and, by a
            `VarianceNetwork`, its mean), half of it at states of its separations.
        labels: The class of each image, for a conditional `Denoiser`.
        seed: Of the head's first weights and of all random numbers.
        progress: Whether to show a progress bar.
    """
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    levels = (sigma_min, sigma_max)
    batches = _batches(model, images, batch_size, levels, teacher, labels, generator)
    head: nn.Module
    if isinstance(model, Denoiser):
        if model.head is None:
            config = model.network.config
            model.head = _seeded(lambda: VarianceHead(config), seed, device)
        head = model.head
        passes = passes or (4 if isinstance(model, Energy) else 1)
        losses_of = _head_loss(model, batches, passes, generator)
        optimizer = Muon(head.parameters(), adam_lr=lr, betas=(0.9, 0.999), smallest=1 << 30)
    else:
        head = network = _network_of(model, tuple(images.shape[1:]), seed, device)
        losses_of = _network_loss(network.denoiser, batches)
        optimizer = Muon(head.parameters(), lr=10 * lr, adam_lr=lr, smallest=24)
    head.requires_grad_(True)
    steps = max(1, count // batch_size)
    losses: list[float] = []
    with progress_bar("variance", steps * batch_size, 0, "images", progress) as bar:
        for step in range(steps):
            lowered, loss = losses_of()
            optimizer.zero_grad(set_to_none=True)
            lowered.backward()
            nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.set_factor(min(1.0, (step + 1) / 20) * (1 - step / steps))
            optimizer.step()
            losses.append(loss.item())
            mean = sum(losses[-50:]) / len(losses[-50:])
            bar.set_postfix(loss=f"{mean:.4f}", refresh=False)
            bar.update(batch_size)
    head.requires_grad_(False)
    return losses


def learns_variance(model: nn.Module, sigma_min: float, sigma_max: float) -> bool:
    """Whether `fit_variance` takes this model, trained for these noise levels.

    A likelihood of a single noise level is never asked for its variance.
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
    """The network that a model with a likelihood has as its head, or a new one."""
    head = getattr(model, "head", None)
    if isinstance(head, VarianceNetwork):
        return head
    config: Any = model.config
    mean, std = config.mean, config.std
    network = _seeded(lambda: VarianceNetwork(variance_config(shape), mean, std), seed, device)
    model.head = network
    return network


def _head_loss(
    denoiser: Denoiser, batches: Iterator[_Batch], passes: int, generator: torch.Generator
) -> Callable[[], tuple[Tensor, Tensor]]:
    """The loss of a head, twice, on a new batch or on one of the last; a teacher's variance if
    there is one.
    """
    kept: list[tuple[Tensor, Tensor]] = []
    turn = 0

    def losses() -> tuple[Tensor, Tensor]:
        nonlocal turn
        if turn % passes == 0:
            with torch.no_grad():
                x, sigma, condition, clean, square = next(batches)
                if square is None:
                    features, mean = denoiser.features_and_mean(x, sigma, condition)
                    square = (mean - clean).square()
                else:
                    features = denoiser.features(x, sigma)
                unit = denoiser.output_scale(per_item(sigma, x)).square()
                kept.append((features, square / unit))
            del kept[:-_KEPT]
            features, error = kept[-1]
        else:
            features, error = kept[int(torch.randint(len(kept), (), generator=generator))]
        turn += 1
        assert denoiser.head is not None
        # torch's channels-last group normalization cannot go backward to parameters alone.
        log_variance = denoiser.head(features.detach().requires_grad_())
        loss = _likelihood(log_variance, error)
        return loss, loss

    return losses


def _network_loss(
    denoiser: Denoiser, batches: Iterator[_Batch]
) -> Callable[[], tuple[Tensor, Tensor]]:
    """The denoising error with the loss of the head that reads the same features, and the latter
    alone; against a teacher's mean and variance if there is one.
    """

    def losses() -> tuple[Tensor, Tensor]:
        x, sigma, _, target, variance = next(batches)
        features, mean = denoiser.features_and_mean(x, sigma)
        unit = denoiser.output_scale(per_item(sigma, x))
        error = ((mean - target) / unit).square()
        # The head takes the error as it is: a mean that lowers it by way of the variance would
        # neglect whatever is uncertain.
        wanted = error.detach() if variance is None else variance / unit.square()
        assert denoiser.head is not None
        loss = _likelihood(denoiser.head(features), wanted)
        return error.mean() + 0.1 * loss, loss

    return losses


def _likelihood(log_variance: Tensor, error: Tensor) -> Tensor:
    """Minus the mean log-likelihood of errors, without its constant."""
    return (log_variance + error * (-log_variance).exp()).mean() / 2
