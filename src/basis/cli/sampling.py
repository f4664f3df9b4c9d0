"""Which way a mixture is separated: the flags of priors, efforts and samplers.

A sampler's settings are the fields of its dataclass. Its file is only loaded where it is named, so
that `basis separate --help` answers at once; `basis separate --sampler gibbs --help` lists them.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from basis.cli.arguments import (
    device_from,
    natural,
    number,
    progress_bar,
    seed_number,
    whole_number,
)
from basis.cli.away import add_away, away_from
from basis.errors import BasisError
from basis.settings import CHOICES, DEFAULT_EFFORT, EFFORTS

if TYPE_CHECKING:
    from torch import Tensor

    from basis.mixings.mixing import Mixing
    from basis.priors.prior import Prior
    from basis.result import Result
    from basis.samplers.sampler import Sampler


_FINER = 0.5
"""The longest waves of sources that are led away from a weaker prior's, as a share of the side:
longer ones are the brightness and hue of areas, which two sources would be driven apart in.
"""


def sampler_names() -> list[str]:
    """The names of all samplers, by their files."""
    return ["ancestral", "ascent", "basis", "dirac", "gibbs", "langevin"]


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Everything that says which sampler runs and how."""
    group = parser.add_argument_group("sampler")
    group.add_argument(
        "--prior",
        action="append",
        metavar="NAME|DIR",
        help="default: mnist; given once for all sources, or once for each",
    )
    add_away(group)
    group.add_argument(
        "--effort",
        type=_effort,
        metavar=f"{'|'.join(EFFORTS)}|N",
        help="how much to spend on a mixture: the search measured to be best for it, or for N "
        f"network evaluations (default: {DEFAULT_EFFORT}, unless a sampler is given)",
    )
    names = sampler_names()
    group.add_argument(
        "--sampler",
        choices=names,
        help="draw with this one instead of searching; --sampler NAME --help lists its settings",
    )
    group.add_argument(
        "--samples",
        type=natural,
        help="chains per mixture (default: 1, or the effort's own number)",
    )
    group.add_argument(
        "--choose",
        choices=CHOICES,
        help="which of the samples to show, or their mean, which is nearest to the truth where "
        "much is left open, as in photos; draw: one draw of all the effort, which looks like "
        "the prior's signals (default: first; the best by energy with an effort)",
    )
    group.add_argument("--seed", type=seed_number, default=0, help="default 0")
    group.add_argument(
        "--no-finish",
        action="store_true",
        help="leave out the last denoising and projection onto the mixture",
    )
    group.add_argument("--chunk", type=natural, default=128, help="chains at once (default 128)")
    group.add_argument("--device", default="cpu", help="torch device, or auto (default: cpu)")
    named = _value_of("--sampler", getattr(parser, "words", ()))
    if named in names:
        _add_settings(parser, named)


def _value_of(flag: str, words: Sequence[str]) -> str:
    """The value that a flag has among the words of a command line, or nothing."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == flag:
            return following
        if word.startswith(flag + "="):
            return word.removeprefix(flag + "=")
    return ""


def _add_settings(parser: argparse.ArgumentParser, name: str) -> None:
    """A flag for every setting of the sampler of this name."""
    from basis.samplers import SAMPLERS

    kind = SAMPLERS[name]
    hints = get_type_hints(kind)
    texts = {f.name: f.metadata.get("help", "") for f in dataclasses.fields(kind)}
    group = parser.add_argument_group(f"settings of {name}")
    for field in dataclasses.fields(kind):
        text = texts.get(field.name, "")
        if hints[field.name] is bool:
            text += f" ({'yes' if field.default else 'no'})"
        elif field.default is not None:
            text += f" ({field.default:g})" if _is_number(field.default) else f" ({field.default})"
        options: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS}
        hint = hints[field.name]
        if get_origin(hint) is Literal:
            options["choices"] = get_args(hint)
        elif hint is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = whole_number if hint is int else number
        flag = "--" + field.name.replace("_", "-")
        group.add_argument(flag, dest=f"setting_{field.name}", **options)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _effort(text: str) -> str | int:
    """An effort's name or a number of evaluations, for argparse; `separate` checks it."""
    try:
        return int(text)
    except ValueError:
        return text


def setting_hint(unknown: Sequence[str]) -> str | None:
    """What to say of words that no flag knows but a sampler does."""
    from basis.samplers import SAMPLERS

    settings = {
        "--" + field.name.replace("_", "-")
        for kind in SAMPLERS.values()
        for field in dataclasses.fields(kind)
    }
    loose = [word for word in unknown if word.split("=")[0] in settings]
    if not loose:
        return None
    return (
        f"{', '.join(loose)} is no setting of what runs here; it goes with a sampler that has it "
        "(--sampler NAME --help lists its settings)"
    )


def priors_from(args: argparse.Namespace) -> list[Prior]:
    """The priors that `--prior` names: one for all sources, or one for each."""
    from basis.store.loading import load_prior

    device = device_from(args.device)
    named = [
        load_prior(name, root=args.data_root, device=device) for name in args.prior or ["mnist"]
    ]
    return away_from(args, named, finer=_FINER)


def sampler_from(args: argparse.Namespace) -> Sampler | None:
    """The sampler that `add_sampling`'s arguments describe; None where an effort is to decide."""
    from basis._inputs import make_sampler
    from basis.search.plan import plan_for

    if args.sampler is None:
        loose = ["--no-finish"] if args.no_finish else []
        loose += ["--keep"] if getattr(args, "keep", None) else []
        if loose:
            raise BasisError(
                f"{', '.join(loose)} goes with a sampler: add --sampler basis (or another one)"
            )
        plan_for(args.effort)  # a wrong effort is refused before anything is loaded
        return None
    if args.effort is not None:
        raise BasisError("give --effort or --sampler, not both")
    given = {
        name.removeprefix("setting_"): value
        for name, value in vars(args).items()
        if name.startswith("setting_")
    }
    return make_sampler(args.sampler, **given)


def way(args: argparse.Namespace) -> str:
    """What a table calls the way of separating that `add_sampling`'s arguments describe."""
    name = args.sampler or f"effort {DEFAULT_EFFORT if args.effort is None else args.effort}"
    return f"{name}, {args.choose}" if args.choose in ("mean", "draw") else name


def run_separation(
    args: argparse.Namespace,
    mixture: Tensor,
    priors: Sequence[Prior],
    mixing: Mixing,
    sampler: Sampler | None,
    label: str,
    keep: Sequence[float] = (),
) -> Result:
    """`separate` as `add_sampling`'s arguments say, behind a progress bar."""
    from basis._separate import separate

    with progress_bar(label) as progress:
        return separate(
            mixture,
            priors[0] if len(priors) == 1 else priors,
            mixing=mixing,
            sampler=sampler,
            effort=args.effort,
            samples=args.samples,
            choose=args.choose,
            seed=args.seed,
            finish=not args.no_finish,
            keep=keep,
            chunk=args.chunk,
            progress=progress,
        )
