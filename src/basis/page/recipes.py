"""The lines of Python, and the command, that do what the page did."""

from __future__ import annotations

import shlex
from typing import Any

from basis.page.task import COLOUR_SIDE, Task, inpaint_settings


def python_lines(task: Task) -> str:
    """Python that draws the same answer; files are those that the page offers to download."""
    prior = f'basis.load_prior("{task.way.prior}")'
    lines = ["import basis"]
    if task.kind == "colorize":
        settings = "" if task.way.is_effort else f', sampler="{task.way.method}"'
        lines += [
            "from basis.signals import read_image",
            "",
            'grey = read_image("observed.png", channels=1)[None]',
            f"prior = {prior}",
            "colours, result = basis.colorize(",
            f"    grey, prior, side={COLOUR_SIDE}, samples={task.way.draws},",
            f'    choose="energy", seed={task.seed}{settings},',
            ")",
        ]
        return "\n".join(lines)
    if task.kind == "inpaint":
        settings = _keywords(_settings(task))
        lines += [
            "from basis.signals import read_image",
            "",
            'photo = read_image("observed.png")[None]',
            'mixing = basis.mixture((1.0,)).replace(mask=read_image("mask.png", channels=1) > 0.5)',
            f"prior = {_tiled(task, prior)}",
            "result = basis.separate(",
            "    photo, prior, mixing=mixing,",
            f"    {settings},",
            f"    seed={task.seed},",
            ")",
        ]
        return "\n".join(lines)
    told = (
        f"alphas={_tuple(task.alphas)}"
        if task.told
        else f'alphas="unknown", sources={task.sources}'
    )
    settings = _keywords(_settings(task))
    if indices := _indices(task):
        name, numbers = indices
        lines += [
            "from basis.signals import load_images",
            "",
            f'sources = load_images("{name}").floats({numbers})[None]',
            f"mixture = basis.mixture({_tuple(task.alphas)})(sources)",
        ]
    else:
        lines += [
            "from basis.signals import read_mixture",
            "",
            'mixture = read_mixture("mixture.npz").mixture',
        ]
    lines += [
        f"prior = {_tiled(task, prior)}",
        "result = basis.separate(",
        f"    mixture, prior, {told},",
        f"    {settings}, seed={task.seed},",
        ")",
    ]
    return "\n".join(lines)


def command_lines(task: Task) -> str:
    """Commands that write the same answer to a folder."""
    seed = ["--seed", str(task.seed)]
    if task.kind == "colorize":
        words = ["basis", "colorize", "observed.png", "--prior", task.way.prior]
        return shlex.join([*words, "--samples", str(task.way.draws), *seed])
    lines = []
    weights = ["--alphas", *(f"{a:g}" for a in task.alphas)]
    if task.kind == "inpaint":
        words = ["basis", "separate", "observed.png", *weights, "--mask", "mask.png"]
    else:
        if indices := _indices(task):
            named = [f"{indices[0]}:{i}" for i in indices[1]]
            lines.append(shlex.join(["basis", "mix", *named, *weights, "--out", "mixture.npz"]))
        told = weights if task.told else ["--alphas", *["unknown"] * task.sources]
        words = ["basis", "separate", "mixture.npz", *told]
    words += ["--prior", task.way.prior]
    for name, value in _settings(task).items():
        words += ["--" + name.replace("_", "-"), f"{value:g}" if _number(value) else str(value)]
    lines.append(shlex.join([*words, *seed]))
    return "\n".join(lines)


def _settings(task: Task) -> dict[str, Any]:
    if task.kind == "inpaint" and task.way.is_effort:
        return inpaint_settings(task)
    return task.way.settings()


def _indices(task: Task) -> tuple[str, list[int]] | None:
    """The data set and numbers of the sources, where all are the package's own of one set."""
    found = [r.split(":") for r in task.references if r is not None]
    if not found or len(found) < len(task.alphas) or len({name for name, _ in found}) > 1:
        return None
    return found[0][0], [int(index) for _, index in found]


def _tiled(task: Task, prior: str) -> str:
    sides = task.observed.shape[2:]
    if tuple(sides) == task.prior().shape[1:] and not hasattr(task.prior(), "corners"):
        return prior
    return f"basis.priors.Tiled({prior}, {sides[0]}, {sides[1]})"


def _keywords(settings: dict[str, Any]) -> str:
    return ", ".join(
        f'{k}="{v}"' if isinstance(v, str) else f"{k}={v!r}" for k, v in settings.items()
    )


def _tuple(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{v:g}" for v in values) + ("," * (len(values) == 1)) + ")"


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
