"""Two denoisers of the same signals, for small and for large noise levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from basis.nn.kind import Architecture, NetworkKind, entry, number
from basis.nn.unet import Denoiser, UNetConfig, build_denoiser, describe_denoiser

_Answers = Sequence[Tensor]


class Experts(Denoiser):
    """A denoiser with a second network for large noise levels.

    Large noise decides what a signal shows, and a network for these levels only has all of its
    capacity for that (Balaji et al. 2022, arXiv:2211.01324). Training continues the weights of the
    denoiser for less noise.

    Args:
        denoiser: For noise below sigma; its networks become attributes of this module.
        above: For noise of sigma and more.
        sigma: The noise level from which `above` is used.
    """

    def __init__(self, denoiser: Denoiser, above: Denoiser, sigma: float) -> None:
        super().__init__(denoiser.network, denoiser.mean, denoiser.std, denoiser.head)
        self.above, self.sigma = above, float(sigma)

    def forward(self, x: Tensor, sigma: Tensor, condition: Tensor | None = None) -> Tensor:
        """The denoised signal; shapes as in `Denoiser.forward`."""

        def ask(expert: Callable[..., Tensor]) -> Callable[..., _Answers]:
            return lambda *rows: (expert(*rows),)

        return self._each(ask(super().forward), ask(self.above), x, sigma, condition)[0]

    def moments(
        self, x: Tensor, sigma: Tensor, condition: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; needs two heads."""
        mean, variance = self._each(super().moments, self.above.moments, x, sigma, condition)
        return mean, variance

    def _each(
        self,
        below: Callable[..., _Answers],
        above: Callable[..., _Answers],
        x: Tensor,
        sigma: Tensor,
        condition: Tensor | None,
    ) -> _Answers:
        """The answers of the network for the noise of each signal."""
        much = sigma >= self.sigma
        if bool(much.all()):
            return above(x, sigma, condition)
        if not bool(much.any()):
            return below(x, sigma, condition)
        outs: list[Tensor] = []
        for ask, chosen in ((below, ~much), (above, much)):
            rows = torch.nonzero(chosen).flatten()
            answers = ask(x[rows], sigma[rows], None if condition is None else condition[rows])
            outs = outs or [torch.empty_like(x) for _ in answers]
            outs = [out.index_copy(0, rows, a) for out, a in zip(outs, answers, strict=True)]
        return outs


def _build(architecture: Architecture) -> Experts:
    denoiser, above = build_denoiser(architecture), build_denoiser(entry(architecture, "above"))
    return Experts(denoiser, above, number(architecture, "sigma", positive=True))


def _describe(module: Any) -> dict[str, Any]:
    above = describe_denoiser(module.above)
    return describe_denoiser(module) | {"above": above, "sigma": module.sigma}


KIND = NetworkKind(
    name="experts",
    title="score",
    module=Experts,
    config=UNetConfig,
    trainable=False,
    build=_build,
    describe=_describe,
)
