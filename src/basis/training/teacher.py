"""Learning a gradient from another prior: on noised signals, and on states of separations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.mixings.matrix import mixture
from basis.nn.energy import Energy
from basis.nn.kind import NetworkKind
from basis.priors.prior import Prior
from basis.samplers.gibbs import Gibbs
from basis.samplers.steps import clamp_variance
from basis.store.loading import load_prior
from basis.tensors import per_item
from basis.training.config import TrainConfig
from basis.training.objectives import DualScore, Likelihood, Objective
from basis.training.processes import Processes
from basis.training.signals import Signals, as_floats


class Lessons:
    """A teacher's answers, at noised signals and at states that separations visit.

    They carry no noise of sampling, and are there for states that are no noised signal, on which
    a separation depends. Chains that visit them are moved by the teacher's means or, every other
    one, by the model's own, so that it learns where its own mistakes lead; all by the teacher's
    variances.

    Args:
        teacher: A prior of the same signals.
        visited: The chains.
    """

    def __init__(self, teacher: Prior, visited: Visited) -> None:
        self.teacher, self.visited = teacher.eval().requires_grad_(False), visited
        self._states: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, teacher: Prior, images: Tensor, config: TrainConfig) -> Lessons:
        """With as many visited states as images in a batch, at levels that the teacher knows."""
        count = (config.batch + 1) // 2
        return cls(teacher, Visited.known_to(teacher, images, count, *config.noise[:2]))

    def ask(self, clean: Tensor, noisy: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Noised signals with the states after them, their noise levels, and what to learn there.

        Shapes:
            clean, noisy: (batch, channels, *size), and sigma (batch,).
            What is returned has batch + states rows.
        """
        count, teacher = len(clean), self.teacher
        states, levels = self.visited.states()
        x = torch.cat([noisy, states.to(noisy)])
        s = torch.cat([sigma, levels.to(sigma)])
        low, high = teacher.sigma_min, teacher.sigma_max
        with torch.no_grad():
            mean, variance = teacher.moments(x, s.clamp(low, high))
        self._states = mean[count:], variance[count:]
        # Beyond the teacher's noise levels the signal itself is the target, as without a teacher.
        beyond = per_item((sigma < low) | (sigma > high), clean).bool()
        return x, s, torch.cat([torch.where(beyond, clean, mean[:count]), mean[count:]])

    def move(self, own: Tensor) -> None:
        """A step of the chains, by the model's own means of all that was asked about."""
        assert self._states is not None
        mean, variance = self._states
        by_model = torch.arange(len(mean), device=mean.device) // 2 % 2 == 1
        moved = torch.where(per_item(by_model, mean).bool(), own[-len(mean) :].detach(), mean)
        self.visited.move(moved, variance)


class _Visiting(Objective):
    """An objective with lessons, whose chains are part of a run's state."""

    lessons: Lessons

    def tensors(self) -> dict[str, Tensor]:
        return self.lessons.visited.tensors

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.lessons.visited.load(tensors)


class Taught(_Visiting, Likelihood):
    """Code length of noisy signals, and the error of the gradient against a teacher's.

    Args:
        lessons: What the teacher says.
        score, spread, steps, unit: As for `Likelihood`.
    """

    def __init__(
        self,
        lessons: Lessons,
        score: float,
        spread: float,
        *,
        steps: float = 255,
        unit: float = 1.0,
    ) -> None:
        super().__init__(score, spread, steps=steps, unit=unit)
        self.lessons = lessons

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        x, s, target = self.lessons.ask(clean, noisy, sigma)
        code, gradient = self.code_and_gradient(model, x, s)
        self.lessons.move(x + per_item(s, x).square() * gradient)
        error = self.errors(gradient, x, target, s).mean()
        return code[: len(clean)].mean() + self.score * error


class TaughtEnergy(_Visiting, DualScore):
    """Dual score matching of an energy whose gradient is held to a teacher's.

    Args:
        lessons: What the teacher says.
        dual, unit: As for `DualScore`.
    """

    def __init__(self, lessons: Lessons, dual: float = 1.0, unit: float = 1.0) -> None:
        super().__init__(dual, unit)
        self.lessons = lessons

    def loss(self, model: nn.Module, clean: Tensor, noisy: Tensor, sigma: Tensor) -> Tensor:
        assert isinstance(model, Energy)
        x, s, target = self.lessons.ask(clean, noisy, sigma)
        by_x, by_level = model.slopes(x, s.log())
        self.lessons.move(x + per_item(s, x).square() * by_x)
        error = self.by_signal(model, by_x, x, target, s)
        return error + self.dual * self.by_level(by_level[: len(clean)], clean, noisy, sigma)


