"""What several commands share: flags, named as the arguments of the library, and jobs."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis.cli import value_of
from basis.errors import BasisError, printable
from basis.files import check_disk_space
from basis.settings import (
    DEFAULT_METHOD,
    ESTIMATES,
    METHODS,
    SAMPLER_NAMES,
    add_flags,
    flags_to_settings,
)

if TYPE_CHECKING:
    from basis.cli import Parser
    from basis.jobs.store import JobStore
    from basis.priors.prior import Prior

Group = argparse._ActionsContainer
_LEAST_SPACE = 1 << 20
"""Bytes that any result needs."""


def number(text: str) -> float:
    """A finite number, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, not {text!r:.60}")
    return value


def whole_number(text: str) -> int:
    """A whole number, for argparse."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r:.60}") from None
    if not -(2**63) <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be less than 2^63, not {text:.60}")
    return value


def natural(text: str) -> int:
    """A whole number of at least one, for argparse."""
    value = whole_number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text:.60}")
    return value


def seed_number(text: str) -> int:
    """A seed that a random generator accepts, for argparse."""
    value = whole_number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be from 0 to 2^63 - 1, not {text:.60}")
    return value


def worker_count(text: str) -> int:
    """A number of threads or processes that this machine can start, for argparse."""
    value, most = natural(text), max(64, 4 * (os.cpu_count() or 1))
    if value > most:
        raise argparse.ArgumentTypeError(f"must be at most {most} on this machine, not {text:.60}")
    return value


def method(text: str) -> str | int:
    """A method's name or a number of evaluations, for argparse; the library checks it."""
    try:
        return int(text)
    except ValueError:
        return text


def add_out(group: Group, default: str) -> None:
    """`--out`."""
    group.add_argument("--out", default=default, metavar="DIR", help=f"default: {default}")


def data_set(inputs: list[str]) -> str | None:
    """The data set that the inputs of a command are; None if they are files."""
    from basis.signals.datasets import DATASETS

    single = len(inputs) == 1 and inputs[0] in DATASETS and not Path(inputs[0]).exists()
    return inputs[0] if single else None


def add_reading(parser: argparse.ArgumentParser, *, invert: bool = True) -> None:
    """The conversions of `basis.read`."""
    group = parser.add_argument_group("reading pictures (nothing is converted unless asked)")
    group.add_argument("--grey", action="store_true", help="convert color to grey")
    group.add_argument("--color", action="store_true", help="convert grey to color")
    if invert:
        group.add_argument("--invert", action="store_true", help="exchange light and dark")
    group.add_argument("--size", type=natural, help="crop and resize to N x N pixels")


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `basis.read` that `add_reading`'s flags give."""
    names = ("grey", "color", "invert", "size")
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def add_method(group: Group) -> None:
    """`--method`."""
    group.add_argument(
        "--method",
        type=method,
        default=DEFAULT_METHOD,
        metavar="METHOD",
        help=f"{', '.join(METHODS)}, or a number of network evaluations (default "
        f"{DEFAULT_METHOD}); or a sampler: {', '.join(SAMPLER_NAMES)}",
    )


def add_sampler_settings(parser: Parser) -> None:
    """A flag for every setting of the sampler that `--method` names, if it names one."""
    name = value_of("--method", parser.words)
    if name not in SAMPLER_NAMES:
        parser.hint = "; settings of a sampler need --method NAME"
        return
    from basis.samplers import SAMPLERS

    group = parser.add_argument_group(f"settings of --method {name}")
    add_flags(group, SAMPLERS[name])
    group.add_argument(
        "--trajectory", type=number, nargs="+", metavar="SIGMA", help="keep states at noise levels"
    )
    group.add_argument("--no-finish", action="store_true", help="leave out the last denoising")


def chosen_method(args: argparse.Namespace) -> Any:
    """The `method` of `basis.separate`: a name, a number, or a sampler with its settings."""
    if args.method not in SAMPLER_NAMES:
        return args.method
    from basis.samplers import SAMPLERS

    kind = SAMPLERS[args.method]
    sampler = kind(**flags_to_settings(args, kind))
    if not (args.trajectory or args.no_finish):
        return sampler
    from dataclasses import replace

    from basis.search.plan import single_round

    plan = single_round(sampler, args.samples, args.estimate)
    first = replace(plan.rounds[0], finish=not args.no_finish)
    return replace(plan, rounds=(first,), trajectory=tuple(args.trajectory or ()))


def add_estimate(group: Group, what: str = "what the sources are") -> None:
    """`--estimate`."""
    group.add_argument(
        "--estimate",
        choices=ESTIMATES,
        default="mode",
        help=f"{what}: the most probable one found (default), the posterior mean, or one posterior "
        "sample",
    )


def add_autoguidance(group: Group) -> None:
    """Guidance by a weaker prior, `Prior.autoguide`."""
    group.add_argument(
        "--autoguidance",
        metavar="PRIOR",
        help="sharpen the prior by a weaker one of the same signals (cifar10-small for cifar10)",
    )
    group.add_argument(
        "--strength", type=number, default=0.3, help="strength of autoguidance (default 0.3)"
    )


