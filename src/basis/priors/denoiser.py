"""Score priors: a trained denoiser as a prior; and priors from networks of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.nn.kinds import find_kind
from basis.nn.unet import ClassConditional, Denoiser, class_weights
from basis.priors.likelihood import LikelihoodPrior
from basis.priors.prior import Prior, Range, Shape, in_chunks


class DenoiserPrior(Prior):
    """A module that denoises signals, as a prior.

    Values and noise levels of the module are those of the prior; `Prior.from_denoiser` converts
    them, and takes any function.

    Args:
        module: Maps (x, sigma) to E[clean | noisy = x]; x is (batch, channels, *size), sigma
            (batch,). If it has a method `moments` of the same arguments (and its attribute `head`,
            if it has one, is not None), that returns the mean and the variance of each clean value.
            The module is neither frozen nor moved.
        shape: (channels, *size).
        sigma_min, sigma_max: The range it was trained on.
        value_range: As for `Prior`; [0, 1] by default.
        chunk: Signals per call of the network at most; larger batches are cut. A chunk that fits
            the cache is faster than a large one on a CPU.
        settings: `center`, `std`, `errors` and `card`, as for `Prior`.

    It computes in its own precision and answers in that of its input.
    """

    def __init__(
        self,
        module: nn.Module,
        shape: Shape,
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "denoiser",
        value_range: Range | None = (0.0, 1.0),
        chunk: int = 256,
        **settings: Any,
    ) -> None:
        super().__init__(
            shape, sigma_min, sigma_max, name=name, value_range=value_range, **settings
        )
        if not isinstance(module, nn.Module):
            raise BasisError(
                f"DenoiserPrior takes an nn.Module, not {module!r:.60}; Prior.from_denoiser takes "
                "any function of (x, sigma)"
            )
        self.module, self.chunk = module, chunk

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._answers(lambda *piece: (self.module(*piece),), x, sigma)[0]

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        own = getattr(self.module, "moments", None)
        if own is None or getattr(self.module, "head", self.module) is None:
            return super().moments(x, sigma)
        mean, variance = self._answers(own, x, sigma)
        return mean, variance

    def _answers(
        self, call: Callable[[Tensor, Tensor], Sequence[Tensor]], x: Tensor, sigma: Tensor | float
    ) -> list[Tensor]:
        self._check_batch(x)

        def checked(x: Tensor, sigma: Tensor) -> list[Tensor]:
            return [check_answer(answer, x, self.name) for answer in call(x, sigma)]

        return in_chunks(checked, self.module, x, sigma, self.chunk)

    @property
    def classes(self) -> tuple[str, ...]:
        network = getattr(self.module, "network", None)
        count = getattr(getattr(network, "config", None), "classes", 0)
        named = () if self.card is None else tuple(self.card.classes)
        return named if len(named) == count else tuple(map(str, range(count)))

    def condition(self, *classes: str | int) -> Prior:
        known = self.classes
        if not known or not isinstance(self.module, Denoiser):
            return super().condition(*classes)
        shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        member = torch.zeros(len(known), dtype=torch.bool, device=self.device)
        for wanted in classes:
            number = known.index(wanted) if wanted in known else wanted
            if type(number) is not int or not 0 <= number < len(known):
                raise BasisError(
                    f"prior {self.name!r} has no class {wanted!r:.60}; its classes are {shown}"
                )
            member[number] = True
        if not member.any():
            raise BasisError(
                f"condition needs a class of prior {self.name!r}; its classes are {shown}"
            )
        if member.all():
            return self
        names = [name for name, inside in zip(known, member.tolist(), strict=True) if inside]
        prior = DenoiserPrior(
            ClassConditional(self.module, class_weights(member)),
            self.shape,
            self.sigma_min,
            self.sigma_max,
            name=f"{self.name}:{','.join(names)}",
            chunk=self.chunk,
            **self._traits,
        )
        prior.energies, prior.spectrum = self.energies, self.spectrum
        return prior.train(self.training)


def check_answer(answer: object, x: Tensor, name: str) -> Tensor:
    """The answer of a prior's function, checked to be a tensor of the shape of x."""
    if not isinstance(answer, Tensor) or answer.shape != x.shape:
        found = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise BasisError(
            f"the function of prior {name!r} must return a tensor of shape {tuple(x.shape)}, "
            f"not {found}"
        )
    return answer


def network_prior(
    module: nn.Module, *args: Any, **settings: Any
) -> DenoiserPrior | LikelihoodPrior:
    """The prior of a network: a `LikelihoodPrior` if it has `log_prob`, else a `DenoiserPrior`."""
    kind = LikelihoodPrior if hasattr(module, "log_prob") else DenoiserPrior
    return kind(module, *args, **settings)


def new_prior(
    kind: str,
    shape: Shape,
    value_range: Range | None,
    std: float | None,
    sigma_min: float | None,
    sigma_max: float | None,
    config: Mapping[str, Any],
) -> DenoiserPrior | LikelihoodPrior:
    """An untrained prior; arguments as for `Prior.new`."""
    settings: dict[str, Any] = {"name": kind, "value_range": value_range, "std": std}
    # A prior of its own only to fill in the defaults of std and center, and to check the rest.
    like = DenoiserPrior(nn.Identity(), shape, 0, 1, **settings)
    module = find_kind(kind, trainable=True).new_module(like.shape, like.center, like.std, config)
    return network_prior(
        module,
        shape,
        like.std / 60 if sigma_min is None else sigma_min,
        like.std / 0.03 if sigma_max is None else sigma_max,
        **settings,
    )
