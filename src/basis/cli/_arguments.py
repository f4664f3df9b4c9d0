"""What several commands share: arguments, progress bars, records."""

from __future__ import annotations

import argparse
import ast
import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from basis._errors import BasisError
from basis._files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from basis import Mixing, Prior, Progress, Result, Sampler
    from basis.data import ImageSet

# `basis.samplers.SAMPLERS` has the same names; asking it would cost --help an import of torch.
_SAMPLERS = (
    "basis",
    "gibbs",
    "langevin",
    "posterior-sde",
    "posterior-ode",
    "dirac",
    "noise-conditioned",
    "greedy",
)
_CHOICES = ("first", "energy", "likelihood", "both")  # as in `basis.separation._ranking`
_SHORTCUTS = ("levels", "steps", "delta", "weight", "sigma_max", "sigma_min", "temperature")


def number(text: str) -> float:
    """A finite number, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a finite number, not {text!r}")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def seed_number(text: str) -> int:
    """A seed that a random generator takes, for argparse."""
    value = _whole(text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"must be from 0 to 2^63 - 1, not {text}")
    return value


def out_folder(text: str) -> Path:
    """Where results go; refused before any work is done where no folder can be, or nothing can be written."""
    path = Path(text)
    for place in (path, *path.parents):
        if place.exists():
            if not place.is_dir():
                raise BasisError(f"{place} is a file; --out takes a folder")
            try:
                tempfile.TemporaryFile(dir=place).close()
            except OSError as error:
                raise BasisError(
                    f"nothing can be written to {place} ({error.strerror}); --out takes a folder"
                ) from error
            break
    return path


def _json_file(text: str) -> str:
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; give a file")
    return text


def natural(text: str) -> int:
    """An integer of at least one, for argparse."""
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def add_seed_and_device(parser: argparse.ArgumentParser) -> None:
    """What everything is drawn from, and where it is computed."""
    parser.add_argument("--seed", type=seed_number, default=0, help="default 0")
    parser.add_argument("--device", default="cpu", help="torch device (default: cpu)")


def add_root(parser: argparse.ArgumentParser) -> None:
    """`--data-root`."""
    parser.add_argument(
        "--data-root",
        metavar="DIR",
        help="where data sets and priors lie (default: $BASIS_DATA, else ~/.cache/basis)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument(
        "--json", metavar="PATH", type=_json_file, help="also write what is told as JSON"
    )


def add_pairs(parser: argparse.ArgumentParser, count: int) -> None:
    """Which test mixtures are measured on, `count` of them by default."""
    parser.add_argument("--data", default="mnist", help="test set to mix from (default: mnist)")
    parser.add_argument("--pairs", type=natural, default=count, help=f"mixtures (default {count})")
    parser.add_argument("--k", type=natural, default=2, help="sources per mixture (default 2)")
    parser.add_argument(
        "--protocol",
        choices=("agnostic", "split"),
        default="agnostic",
        help="any images (default), or one of each group of classes",
    )


def add_training_set(parser: argparse.ArgumentParser) -> None:
    """What a prior is trained on, and where it goes."""
    parser.add_argument("--data", default="mnist", help="mnist, cifar10, sample, a folder or .npy")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the run")
    parser.add_argument("--name", help="what the prior is called (default: the folder's name)")
    parser.add_argument("--size", type=natural, help="side to which photos are cut and scaled")
    parser.add_argument(
        "--classes", type=int, nargs="+", metavar="LABEL", help="only images with these labels"
    )
    parser.add_argument(
        "--held-out", type=natural, default=512, help="images kept for validation (512)"
    )


def training_set(args: argparse.Namespace) -> ImageSet:
    """The images that `add_training_set`'s arguments name; more than are held out."""
    from basis.data import load_images

    images = load_images(args.data, "train", root=args.data_root, size=args.size)
    if args.classes:
        images = images.only(args.classes)
    if len(images) <= args.held_out:
        raise BasisError(
            f"{args.data} has {len(images)} images; training needs more than the {args.held_out} "
            "kept for validation (--held-out)"
        )
    return images