def priors(args: argparse.Namespace, names: list[str]) -> list[str | Prior]:
    """The priors of these names, guided by the weaker one if there is one."""
    if not args.autoguidance:
        return list(names)
    from basis.priors.prior import Prior

    device = args.device or "cpu"
    weaker = Prior.from_pretrained(args.autoguidance, device=device)
    loaded = {name: Prior.from_pretrained(name, device=device) for name in dict.fromkeys(names)}
    guided = {name: p.autoguide(weaker, args.strength) for name, p in loaded.items()}
    return [guided[name] for name in names]


def add_seed(group: Group) -> None:
    """`--seed`."""
    group.add_argument(
        "--seed", type=seed_number, default=0, help="seed of all random numbers (default 0)"
    )


def add_device(group: Group, default: str = "cpu") -> None:
    """`--device`."""
    text = f"cpu, cuda, or auto: a GPU if there is one (default {default})"
    group.add_argument("--device", help=text)


def add_seed_and_device(group: Group) -> None:
    """`--seed` and `--device`."""
    add_seed(group)
    add_device(group)


def add_computing(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Where and how to compute."""
    group = parser.add_argument_group("computing")
    add_device(group)
    group.add_argument(
        "--batch-size", type=natural, default=128, metavar="N", help="chains at once (default 128)"
    )
    group.add_argument(
        "--workers", type=worker_count, metavar="N", help="threads, or processes of a job"
    )
    add_root(group)
    return group


def add_root(group: Group) -> None:
    """`--data-root`, which `main` puts into the environment."""
    group.add_argument(
        "--data-root", metavar="DIR", help="folder of data sets and priors (default: $BASIS_DATA)"
    )


def add_json(group: Group) -> None:
    """`--json`."""
    group.add_argument("--json", metavar="PATH", type=_file, help="write the result as JSON too")


def _file(text: str) -> str:
    if os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"{text} is a folder; give a file")
    return text


def out_folder(text: str) -> Path:
    """The folder of `--out`; raises before any work if nothing can be written there."""
    path = Path(text)
    for folder in (path, *path.parents):
        if not os.path.lexists(folder):
            continue
        if not os.path.isdir(folder):
            raise BasisError(f"{folder} is a file; --out must be a folder")
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise BasisError(f"cannot write to {folder} ({error.strerror})") from error
        check_disk_space(folder, _LEAST_SPACE)
        break
    return path


def add_training_set(parser: argparse.ArgumentParser) -> None:
    """The data that a prior is trained on, and the folder of the run."""
    parser.add_argument("--data", default="mnist", help="a data set, a folder or .npy (mnist)")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--name", help="name of the prior (default: that of the folder)")
    parser.add_argument("--size", type=natural, help="crop and resize photos to N x N pixels")
    parser.add_argument("--classes", type=int, nargs="+", metavar="LABEL", help="only these labels")
    parser.add_argument("--held-out", type=natural, metavar="N", help="items for validation")


def device_from(name: str | None) -> str:
    """A torch device that exists here, by its name or `auto`."""
    from basis.devices import find_device

    return str(find_device(name or "cpu"))


def say(line: object) -> None:
    """Prints one line, with control characters escaped."""
    print(printable(line))


# Jobs: commands on many files.

MANY = 1000
"""More items than this are a job without being asked."""


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """How a job runs."""
    group = parser.add_argument_group(
        f"jobs (a folder, or more than {MANY} items: shards on the disk; the same command resumes)"
    )
    group.add_argument("--job", action="store_true", help="run fewer items as a job too")
    group.add_argument("--shard", type=natural, metavar="N", help="items in a shard (64)")
    group.add_argument("--scheduler", metavar="ADDRESS", help="use the workers of a Dask scheduler")
    group.add_argument("--pictures", action="store_true", help="write all results as pictures too")


def is_job(args: argparse.Namespace, inputs: list[str], count: int) -> bool:
    """Whether a job is asked for, or the items are many.

    Args:
        args: The flags.
        inputs: Files, folders, or the name of a data set.
        count: The number of items that are taken of a data set.
    """
    asked = args.job or args.scheduler or args.shard or args.pictures
    return bool(asked) or _item_count(inputs, count) > MANY


def _item_count(inputs: list[str], count: int) -> int:
    """How many items the inputs are, as far as that is known without reading them."""
    from basis.signals.datasets import DATASETS

    if any(Path(path).is_dir() for path in inputs):
        return MANY + 1
    if len(inputs) != 1 or inputs[0] in DATASETS:
        return count if len(inputs) == 1 else len(inputs)
    path = Path(inputs[0])
    if path.suffix.lower() == ".npy" and path.is_file():
        import numpy as np

        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception:  # reading it later says what is wrong
            return 1
        return len(array) if array.ndim > 3 else 1
    return 1


def run_job(
    args: argparse.Namespace, job: Callable[..., JobStore], *given: Any, **more: Any
) -> None:
    """Runs a job with a progress bar, then prints what it did.

    Args:
        args: The flags.
        job: `separate_job` or `colorize_job`.
        given, more: Its arguments, without those of `add_jobs`.
    """
    store = job(
        *given,
        **more,
        workers=args.workers,
        scheduler=args.scheduler,
        shard=args.shard,
        progress=True,
    )
    if args.pictures:
        store.write_pictures()
    print(store)
