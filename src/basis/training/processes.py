"""Training on several processes, as torchrun starts them.

Every process draws the same images and noise from the same generator and works on its share of the
batch; gradients are averaged by `DistributedDataParallel`, so that all of them take the same step.
The run is that of one process but for rounding and dropout, and its state says nothing of the
number of processes: it may go on with another.
"""

from __future__ import annotations

import datetime
import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from basis.errors import BasisError
from basis.files import folder_lock
from basis.nn.unet import ClassConditional
from basis.training.objectives import Denoising, Objective

_PATIENCE = datetime.timedelta(days=1)
"""How long the others wait while the first one writes or learns the variance."""


class Processes:
    """The processes of a run: those that torchrun started, or this one alone.

    Attributes:
        rank: This one's number.
        count: How many there are.
    """

    def __init__(self) -> None:
        self.rank, self.count = _asked_for()
        if self.count > 1 and not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if dist.is_nccl_available() else "gloo"
            dist.init_process_group(backend, timeout=_PATIENCE)

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """This process's own GPU, where a GPU is asked for and there are several processes."""
        if device.type == "cuda" and device.index is None and self.count > 1:
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", self.rank)))
        return device

    def share(self, batch: int) -> slice:
        """Which items of a batch are this process's."""
        return slice(batch * self.rank // self.count, batch * (self.rank + 1) // self.count)

    def mean(self, value: float) -> float:
        """The mean of a number over all processes."""
        if self.count == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(total)
        return total.item() / self.count

    def any(self, flag: bool) -> bool:
        """Whether any process says so: all end at the same step."""
        return flag if self.count == 1 else self.mean(float(flag)) > 0

    def alone(self, folder: Path) -> AbstractContextManager[None]:
        """Keeps other runs out of a folder; the first process does so for all of this run."""
        return folder_lock(folder) if self.first else nullcontext()

    def wait(self) -> None:
        """Until all processes are here."""
        if self.count > 1:
            dist.barrier()


class ShareLoss(nn.Module):
    """An objective's loss on a share of a batch, weighted so that shares average to the whole.

    Args:
        objective: What is lowered.
        model: What it is lowered of.
    """

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.objective, self.model = objective, model

    def forward(
        self,
        clean: Tensor,
        noisy: Tensor,
        sigma: Tensor,
        weight: float,
        told: Tensor | None = None,
    ) -> Tensor:
        """The loss of (share, channels, *size), times the weight; told is (share, classes)."""
        model: Any = self.model if told is None else ClassConditional(self.model, told)  # type: ignore[arg-type]
        return weight * self.objective.loss(model, clean, noisy, sigma)


def shared_loss(processes: Processes, objective: Objective, model: nn.Module) -> Any:
    """`ShareLoss` whose gradients are averaged over all processes."""
    loss = ShareLoss(objective, model)
    if processes.count == 1:
        return loss
    # Models with a likelihood may have parts that a batch does not touch.
    return DistributedDataParallel(
        loss, find_unused_parameters=not isinstance(objective, Denoising)
    )


def _asked_for() -> tuple[int, int]:
    """Rank and number of processes by torchrun's variables; 0 and 1 without them."""
    try:
        rank, count = (int(os.environ.get(n, d)) for n, d in (("RANK", "0"), ("WORLD_SIZE", "1")))
    except ValueError as error:
        raise BasisError("RANK and WORLD_SIZE must be whole numbers, as torchrun sets") from error
    # Other tools set WORLD_SIZE too; only torchrun's processes have an address to meet at.
    return (rank, count) if "MASTER_ADDR" in os.environ and count > 1 else (0, 1)
