"""Score priors: a trained denoiser as a prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.nn.conditional import Told, class_weights
from basis.nn.unet import Denoiser
from basis.priors.card import Card
from basis.priors.prior import Prior
from basis.tensors import as_sigmas


class DenoiserPrior(Prior):
    """A module that denoises signals, as a prior.

    Args:
        module: Maps (x, sigma) to E[clean | noisy = x]; x is (batch, channels, *size), sigma
            (batch,). Where it has a method `moments` of the same arguments (and its attribute
            `head`, if it has one, is not None), that answers with the mean and the variance of each
            clean value. The module is taken as it is: neither frozen nor moved.
        shape: (channels, *size).
        sigma_min, sigma_max: The range it was trained on.
        low, high, center, spread, errors, card: As for `Prior`; values in [0, 1] by default.
        chunk: Most signals per call of the network; a larger batch is cut. A cache-sized chunk is
            faster than a large one on a CPU.

    It computes in its own precision and answers in that of its input.
    """

    def __init__(
        self,
        module: nn.Module,
        shape: tuple[int, ...],
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "denoiser",
        low: float | None = 0.0,
        high: float | None = 1.0,
        center: float | None = None,
        spread: float | None = None,
        errors: Mapping[float, float] | None = None,
        card: Card | None = None,
        chunk: int = 256,
    ) -> None:
        super().__init__(
            shape,
            sigma_min,
            sigma_max,
            name=name,
            low=low,
            high=high,
            center=center,
            spread=spread,
            errors=errors,
            card=card,
        )
        self.module, self.chunk = module, chunk

    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        return self._apply_module(lambda x, s: (self.module(x, s),), x, sigma)[0]

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        own = getattr(self.module, "moments", None)
        if own is None or getattr(self.module, "head", self.module) is None:
            return super().moments(x, sigma)
        mean, variance = self._apply_module(own, x, sigma)
        return mean, variance

    @property
    def classes(self) -> tuple[str, ...]:
        network = getattr(self.module, "network", None)
        count = getattr(getattr(network, "config", None), "classes", 0)
        named = () if self.card is None else tuple(self.card.classes)
        return named if len(named) == count else tuple(map(str, range(count)))

    def given(self, *classes: str | int) -> Prior:
        known = self.classes
        if not known or not isinstance(self.module, Denoiser):
            return super().given(*classes)
        member = torch.zeros(len(known), dtype=torch.bool, device=self.device)
        for one in classes:
            member[_number_of(one, known, self.name)] = True
        if not member.any():
            raise BasisError(f"no class of prior {self.name!r} is given; {_told_classes(known)}")
        if member.all():
            return self
        names = ",".join(
            name for name, inside in zip(known, member.tolist(), strict=True) if inside
        )
        prior = DenoiserPrior(
            Told(self.module, class_weights(member)),
            self.shape,
            self.sigma_min,
            self.sigma_max,
            name=f"{self.name}:{names}",
            chunk=self.chunk,
            **self.traits,
        )
        prior.energies, prior.spectrum = self.energies, self.spectrum
        return prior.train(self.training)

    def _checked(self, answer: object, x: Tensor) -> Tensor:
        """The answer of a module that may be anybody's."""
        if not isinstance(answer, Tensor):
            raise BasisError(
                f"the denoiser of prior {self.name!r} must answer with a tensor, not "
                f"{type(answer).__name__}"
            )
        if answer.shape != x.shape:
            raise BasisError(
                f"the denoiser of prior {self.name!r} answered {tuple(answer.shape)} to "
                f"{tuple(x.shape)}"
            )
        return answer

    def _apply_module(
        self, call: Callable[[Tensor, Tensor], Sequence[Tensor]], x: Tensor, sigma: Tensor | float
    ) -> list[Tensor]:
        """The network's answers in the precision of x, cut into chunks."""
        p = next(self.module.parameters(), x)
        own = x.to(p.dtype)
        s = as_sigmas(sigma, own)
        if len(x) <= self.chunk:
            return [self._checked(out, x).to(x.dtype) for out in call(own, s)]
        pieces = zip(own.split(self.chunk), s.split(self.chunk), strict=True)
        answers = zip(
            *([self._checked(out, p[0]) for out in call(*p)] for p in pieces), strict=True
        )
        return [torch.cat(parts).to(x.dtype) for parts in answers]


def _number_of(wanted: str | int, known: Sequence[str], name: str) -> int:
    """The number of a class that is given by its name or number."""
    if isinstance(wanted, str) and wanted in known:
        return known.index(wanted)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 0 <= wanted < len(known):
        return wanted
    raise BasisError(f"prior {name!r} has no class {wanted!r:.60}; {_told_classes(known)}")


def _told_classes(known: Sequence[str]) -> str:
    return f"its classes are {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}"
