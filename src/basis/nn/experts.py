"""Two denoisers of the same signals, each for the noise levels that it knows best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from basis.nn.kinds import Family, entry, number_entry
from basis.nn.unet import Denoiser, UNetConfig, build_around, describe_around

_Answers = Sequence[Tensor]


class Experts(Denoiser):
    """A denoiser that leaves noise from some level on to another one.

    What a signal shows is decided in much noise, where little of its detail is left: a network for
    these levels alone spends all of itself on that (Balaji et al. 2022, arXiv:2211.01324). Its own
    weights are those of the denoiser for less noise, so that training goes on from that one.

    Args:
        denoiser: For noise below sigma; its networks become this one's own.
        above: For noise of sigma and more.
        sigma: The noise level from which the other one answers.
    """

    def __init__(self, denoiser: Denoiser, above: Denoiser, sigma: float) -> None:
        super().__init__(denoiser.network, denoiser.mean, denoiser.std, denoiser.head)
        self.above, self.sigma = above, float(sigma)

    def forward(self, x: Tensor, sigma: Tensor, told: Tensor | None = None) -> Tensor:
        """The denoised signal; shapes as in `Denoiser.forward`."""

        def ask(expert: Callable[..., Tensor]) -> Callable[..., _Answers]:
            return lambda *rows: (expert(*rows),)

        return self._each(ask(super().forward), ask(self.above), x, sigma, told)[0]

    def moments(
        self, x: Tensor, sigma: Tensor, told: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; needs two heads."""
        mean, variance = self._each(super().moments, self.above.moments, x, sigma, told)
        return mean, variance

    def _each(
        self,
        below: Callable[..., _Answers],
        above: Callable[..., _Answers],
        x: Tensor,
        sigma: Tensor,
        told: Tensor | None,
    ) -> _Answers:
        """The answers of whichever knows the noise of each signal."""
        much = sigma >= self.sigma
        if bool(much.all()):
            return above(x, sigma, told)
        if not bool(much.any()):
            return below(x, sigma, told)
        outs: list[Tensor] = []
        for ask, chosen in ((below, ~much), (above, much)):
            rows = torch.nonzero(chosen).flatten()
            answers = ask(x[rows], sigma[rows], None if told is None else told[rows])
            outs = outs or [torch.empty_like(x) for _ in answers]
            outs = [out.index_copy(0, rows, a) for out, a in zip(outs, answers, strict=True)]
        return outs


def _build(architecture: Mapping[str, Any]) -> Any:
    denoiser = build_around("basis.nn:Denoiser", architecture)
    above = build_around("basis.nn:Denoiser", entry(architecture, "above"))
    sigma = number_entry(architecture, "sigma", positive=True)
    return Experts(denoiser, above, sigma)


def _describe(module: Any) -> dict[str, Any]:
    above = describe_around(module.above)
    return describe_around(module) | {"above": above, "sigma": module.sigma}


FAMILY = Family(
    kind="experts",
    title="score",
    sizes=UNetConfig,
    module="basis.nn:Experts",
    trainable=False,
    build=_build,
    describe=_describe,
)
