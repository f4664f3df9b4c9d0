"""Learning a gradient from another prior: on noisy signals and on states of separations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.nn.kind import NetworkKind
from basis.priors.prior import Prior
from basis.samplers.gibbs import Gibbs
from basis.samplers.sampler import clamp_variance
from basis.store.loading import load_prior
from basis.tensors import per_item
from basis.training.config import TrainConfig
from basis.training.data import TrainingData, as_floats


class Teacher:
    """The means of a prior, at noisy signals and at states that separations visit.

    They have no sampling noise, and they exist for states that are not clean signals plus noise,
    which a separation depends on. Half of the separations are moved by the teacher's means, the
    others by the model's own, so that it learns where its own mistakes lead; all of them by the
    teacher's variances.

    Args:
        prior: A prior of the same signals.
        states: The states of separations.
    """

    def __init__(self, prior: Prior, states: SeparationStates) -> None:
        self.prior, self.states = prior.eval().requires_grad_(False), states
        self._moments: tuple[Tensor, Tensor] | None = None

    def ask(self, clean: Tensor, noisy: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Noisy signals followed by the states, their noise levels, and the teacher's means.

        Shapes:
            clean, noisy: (batch, channels, *size), and sigma (batch,).
            The results have batch + states items.
        """
        count, prior = len(clean), self.prior
        states, levels = self.states.states()
        x = torch.cat([noisy, states.to(noisy)])
        s = torch.cat([sigma, levels.to(sigma)])
        low, high = prior.sigma_min, prior.sigma_max
        with torch.no_grad():
            mean, variance = prior.moments(x, s.clamp(low, high))
        self._moments = mean[count:], variance[count:]
        # Outside of its noise levels the target is the clean signal, as without a teacher.
        outside = per_item((sigma < low) | (sigma > high), clean).bool()
        return x, s, torch.cat([torch.where(outside, clean, mean[:count]), mean[count:]])

    def move(self, own: Tensor) -> None:
        """A step of the separations, given the model's means at all that `ask` returned."""
        assert self._moments is not None
        mean, variance = self._moments
        by_model = torch.arange(len(mean), device=mean.device) // 2 % 2 == 1
        moved = torch.where(per_item(by_model, mean).bool(), own[-len(mean) :].detach(), mean)
        self.states.move(moved, variance)


_SWITCH = 7 / 6
"""The noise level, in standard deviations, at which `gibbs` switches for score priors; there are
as many states above it as the sampler has steps there."""


