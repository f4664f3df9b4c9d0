"""The studies of `basis study` that ask how sure answers are: each a table and its rows."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli.arguments import progress_bar
from basis.cli.sampling import run_separation, sampler_from, way
from basis.errors import BasisError

if TYPE_CHECKING:
    from torch import Tensor

    from basis._mix import Pairs
    from basis.priors.prior import Prior
    from basis.result import Result


def study_pairs(args: argparse.Namespace) -> Pairs:
    """The test mixtures that the arguments name."""
    from basis._mix import draw_pairs
    from basis.signals.datasets import load_images

    images = load_images(args.data, "test", root=args.data_root)
    return draw_pairs(images, args.pairs, k=args.k, protocol=args.protocol, seed=args.seed)


def _checked_pairs(args: argparse.Namespace, priors: list[Prior]) -> Pairs:
    """The same, where all of the priors can separate them; asked before any long work."""
    pairs = study_pairs(args)
    for prior in priors:
        if tuple(pairs.sources.shape[2:]) != prior.shape:
            raise BasisError(
                f"images of {args.data} have shape {tuple(pairs.sources.shape[2:])}, those of "
                f"prior {prior.name!r} {prior.shape}; give --data of its kind"
            )
    return pairs


def _only_one(args: argparse.Namespace, priors: list[Prior]) -> Prior:
    if len(priors) != 1:
        raise BasisError(f"study {args.kind} takes one prior, not {len(priors)}")
    return priors[0]


def plausibility_study(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The plausibility study: its table, and its rows for the record."""
    from basis import mixings
    from basis._mix import draw_pairs
    from basis._sample import sample
    from basis.lab.studies.plausibility_study import (
        Case,
        flag_cases,
        flagged_table,
        plausibility_cases,
    )
    from basis.signals.datasets import load_images
    from basis.store.loading import load_prior

    prior, sampler = _only_one(args, priors), sampler_from(args)
    pairs = _checked_pairs(args, priors)
    images = load_images(args.data, "test", root=args.data_root)
    other = _as_shape(load_images("cifar10", "test", root=args.data_root).floats(slice(64)), prior)
    foreign = _as_shape(sample(load_prior("cifar10"), 64, steps=12, seed=args.seed), prior)
    three = draw_pairs(images, 32, k=3, seed=args.seed + 2).sources
    wrong = draw_pairs(images, 32, seed=args.seed + 1).sources
    cases = plausibility_cases(pairs.sources, wrong, three, other, foreign, seed=args.seed)

    def separated(case: Case) -> Result:
        mixing = mixings.mixture(case.alphas)
        return run_separation(args, case.mixture, [prior], mixing, sampler, case.name)

    rows = flag_cases(prior, cases, separated)
    table = flagged_table(rows).markdown()
    return f"{table}\n{way(args)}.\n", [dataclasses.asdict(row) for row in rows]


def _as_shape(images: Tensor, prior: Prior) -> Tensor:
    """The middles of images in the shape of a prior, colours as their mean where it has none."""
    channels, *size = prior.shape
    if len(size) != 2 or max(size) > 32:
        raise BasisError(
            f"photos of 32x32 have no middle of {'x'.join(map(str, size))}, the size of prior "
            f"{prior.name!r}; this study takes priors of pictures up to that"
        )
    if images.shape[1] != channels:
        images = images.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)
    for axis, side in zip((2, 3), size, strict=True):
        images = images.narrow(axis, (images.shape[axis] - side) // 2, side)
    return images


def weights_study(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The study of unknown weights: its table, and its row for the record."""
    from basis._separate import separate
    from basis.lab.studies.weights_study import random_weights, weight_errors, weights_table
    from basis.mixings.per_item import PerItemMixing

    prior, sampler = _only_one(args, priors), sampler_from(args)
    truth = _checked_pairs(args, priors).sources
    mixing = PerItemMixing(random_weights(args.pairs, seed=args.seed))
    m = mixing(truth)
    with progress_bar("weights unknown") as progress:
        unknown = separate(
            m,
            prior,
            alphas="unknown",
            sources=2,
            effort=args.effort,
            sampler=sampler,
            seed=args.seed,
            chunk=args.chunk,
            progress=progress,
        )
    known = run_separation(args, m, [prior], mixing, sampler, "weights known")
    row = weight_errors(truth, mixing.alphas, unknown, known)
    text = weights_table(row).markdown()
    text += f"\n{way(args)}; {unknown.evaluations} evaluations per mixture, {known.evaluations} "
    return text + "with known weights.\n", dataclasses.asdict(row)


def sources_study(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The study of unknown numbers of sources: its table, and its rows for the record."""
    from basis._mix import draw_pairs
    from basis._separate import separate
    from basis.lab.studies.weights_study import counts_table
    from basis.signals.datasets import load_images

    prior, sampler = _only_one(args, priors), sampler_from(args)
    images = load_images(args.data, "test", root=args.data_root)
    found = []
    for k in (1, 2, 3):
        m = draw_pairs(images, args.pairs, k=k, seed=args.seed).sources.sum(dim=1)
        with progress_bar(f"{k} sources") as progress:
            result = separate(
                m,
                prior,
                sources="unknown",
                effort=args.effort,
                sampler=sampler,
                seed=args.seed,
                chunk=args.chunk,
                progress=progress,
            )
        assert result.counts is not None
        found.append((k, result.counts))
    rows = {str(k): counts.tolist() for k, counts in found}
    return counts_table(found).markdown() + f"\n{way(args)}.\n", rows


def calibration_study(args: argparse.Namespace, priors: list[Prior], out: Path) -> tuple[str, Any]:
    """The calibration study: its table and figure, and its rows for the record."""
    from basis import mixings
    from basis.lab.studies.calibration_study import (
        calibration,
        calibration_table,
        exact_calibrations,
        plot_calibration,
    )
    from basis.plots.charts import require_matplotlib

    require_matplotlib()
    sampler, draws = sampler_from(args), args.samples or 20
    args.samples = draws
    pairs, alphas = _checked_pairs(args, priors), (1.0,) * args.k
    rows = exact_calibrations(48, draws, seed=args.seed)
    for prior in priors:
        label = f"{prior.name}, {way(args)}"
        result = run_separation(
            args, pairs.mix(alphas), [prior], mixings.mixture(alphas), sampler, label
        )
        # Pictures are rounded to 8 bits; where draws agree to less, there is nothing to tell.
        half = 0.5 / 255
        rows.append(calibration(f"{label}, all values", pairs.sources, result, tolerance=half))
        name = f"{label}, values that deviate by 0.02 or more"
        rows.append(calibration(name, pairs.sources, result, least=0.02, tolerance=half))
    plot_calibration(rows, out / "calibration.png")
    return calibration_table(rows).markdown(), [dataclasses.asdict(row) for row in rows]
