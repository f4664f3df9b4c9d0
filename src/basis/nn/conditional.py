"""A denoiser that is told which classes its signals may be of."""

from __future__ import annotations

from torch import Tensor, nn

from basis.nn.unet import Denoiser, VarianceHead


class Told(nn.Module):
    """A denoiser that is told which classes its signals may be of.

    Args:
        denoiser: One whose network has classes.
        weights: `class_weights` of the classes, (classes,) for all signals or (batch, classes).
    """

    def __init__(self, denoiser: Denoiser, weights: Tensor) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.weights: Tensor
        self.register_buffer("weights", weights, persistent=False)

    @property
    def head(self) -> VarianceHead | None:
        """Says how sure the network is of each value."""
        return self.denoiser.head

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        """x: (batch, channels, *size); sigma: (batch,). Returns the denoised signal."""
        return self.denoiser(x, sigma, self._rows(x))

    def moments(self, x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; needs a head."""
        return self.denoiser.moments(x, sigma, self._rows(x))

    def output_scale(self, sigma: Tensor) -> Tensor:
        """How strongly the network's output counts at sigma."""
        return self.denoiser.output_scale(sigma)

    def _rows(self, x: Tensor) -> Tensor:
        return self.weights.to(x.dtype).expand(len(x), -1)


def class_weights(member: Tensor) -> Tensor:
    """What a network is told where a signal may be of some classes, each as likely as the others.

    A set of all classes tells nothing and is zero.

    Shapes:
        member: (batch, classes) or (classes,), bool: whether each class is one of them, and at
            least one of a row is. The answer has the same shape.
    """
    return member / member.sum(dim=-1, keepdim=True) - 1 / member.shape[-1]