def data_record(args: argparse.Namespace, images: ImageSet) -> dict[str, Any]:
    """What a card says of the images that a prior was trained on."""
    record = {"name": images.name, "images": len(images) - args.held_out}
    return record | ({"classes": sorted(set(args.classes))} if args.classes else {})


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Everything that says which sampler runs and how."""
    group = parser.add_argument_group("sampler")
    group.add_argument(
        "--prior",
        action="append",
        metavar="NAME|DIR",
        help="default: mnist; given once for all sources, or once for each",
    )
    group.add_argument(
        "--effort",
        type=_effort,
        metavar="fast|balanced|best|N",
        help="how much to spend on a mixture: the search measured to be best for it, or for N network "
        "evaluations (default: balanced, unless a sampler is given)",
    )
    group.add_argument(
        "--sampler", choices=_SAMPLERS, help="draw with this one instead of searching"
    )
    group.add_argument(
        "--samples",
        type=natural,
        help="chains per mixture (default: 1, or the effort's own number)",
    )
    group.add_argument(
        "--choose",
        choices=_CHOICES,
        help="which of the samples to show (default: first; the best by energy with an effort)",
    )
    group.add_argument("--seed", type=seed_number, default=0, help="default 0")
    group.add_argument("--levels", type=natural, help="noise levels (paper: 10)")
    group.add_argument("--steps", type=natural, help="steps per level (paper: 100)")
    group.add_argument("--delta", type=number, help="step size at the last level (paper: 2e-5)")
    group.add_argument("--weight", type=number, help="likelihood weight (paper: 1)")
    group.add_argument("--sigma-max", type=number, help="first noise level (paper: 1.0)")
    group.add_argument("--sigma-min", type=number, help="last noise level (paper: 0.01)")
    group.add_argument("--temperature", type=number, help="scale of the injected noise (paper: 1)")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any setting of the sampler, for example --set start=normal",
    )
    group.add_argument(
        "--no-finish",
        action="store_true",
        help="leave out the last denoising and projection onto the mixture",
    )
    group.add_argument("--chunk", type=natural, default=128, help="chains at once (default 128)")
    group.add_argument("--device", default="cpu", help="torch device (default: cpu)")


def _effort(text: str) -> str | int:
    """An effort's name or a number of evaluations, for argparse; `separate` checks it."""
    try:
        return int(text)
    except ValueError:
        return text


def priors_from(args: argparse.Namespace) -> list[Prior]:
    """The priors that `--prior` names: one for all sources, or one for each."""
    from basis import load_prior

    device = device_from(args.device)
    return [
        load_prior(name, root=args.data_root, device=device) for name in args.prior or ["mnist"]
    ]


def sampler_from(args: argparse.Namespace) -> Sampler | None:
    """The sampler that `add_sampling`'s arguments describe; None where an effort is to decide."""
    from basis.separation import make_sampler, plan_for

    given = {name: getattr(args, name) for name in _SHORTCUTS if getattr(args, name) is not None}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise BasisError(f"--set takes NAME=VALUE, not {text!r}")
        given[name.strip().replace("-", "_")] = _literal(value.strip())
    if args.sampler is None:
        loose = [f"--{name.replace('_', '-')}" for name in given]
        loose += ["--no-finish"] if args.no_finish else []
        loose += ["--keep"] if getattr(args, "keep", None) else []
        if loose:
            raise BasisError(
                f"{', '.join(loose)} goes with a sampler: add --sampler basis (or another one)"
            )
        plan_for(args.effort, 2)  # a wrong effort is told before anything is loaded
        return None
    if args.effort is not None:
        raise BasisError("give --effort or --sampler, not both")
    return make_sampler(args.sampler, **given)


def way(args: argparse.Namespace) -> str:
    """What a table calls the way of separating that `add_sampling`'s arguments describe."""
    return args.sampler or f"effort {'balanced' if args.effort is None else args.effort}"


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


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
    from basis import separate

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


def add_noise(mixture: Tensor, noise: float, seed: int) -> Tensor:
    """The mixture with Gaussian noise of this standard deviation."""
    import torch

    if noise < 0:
        raise BasisError(f"--noise must be at least 0, not {noise:g}")
    generator = torch.Generator().manual_seed(seed)
    return mixture + noise * torch.randn(mixture.shape, generator=generator) if noise else mixture


def device_from(name: str) -> str:
    """A torch device that exists here."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        line = str(error).splitlines()[0]
        raise BasisError(f"device {name!r} cannot be used: {line}") from error
    return name


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """A bar with time left, fed by `separate`'s progress; only where somebody watches."""
    from tqdm import tqdm

    with tqdm(desc=label, unit="step", leave=False, dynamic_ncols=True, disable=None) as bar:

        def update(progress: Progress) -> None:
            bar.total = progress.total
            bar.set_postfix(sigma=f"{progress.sigma:.3g}", refresh=False)
            bar.update(progress.done - bar.n)

        yield update


def write_json(path: str | Path, record: dict[str, Any]) -> None:
    """Writes a record for scripts to read."""
    write_text(path, json.dumps(_strict(record), indent=2) + "\n")


def _strict(value: Any) -> Any:
    """The same with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
