"""What the neural baselines share: a network from a mixture to sources, and its training loop."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from basis.baselines._baseline import OnProgress, step_factor
from basis.nn import UNet, UNetConfig
from basis.training import Muon


class Separator(nn.Module):
    """A U-Net that reads a mixture and answers with masks: each source's share of every pixel.

    Args:
        channels: Of an image.
        k: Sources.
    """

    def __init__(self, channels: int, k: int) -> None:
        super().__init__()
        self.channels, self.k = channels, k
        self.network = UNet(UNetConfig(channels=channels * k, widths=(32, 64), blocks=(1, 2)))
        # Equal answers for all sources would stay equal under a loss that ignores their order.
        nn.init.normal_(self.network.leave.weight, std=0.02)

    def forward(self, mixture: Tensor) -> Tensor:
        """Sources that add up to the mixture.

        Shapes:
            mixture: (batch, channels, height, width).
            returns: (batch, k, channels, height, width).
        """
        x = (mixture / self.k - 0.5).repeat(1, self.k, 1, 1)
        logits = self.network(x, torch.zeros(len(x), device=x.device))
        shares = logits.unflatten(1, (self.k, self.channels)).softmax(dim=1)
        return shares * mixture[:, None]


def train(
    module: nn.Module,
    loss: Callable[[], Tensor],
    steps: int,
    on_progress: OnProgress,
    lr: float = 0.03,
) -> None:
    """Minimises a loss that draws its own batches."""
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(module.parameters())
    optimizer = Muon(parameters, lr=lr, adam_lr=lr / 10)
    module.train()
    for step in range(steps):
        value = loss()
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.set_factor(step_factor(step, steps))
        optimizer.step()
        on_progress((step + 1) / steps)
    module.eval().requires_grad_(False)
