"""The files of a run that visitors take home."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import torch

from basis import metrics
from basis.files import whole_file, write_text
from basis.mixings.matrix import mixture
from basis.page.answer import truth_order
from basis.page.recipes import command_lines, python_lines
from basis.page.run import Run
from basis.plots.drawing import to_picture, write_picture
from basis.plots.panels import pictures_panel, separation_panel
from basis.signals.old_observation import MixtureFile, write_mixture


def write_files(run: Run, folder: str | Path | None = None) -> list[str]:
    """Sources as pictures and numbers, the panel, the record and what was observed: their paths."""
    assert run.outcome is not None and run.outcome.result is not None
    assert run.outcome.answer is not None
    out = Path(folder or tempfile.mkdtemp(prefix="basis-"))
    task, result, answer = run.task, run.outcome.result, run.outcome.answer
    energies = run.outcome.energies
    names: list[str] = []

    def add(name: str) -> Path:
        names.append(name)
        return out / name

    truth = task.truth if task.kind == "separate" else None
    if task.kind == "separate":
        places = truth_order(run, result)
        sources = answer[:, 0, places]
        for i, image in enumerate(sources[0], start=1):
            write_picture(add(f"source{i}.png"), to_picture(image))
        known = task.weights(result)
        mixing = mixture([known[i] for i in places])
        panel = separation_panel(task.observed, sources, mixing, truth=truth, title=str(task))
        weights = torch.tensor(task.alphas)
        write_mixture(add("mixture.npz"), MixtureFile(task.observed, truth, weights))
    else:
        drawn = answer[0, :, 0] if task.kind == "colorize" else result.samples[0, :, 0]
        order = run.outcome.order
        sources = drawn[order]
        kind = "colours" if task.kind == "colorize" else "filled"
        for i, image in enumerate(sources, start=1):
            write_picture(add(f"{kind}{i}.png"), to_picture(image))
        seen = task.observed[0] if task.mask is None else task.observed[0] * task.mask
        shown = torch.stack([seen.expand(3, -1, -1), *sources])[None]
        titles = ["observed", *(f"{kind} {i + 1}" for i in range(len(sources)))]
        panel = pictures_panel(shown, titles, title=str(task))
        write_picture(add("observed.png"), to_picture(task.observed[0]))
        if task.mask is not None:
            write_picture(add("mask.png"), to_picture(task.mask))
    write_picture(add("panel.png"), panel)
    with whole_file(add("sources.npz")) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(
            file,
            mixture=task.observed.numpy(),
            sources=sources.numpy(),
            samples=result.samples.numpy(),
        )
    record = {
        "python": python_lines(task).splitlines(),
        "command": command_lines(task).splitlines(),
        "kind": task.kind,
        "alphas": list(task.weights(result)),
        "alphas_told": task.told,
        "seed": result.seed,
        "evaluations_per_mixture": result.evaluations,
        "seconds": round(result.seconds, 3),
        "residual_rms": result.residual.tolist(),
        "plausibility": None if result.plausibility is None else result.plausibility.tolist(),
        "remarks": list(result.remarks),
        "energies_of_draws": [] if energies is None else energies.tolist(),
        "modes": [
            {"weight": mode.weight, "members": list(mode.members)} for mode in result.modes[0]
        ],
        "settings": result.settings,
        "curves": [
            {"step": f.step, "sigma": f.sigma, "energy": f.energy, "residual": f.residual}
            for f in run.frames
        ],
    }
    if truth is not None:
        record["psnr"] = metrics.psnr(sources, truth, permute=True).tolist()
    write_text(add("run.json"), json.dumps(record, indent=2) + "\n")
    return [str(out / name) for name in names]
