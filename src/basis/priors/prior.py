"""The interface of priors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from basis.errors import BasisError
from basis.priors.card import Card, Energies, ValueRange, check_value_range
from basis.priors.spectrum import Spectrum
from basis.tensors import as_sigmas, per_item

if TYPE_CHECKING:
    from basis.priors.denoiser import DenoiserPrior
    from basis.priors.functions import FunctionPrior
    from basis.priors.guidance import Autoguided
    from basis.priors.likelihood import LikelihoodPrior

Function = Callable[[Tensor, Tensor], Tensor]
Shape = tuple[int, ...]
Range = tuple[float | None, float | None]
_FOCUS, _WIDTH = -0.5, 1.2  # mean and deviation of log(sigma / std) in the training loss


class Prior(nn.Module, ABC):
    """A distribution of signals with a score at every noise level sigma.

    p_sigma is the distribution of x + sigma n, with x from the prior and n standard normal. A
    subclass implements `denoise`; the score follows by Tweedie's formula,
    denoise(x) = x + sigma^2 score(x). A prior is an `nn.Module`: its networks and tensors move with
    `to`, and `separate` runs it in evaluation mode.

    Args:
        shape: (channels, *size) of one signal, of any rank.
        sigma_min, sigma_max: The range of noise levels at which it can be evaluated.
        name: Its name in records and figures.
        value_range: Smallest and largest value of a signal. None for unbounded signals; one end may
            be infinite.
        center: A typical value; by default the middle of the range, or 0.
        std: About the standard deviation of the values, the unit of noise levels. By default 0.3 of
            the range, or 1 for unbounded signals.
        errors: Held-out squared denoising error / sigma^2 by sigma, if measured: `moments` uses
            it as the variance where the prior has learned none.
        card: What is known about it (data, training, quality, license, typical energies).

    The attribute `energies` is the distribution behind the plausibility of results: that of the
    card, or what `basis priors measure` measured, or None. The attribute `spectrum` describes how
    values are correlated.
    """

    evaluations: int = 1
    """Evaluations that one score counts for; a pass back through a network counts as two more."""

    log_prob_evaluations: int = 1
    """Evaluations that one log p counts for, in a prior that has one."""

    exact_samples: Callable[[int, torch.Generator], Tensor] | None = None
    """Draws exact samples, (count, *shape), if the prior can: called with count and generator."""

    def __init__(
        self,
        shape: tuple[int, ...],
        sigma_min: float,
        sigma_max: float,
        *,
        name: str = "prior",
        value_range: Range | None = None,
        center: float | None = None,
        std: float | None = None,
        errors: Mapping[float, float] | None = None,
        card: Card | None = None,
    ) -> None:
        super().__init__()
        self.shape = _check_shape(shape)
        numbers = isinstance(sigma_min, int | float) and isinstance(sigma_max, int | float)
        if not (numbers and 0 <= sigma_min <= sigma_max):
            raise BasisError(
                f"noise levels must be 0 <= sigma_min <= sigma_max, not {sigma_min}, {sigma_max}"
            )
        self.sigma_min, self.sigma_max = float(sigma_min), float(sigma_max)
        self.name = name
        self.value_range: ValueRange | None = check_value_range(value_range, "value_range")
        low, high = self.low, self.high
        bounded = low is not None and high is not None
        if center is None:
            center = (low + high) / 2 if bounded else low or high or 0.0  # type: ignore[operator]
        if std is None:
            std = 0.3 * (high - low) if bounded else 1.0  # type: ignore[operator]
        if not (math.isfinite(std) and std > 0):
            raise BasisError(f"std must be a positive number, not {std}")
        self.center, self.std = float(center), float(std)
        self.errors = {float(s): float(e) for s, e in (errors or {}).items()}
        self.card = card
        self.energies: Energies | None = None
        self.spectrum: Spectrum | None = None
        if card is not None:
            where = f"the card of {name}"
            if card.energies is not None:
                self.energies = Energies.from_dict(card.energies, where)
            if card.spectrum is not None:
                self.spectrum = Spectrum.from_dict(card.spectrum, where)
                if self.spectrum.channels != self.shape[0]:
                    raise BasisError(
                        f"{where}: its spectrum has {self.spectrum.channels} channels, its signals "
                        f"have {self.shape[0]}"
                    )

    def __repr__(self) -> str:
        low = "-inf" if self.low is None else f"{self.low:g}"
        high = "inf" if self.high is None else f"{self.high:g}"
        return (
            f"{type(self).__name__}({self.name!r}, {'x'.join(map(str, self.shape))}, values {low} "
            f"to {high}, sigma {self.sigma_min:g} to {self.sigma_max:g})"
        )

    @staticmethod
    def from_pretrained(source: str | Path, revision: str | None = None, **settings: Any) -> Prior:
        """Loads a prior by name, from a folder, or from the model hub.

        Args:
            source: A name from `basis.list_priors()`; a folder with a card and weights, or with a
                diffusers pipeline; or owner/name on the model hub (needs huggingface_hub). Classes
                may follow a colon, "cifar10:cat,dog", as for `condition`.
            revision: The commit, tag or branch of a model on the hub.
            settings: `root`, the data folder whose `priors` folder is searched after the shipped
                priors; `device`, "cpu", "cuda" or "auto"; `dtype`.
        """
        from basis.store.loading import load_prior

        wanted = source if revision is None else f"hf:{source}@{revision}"
        return load_prior(wanted, **settings)

    @staticmethod
    def from_denoiser(
        function: Function, shape: Shape, sigma_min: float, sigma_max: float, **settings: Any
    ) -> FunctionPrior:
        """A prior from a function E[clean | noisy] of (x, sigma): any callable, also a network.

        `basis.priors.DenoiserPrior` is for networks in the prior's own units. It calls them in
        chunks and uses their variances. `from_diffusers` reads everything from the pipeline.

        Args:
            function: Takes x, (batch, channels, *size), and sigma, (batch,), and returns a tensor
                of the shape of x: the clean signal, not the noise. Of a function that predicts the
                noise in units of sigma, x - sigma * noise is the clean signal.
            shape: (channels, *size).
            sigma_min, sigma_max: The noise levels it was made for, in the model's units.
            settings: `model_range`, the model's values for the two ends of `value_range`, such as
                (-1, 1); by default the model has the prior's values. `value_range`, (0, 1) by
                default and None for unbounded signals. `name`, `center`, `std` and `errors` as for
                `Prior`, in the prior's units.
        """
        from basis.priors.functions import FunctionPrior

        return FunctionPrior(function, "denoiser", shape, sigma_min, sigma_max, **settings)

    @staticmethod
    def from_score(
        function: Function, shape: Shape, sigma_min: float, sigma_max: float, **settings: Any
    ) -> FunctionPrior:
        """A prior from a function grad log p_sigma of (x, sigma), as for `from_denoiser`."""
        from basis.priors.functions import FunctionPrior

        return FunctionPrior(function, "score", shape, sigma_min, sigma_max, **settings)

    @staticmethod
    def from_log_prob(
        function: Function, shape: Shape, sigma_min: float, sigma_max: float, **settings: Any
    ) -> LikelihoodPrior:
        """A prior from a differentiable function log p_sigma(x) of (x, sigma), (batch,), in nats.

        The other arguments are those of `from_denoiser`.
        """
        from basis.priors.functions import prior_from_log_prob

        return prior_from_log_prob(function, shape, sigma_min, sigma_max, **settings)

    @staticmethod
    def from_diffusers(
        source: Any, scheduler: Any = None, *, revision: str | None = None, **settings: Any
    ) -> DenoiserPrior:
        """A prior from a diffusers pipeline, its folder, or a model and its scheduler.

        With a `revision`, `source` is a name on the model hub. Settings as for
        `basis.adapters.from_diffusers`.
        """
        from basis.adapters.diffusers import from_diffusers

        if revision is not None:
            from basis.store.loading import fetch

            settings = {"name": str(source).rsplit("/", 1)[-1], **settings}
            source = fetch(str(source), revision)
        return from_diffusers(source, scheduler, **settings)

    @staticmethod
    def from_azula(denoiser: Any, shape: Shape, **settings: Any) -> DenoiserPrior:
        """A prior from an azula denoiser; settings as for `basis.adapters.from_azula`."""
        from basis.adapters.azula import from_azula

        return from_azula(denoiser, shape, **settings)

    @staticmethod
    def from_ncsn(checkpoint: str | Path, **settings: Any) -> DenoiserPrior:
        """A prior from a published checkpoint; settings as for `basis.adapters.from_ncsn`."""
        from basis.adapters.ncsn import from_ncsn

        return from_ncsn(checkpoint, **settings)

    @staticmethod
    def from_glow(checkpoints: Any, **settings: Any) -> LikelihoodPrior:
        """A prior from published checkpoints; settings as for `basis.adapters.from_glow`."""
        from basis.adapters.glow import from_glow

        return from_glow(checkpoints, **settings)

    @staticmethod
    def new(
        kind: str,
        shape: Shape,
        value_range: Range | None = (0.0, 1.0),
        *,
        std: float | None = None,
        sigma_min: float | None = None,
        sigma_max: float | None = None,
        **config: Any,
    ) -> DenoiserPrior | LikelihoodPrior:
        """An untrained prior, for a training loop of one's own with `loss`.

        Args:
            kind: A kind of network, such as "unet", "energy" or "glow".
            shape: (channels, *size) of one signal.
            value_range, std: As for `Prior`.
            sigma_min, sigma_max: The noise levels to train on; by default 1/60 and 33 times std.
            config: Fields of the network's configuration, such as `widths=(32, 64)`.
        """
        from basis.priors.denoiser import new_prior

        return new_prior(kind, shape, value_range, std, sigma_min, sigma_max, config)

    @property
    def low(self) -> float | None:
        """The smallest value, or None."""
        return _finite(self.value_range, 0)

    @property
    def high(self) -> float | None:
        """The largest value, or None."""
        return _finite(self.value_range, 1)

    @property
    def _traits(self) -> dict[str, Any]:
        """The settings shared with another prior of the same signals."""
        names = ("value_range", "center", "std", "errors", "card")
        return {name: getattr(self, name) for name in names}

    @abstractmethod
    def denoise(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """E[clean | noisy = x].

        Shapes:
            x: (batch, channels, *size), float32 or float64; the answer has its precision.
            sigma: A number, or (batch,).
        """

    def moments(self, x: Tensor, sigma: Tensor | float) -> tuple[Tensor, Tensor]:
        """Mean and variance of each clean value given the noisy signal; shapes as in `denoise`.

        Few-step samplers weigh sources against each other by this variance. By default it is the
        measured `errors`, or that of a Gaussian of variance std^2, equal for all values.
        """
        s = as_sigmas(sigma, x)
        if self.errors:
            level = [interpolate(self.errors, one) * one**2 for one in s.tolist()]
            variance = torch.tensor(level, dtype=x.dtype, device=x.device)
        else:
            variance = s.square() * self.std**2 / (s.square() + self.std**2)
        return self.denoise(x, sigma), per_item(variance, x).expand(x.shape)

    def score(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """grad log p_sigma(x); shapes as in `denoise`."""
        return (self.denoise(x, sigma) - x) / per_item(sigma, x).square()

    def log_prob(self, x: Tensor, sigma: Tensor | float) -> Tensor:
        """log p_sigma(x), (batch,), for priors that have a likelihood."""
        raise BasisError(
            f"prior {self.name!r} has no likelihood: log_prob needs a prior with a density "
            "(basis.priors.FlowLikelihood gives one to a score prior, at many evaluations)"
        )

    def loss(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The denoising loss of clean signals, a differentiable scalar.

        Noise levels are log-normal around 0.6 std, within those of the prior. The squared error is
        weighted so that all levels count about equally (Karras et al. 2022, arXiv:2206.00364).

        Shapes:
            x: (batch, channels, *size), values in the prior's range.
        """
        self.check_signals(x)
        clean, noisy, sigma = self._noisy(x, generator)
        return self._weighted_error(self.denoise(noisy, sigma), clean, sigma)

    def _weighted_error(self, denoised: Tensor, clean: Tensor, sigma: Tensor) -> Tensor:
        weight = (sigma.square() + self.std**2) / (sigma * self.std).square()
        return (per_item(weight, clean) * (denoised - clean).square()).mean()

    def _noisy(self, x: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        """Clean signals, noisy ones and their noise levels, for the loss."""
        x = x.to(self.device or x.device)
        normal = torch.randn(len(x), generator=generator).to(x)
        sigma = self.std * (_FOCUS + _WIDTH * normal).exp()
        sigma = sigma.clamp(max(self.sigma_min, 1e-3 * self.std), self.sigma_max)
        noise = torch.randn(x.shape, generator=generator).to(x)
        return x, x + per_item(sigma, x) * noise, sigma

    def sample(self, count: int = 16, seed: int = 0, **settings: Any) -> Tensor:
        """Samples of the prior, (count, *shape); settings as for `basis.sample`."""
        from basis._sample import sample

        return sample(self, count, seed=seed, **settings)

    def save(self, folder: str | Path, **about: Any) -> Path:
        """Writes the weights and their card; `Prior.from_pretrained(folder)` loads them.

        Args:
            folder: Created if missing.
            about: Further entries of the card: title, license, data, training, quality.
        """
        from basis.store.folder import write_prior

        return write_prior(self, folder, **about)

    def _check_batch(self, x: Tensor) -> None:
        """Refuses anything but a tensor with the axes (batch, channels, *size)."""
        if not isinstance(x, Tensor) or x.ndim != len(self.shape) + 1:
            found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            shape = ", ".join(map(str, self.shape))
            raise BasisError(
                f"prior {self.name!r} is evaluated on tensors (batch, {shape}), not on {found}"
            )

    def check_signals(self, signals: Tensor) -> None:
        """Refuses anything but floats, (n, *shape), of the prior's shape."""
        if not isinstance(signals, Tensor) or not signals.is_floating_point():
            kind = signals.dtype if isinstance(signals, Tensor) else type(signals).__name__
            raise BasisError(
                f"signals of prior {self.name!r} must be a tensor of floats, not {kind}; "
                "basis.read makes floats of pictures and arrays"
            )
        if tuple(signals.shape[1:]) != self.shape:
            raise BasisError(
                f"prior {self.name!r} has signals of shape {self.shape}, not "
                f"{tuple(signals.shape[1:])}"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that `condition` takes; empty for an unconditional prior."""
        return ()

    def condition(self, *classes: str | int) -> Prior:
        """The prior of signals of one of these classes, all equally likely.

        Args:
            classes: Names from `classes`, or their numbers.
        """
        raise BasisError(
            f"prior {self.name!r} is not class-conditional; mnist-classes and cifar10 are, and "
            "basis train --conditional trains one"
        )

    def autoguide(
        self, weaker: Prior, strength: float = 0.3, *, finer: float | None = 0.5
    ) -> Autoguided:
        """This prior guided by a weaker one of the same signals (Karras et al., arXiv:2406.02507).

        Noise levels of 0.4 to 6 std are guided: less noise is texture, and guidance in more noise
        exaggerates colors.

        Args:
            weaker: A smaller or less trained prior.
            strength: How far to move away from the weaker prior.
            finer: The longest waves that are guided, as a fraction of the longest side; None for
                all of them. Guiding coarse structure drives two sources of a mixture apart in
                brightness and hue.
        """
        from basis.priors.guidance import Autoguided

        return Autoguided(self, weaker, strength, above=0.4, below=6.0, finer=finer)

    @property
    def has_likelihood(self) -> bool:
        """Whether `log_prob` is available."""
        return type(self).log_prob is not Prior.log_prob

    @property
    def likelihood_sigma(self) -> float:
        """The noise level at which log p compares clean signals best: by default the smallest."""
        return self.sigma_min

    @property
    def base_prior(self) -> Prior:
        """The prior without guidance; typical energies refer to it."""
        return self

    @property
    def _tile_evaluations(self) -> int:
        """Evaluations of one score when a search is planned: for tiles, those of one tile."""
        return self.evaluations

    @property
    def _switch_level(self) -> float:
        """The noise level, in units of std, below which `gibbs` follows the score alone."""
        return 7 / 6

    @property
    def device(self) -> torch.device | None:
        """The device of its tensors, or None if it has none and follows its input."""
        tensor = next(self.parameters(), next(self.buffers(), None))
        return None if tensor is None else tensor.device

    def describe(self) -> dict[str, Any]:
        """The entries of a run's record about this prior."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "sigma_min": self.sigma_min,
            "sigma_max": self.sigma_max,
            "value_range": self.value_range and [self.low, self.high],
            "std": self.std,
        }


class Derived(Prior):
    """A prior made from another one, whose range, std, card and energies it keeps.

    Args:
        prior: The other prior.
        shape: (channels, *size) of one signal; the other's by default.
    """

    def __init__(self, prior: Prior, shape: tuple[int, ...] | None = None) -> None:
        super().__init__(
            prior.shape if shape is None else shape,
            prior.sigma_min,
            prior.sigma_max,
            name=prior.name,
            **prior._traits,
        )
        self.prior, self.evaluations = prior, prior.evaluations
        self.energies, self.spectrum = prior.energies, prior.spectrum

    @property
    def _tile_evaluations(self) -> int:
        return self.prior._tile_evaluations

    @property
    def _switch_level(self) -> float:
        return self.prior._switch_level


def in_chunks(
    call: Callable[[Tensor, Tensor], Sequence[Tensor]],
    model: nn.Module,
    x: Tensor,
    sigma: Tensor | float,
    size: int,
) -> list[Tensor]:
    """The answers of a model of (x, sigma), called with `size` items at most.

    It is called in the precision of its first parameter; the answers have that of x.
    """
    own = x.to(next(model.parameters(), x).dtype)
    pieces = zip(own.split(size), as_sigmas(sigma, own).split(size), strict=True)
    answers = zip(*(call(*piece) for piece in pieces), strict=True)
    return [(part[0] if len(part) == 1 else torch.cat(part)).to(x.dtype) for part in answers]


def interpolate(curve: Mapping[float, float], sigma: float) -> float:
    """A positive curve over sigma, linear between its points on logarithmic axes.

    Beyond its ends it is constant.
    """
    known = sorted(curve)
    if not known[0] < sigma < known[-1]:
        return curve[min(known, key=lambda s: abs(math.log(s / sigma)))]
    above = next(i for i, s in enumerate(known) if s >= sigma)
    low, high = known[above - 1], known[above]
    share = math.log(sigma / low) / math.log(high / low)
    return curve[low] ** (1 - share) * curve[high] ** share


def _check_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    try:
        sides = tuple(int(side) for side in shape)
    except (TypeError, ValueError) as error:
        raise BasisError(f"shape must be (channels, *size), not {shape!r}") from error
    if len(sides) < 1 or any(side < 1 for side in sides):
        raise BasisError(f"shape must be (channels, *size) with sides of 1 or more, not {sides}")
    return sides


def _finite(value_range: ValueRange | None, end: int) -> float | None:
    if value_range is None or math.isinf(value_range[end]):
        return None
    return value_range[end]