class SeparationStates:
    """Separations of mixtures of two training signals, each at its own noise level.

    Args:
        teacher: The prior whose noise levels they have.
        images: Training data, (n, channels, *size), uint8 or floats.
        count: Separations; they have two states each.
        sigma_min, sigma_max: The noise levels that the states may have.

    Random numbers are those of torch's global generator, which the trainer seeds at every step.

    Attributes:
        tensors: What the next step depends on: the states (count, 2, *shape), the mixtures, and the
            indices of their noise levels.
    """

    def __init__(
        self, teacher: Prior, images: Tensor, count: int, sigma_min: float, sigma_max: float
    ) -> None:
        low, high = max(sigma_min, teacher.sigma_min), min(sigma_max, teacher.sigma_max)
        if not 0 < low <= high:
            raise BasisError(
                f"teacher {teacher.name!r} has noise levels from {teacher.sigma_min:g} to "
                f"{teacher.sigma_max:g}, of which none above 0 are trained"
            )
        self.images, self.count, self.std = images, max(1, count), teacher.std
        multiples = (Gibbs.default_range[0], _SWITCH, Gibbs.default_range[1])
        first, switch, last = (min(max(k * self.std, low), high) for k in multiples)
        above, below = Gibbs().noise_levels(first, switch, last)
        self.levels = torch.tensor(above[:-1] + below)
        self.mixing = mixture((1.0, 1.0))
        self.tensors: dict[str, Tensor] = {}

    def states(self) -> tuple[Tensor, Tensor]:
        """The states, (2 count, channels, *size), and their noise levels, (2 count,)."""
        if not self.tensors:
            # They begin at all noise levels at once, around the true sources.
            index = torch.arange(self.count) * len(self.levels) // self.count
            self._begin(torch.ones(self.count, dtype=torch.bool), index, known=True)
        sigma = self.levels[self.tensors["index"]].repeat_interleave(2)
        return self.tensors["state"].flatten(0, 1), sigma

    def move(self, mean: Tensor, variance: Tensor) -> None:
        """One step of all separations, given means and variances of the clean signals."""
        t = self.tensors
        mean, variance = (part.view_as(t["state"]) for part in (mean.cpu(), variance.cpu()))
        variance = clamp_variance(variance, self.std)
        drawn = mean + variance.sqrt() * torch.randn(mean.shape)
        clean = self.mixing.posterior_mean(drawn, t["mixture"], variance)
        t["index"] = t["index"] + 1
        sigma = self.levels[t["index"].clamp(max=len(self.levels) - 1)]
        t["state"] = clean + per_item(sigma, clean) * torch.randn(clean.shape)
        lost = ~t["state"].flatten(1).isfinite().all(dim=1)
        self._begin(lost | (t["index"] >= len(self.levels)), torch.zeros_like(t["index"]))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores the `tensors` of an earlier run; empty ones are those before the first step.

        Raises:
            ValueError: They are not those of as many separations of such signals.
        """
        shape = tuple(self.images.shape[1:])
        known = {"state": (self.count, 2, *shape), "mixture": (self.count, *shape)}
        known |= {"index": (self.count,)}
        if tensors and {name: tuple(t.shape) for name, t in tensors.items()} != known:
            raise ValueError("the states of its separations have another shape")
        index = tensors.get("index", torch.zeros(1))
        if not 0 <= index.min() <= index.max() < len(self.levels):
            raise ValueError("a state of its separations has no noise level")
        self.tensors = dict(tensors)

    def _begin(self, ended: Tensor, index: Tensor, known: bool = False) -> None:
        """Starts new separations in place of those that ended, (count,), at these noise levels.

        They start from the true sources if `known`, else from halves of the mixtures.
        """
        sources = as_floats(self.images[torch.randint(len(self.images), (self.count, 2))])
        mixed = self.mixing(sources)
        clean = sources if known else (mixed / 2)[:, None].expand_as(sources)
        noise = per_item(self.levels[index], clean) * torch.randn(clean.shape)
        new = {"state": clean + noise, "mixture": mixed, "index": index}
        for name, value in new.items():
            kept = self.tensors.get(name, value)
            self.tensors[name] = torch.where(per_item(ended, value).bool(), value, kept)


def find_teacher(
    teacher: str | Path | Prior | None,
    network: NetworkKind,
    data: TrainingData,
    config: TrainConfig,
    root: str | Path | None,
    device: torch.device,
) -> Prior | None:
    """The teacher by its name or folder; raises if it cannot teach a model of this data."""
    if teacher is None:
        return None
    if network.objective not in ("likelihood", "energy"):
        raise BasisError(f"a teacher is for models with a likelihood, not for {network.name}")
    if network.objective == "likelihood" and not config.score_weight:
        raise BasisError("a teacher teaches the gradient: score_weight must be more than 0")
    if not isinstance(teacher, Prior):
        teacher = load_prior(teacher, root=root, device=device)
    if teacher.shape != data.shape:
        raise BasisError(
            f"teacher {teacher.name!r} is for signals of shape {teacher.shape}, not {data.shape}"
        )
    if (teacher.low, teacher.high) != (data.low, data.high):
        raise BasisError(
            f"teacher {teacher.name!r} has values from {teacher.low} to {teacher.high}, the data "
            f"from {data.low} to {data.high}"
        )
    return teacher