def find_teacher(
    teacher: str | Path | Prior | None,
    family: NetworkKind,
    signals: Signals,
    score: float,
    root: str | Path | None,
    device: torch.device | str,
) -> Prior | None:
    """The prior of this name or folder; refuses one that cannot teach a model of these signals."""
    if teacher is None:
        return None
    if family.objective not in ("likelihood", "energy"):
        raise BasisError(f"a teacher goes with models with a likelihood, not with {family.name}")
    if family.objective == "likelihood" and not score:
        raise BasisError("a teacher teaches the gradient, whose weight (score) must be more than 0")
    if Processes().count > 1:
        raise BasisError("a teacher goes with a single process")
    if not isinstance(teacher, Prior):
        teacher = load_prior(teacher, root=root, device=device)
    if teacher.shape != signals.shape:
        raise BasisError(
            f"teacher {teacher.name!r} is of signals of shape {teacher.shape}, not {signals.shape}"
        )
    if (teacher.low, teacher.high) != (signals.low, signals.high):
        raise BasisError(
            f"teacher {teacher.name!r} has values from {teacher.low} to {teacher.high}, the data "
            f"from {signals.low} to {signals.high}"
        )
    return teacher


_TURN = 7 / 6  # of score priors, in spreads; states are as many above as `gibbs` has there


class Visited:
    """Chains that separate mixtures of two training signals, each at a noise level of its own.

    Args:
        images: Training data, (n, channels, *size), uint8 or floats.
        count: Chains; they visit twice as many states at a time.
        spread: Standard deviation of a value.
        sigma_min, sigma_max: The noise levels that the states may have.

    Random numbers are torch's own, which the trainer seeds at every step.
    """

    def __init__(
        self, images: Tensor, count: int, spread: float, sigma_min: float, sigma_max: float
    ) -> None:
        self.images, self.count, self.spread = images, count, spread
        multiples = (Gibbs.default_range[0], _TURN, Gibbs.default_range[1])
        first, turn, last = (min(max(k * spread, sigma_min), sigma_max) for k in multiples)
        above, below = Gibbs().noise_levels(first, turn, last)
        self.levels = torch.tensor(above[:-1] + below)
        self.mixing = mixture((1.0, 1.0))
        self.tensors: dict[str, Tensor] = {}
        """What the next step depends on: the states (chains, 2, *shape), the mixtures, and the
        places of their noise levels."""

    @classmethod
    def known_to(
        cls, teacher: Prior, images: Tensor, count: int, sigma_min: float, sigma_max: float
    ) -> Visited:
        """Chains at those of the noise levels that a teacher knows."""
        low, high = max(sigma_min, teacher.sigma_min), min(sigma_max, teacher.sigma_max)
        if not 0 < low <= high:
            raise BasisError(
                f"teacher {teacher.name!r} knows noise levels from {teacher.sigma_min:g} to "
                f"{teacher.sigma_max:g}, of which none above 0 are trained"
            )
        return cls(images, max(1, count), teacher.std, low, high)

    def states(self) -> tuple[Tensor, Tensor]:
        """Where the chains are, (2 count, channels, *size), and the noise levels, (2 count,)."""
        if not self.tensors:
            # At all noise levels at once, which takes the truth, that a separation may find too.
            place = torch.arange(self.count) * len(self.levels) // self.count
            self._begin(torch.ones(self.count, dtype=torch.bool), place, known=True)
        sigma = self.levels[self.tensors["place"]].repeat_interleave(2)
        return self.tensors["state"].flatten(0, 1), sigma

    def move(self, mean: Tensor, variance: Tensor) -> None:
        """One step of every chain, by means and variances of the clean signals at `states()`."""
        t = self.tensors
        mean, variance = (part.view_as(t["state"]) for part in (mean.cpu(), variance.cpu()))
        variance = clamp_variance(variance, self.spread)
        drawn = mean + variance.sqrt() * torch.randn(mean.shape)
        clean = self.mixing.posterior_mean(drawn, t["mixture"], variance)
        t["place"] = t["place"] + 1
        sigma = self.levels[t["place"].clamp(max=len(self.levels) - 1)]
        t["state"] = clean + per_item(sigma, clean) * torch.randn(clean.shape)
        lost = ~t["state"].flatten(1).isfinite().all(dim=1)
        self._begin(lost | (t["place"] >= len(self.levels)), torch.zeros_like(t["place"]))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes back the `tensors` of an earlier run; none are those of a run that has not begun.

        Raises:
            ValueError: They are not those of as many chains of such signals.
        """
        shape = tuple(self.images.shape[1:])
        known = {"state": (self.count, 2, *shape), "mixture": (self.count, *shape)}
        known |= {"place": (self.count,)}
        if tensors and {name: tuple(t.shape) for name, t in tensors.items()} != known:
            raise ValueError("the chains of its separations have another shape")
        place = tensors.get("place", torch.zeros(1))
        if not 0 <= place.min() <= place.max() < len(self.levels):
            raise ValueError("a chain of its separations is at no noise level")
        self.tensors = dict(tensors)

    def _begin(self, ended: Tensor, place: Tensor, known: bool = False) -> None:
        """New mixtures for some chains, (count,), at these places of noise levels.

        They begin with the sources, where these shall be known, or with halves of the mixtures.
        """
        sources = as_floats(self.images[torch.randint(len(self.images), (self.count, 2))])
        mixed = self.mixing(sources)
        clean = sources if known else (mixed / 2)[:, None].expand_as(sources)
        noise = per_item(self.levels[place], clean) * torch.randn(clean.shape)
        new = {"state": clean + noise, "mixture": mixed, "place": place}
        for name, value in new.items():
            kept = self.tensors.get(name, value)
            self.tensors[name] = torch.where(per_item(ended, value).bool(), value, kept)
