"""Priors made of another prior."""

from __future__ import annotations

from basis.priors._prior import Prior


class Derived(Prior):
    """A prior that takes what it does not change from another one: range, spread, card, energies.

    Args:
        prior: The other one.
        shape: (channels, *size) of one signal; the other's by default.
    """

    def __init__(self, prior: Prior, shape: tuple[int, ...] | None = None) -> None:
        super().__init__(
            prior.shape if shape is None else shape,
            prior.sigma_min,
            prior.sigma_max,
            name=prior.name,
            **prior.traits,
        )
        self.prior, self.cost = prior, prior.cost
        self.energies, self.spectrum = prior.energies, prior.spectrum

    @property
    def tile_cost(self) -> int:
        return self.prior.tile_cost

    @property
    def turn_spreads(self) -> float:
        return self.prior.turn_spreads
