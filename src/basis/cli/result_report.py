"""What a separation says of itself on screen and in its record: plausibility, draws and modes."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from basis.errors import printable
from basis.result import has_draws

if TYPE_CHECKING:
    from torch import Tensor

    from basis.files import RunFolder
    from basis.priors.prior import Prior
    from basis.result import Result


_LINES = 5  # warnings that are told one by one
_SHOWN = 24  # mixtures whose estimated weights are told
_LIGHT = 0.05  # modes below this weight are not told on screen


def in_order_of(result: Result, truth: Tensor) -> Result:
    """The result with its sources, and those of its samples, in the order of the true ones."""
    import torch

    from basis import metrics
    from basis.mixings.per_item import PerItemMixing

    order = metrics.best_permutation(-metrics.squared_distances(result.sources, truth))
    rows = list(enumerate(order))
    changes: dict[str, Any] = {
        "sources": torch.stack([result.sources[i][o] for i, o in rows]),
        "samples": torch.stack([result.samples[i][:, o] for i, o in rows]),
    }
    if result.alphas is not None:
        changes["alphas"] = torch.stack([result.alphas[i][o] for i, o in rows])
        if isinstance(result.mixing, PerItemMixing):
            changes["mixing"] = PerItemMixing(changes["alphas"])
    if result.source_energies is not None:
        changes["source_energies"] = torch.stack([result.source_energies[i][o] for i, o in rows])
    return dataclasses.replace(result, **changes)


def in_steps(residual: float, prior: Prior) -> float:
    """A residual in steps of 8 bits: 255ths of the range, or of what stands for it."""
    if prior.low is None or prior.high is None:
        return 255 * residual / (prior.std / 0.3)
    return 255 * residual / (prior.high - prior.low)


def print_estimates(names: Sequence[str], result: Result) -> None:
    """Weights and numbers of sources that were estimated."""
    if result.alphas is None or (result.alphas_known is None and result.counts is None):
        return
    for name, alphas in list(zip(names, result.alphas.tolist(), strict=True))[:_SHOWN]:
        told = " ".join(f"{a:.3f}" for a in alphas if a)
        print(f"{printable(name)}: {sum(a != 0 for a in alphas)} sources, weights {told}")
    if len(names) > _SHOWN:
        print(f"{len(names) - _SHOWN} more mixtures; run.json has them all")


def print_verdict(names: Sequence[str], result: Result, priors: Sequence[Prior]) -> None:
    """Says which mixtures are not plausible and why, and which have several explanations."""
    if result.plausible is None:
        print_estimates(names, result)
        without = next((p.name for p in priors if p.energies is None), None)
        print(
            "plausibility: not known, the effort is too small for it"
            if without is None
            else f"plausibility: not known, prior {without!r} has no typical energies to compare "
            "with (basis priors measure)"
        )
    else:
        print_estimates(names, result)
        print(f"plausible: {int(result.plausible.sum())} of {len(names)}")
        doubted = [(n, r) for n, r in zip(names, result.remarks, strict=True) if r]
        for name, remark in doubted[:_LINES]:
            print(f"basis separate: warning: {printable(name)} is {remark}", file=sys.stderr)
        if len(doubted) > _LINES:
            print(
                f"basis separate: warning: {len(doubted) - _LINES} more; run.json has them all",
                file=sys.stderr,
            )
    if not has_draws(result):
        return
    several = [(n, m) for n, m in zip(names, result.modes, strict=True) if len(m) > 1]
    for name, modes in several[:_LINES]:
        weights = ", ".join(f"{m.weight:.2f}" for m in modes if m.weight >= _LIGHT)
        print(f"{printable(name)}: {len(modes)} explanations, weights {weights}")
    if len(several) > _LINES:
        print(f"{len(several) - _LINES} more with several explanations; run.json has them all")


def write_draws(
    folder: RunFolder,
    names: Sequence[str],
    mixture: Tensor,
    result: Result,
    low: float | None,
    high: float | None,
    shown: int,
) -> None:
    """Every draw of every mixture as pictures, and all of the first mixtures in draws.png."""
    from basis.plots.drawing import to_picture, write_picture
    from basis.plots.panels import samples_panel

    samples = result.samples
    if samples.ndim == 6:
        digits = max(2, len(str(samples.shape[1])))
        for name, draws in zip(names, samples, strict=True):
            for number, draw in enumerate(draws, start=1):
                for i, image in enumerate(draw, start=1):
                    file = f"{name}-draw{number:0{digits}d}-source{i}.png"
                    write_picture(folder.path(file), to_picture(image, (low, high)))
    modes = [
        {i: rank for rank, mode in enumerate(one, start=1) for i in mode.members}
        for one in result.modes[:shown]
    ]
    picture = samples_panel(
        mixture[:shown],
        samples[:shown],
        modes=modes,
        names=list(names[:shown]),
        value_range=(low, high),
    )
    write_picture(folder.path("draws.png"), picture)
