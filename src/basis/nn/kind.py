"""What a kind of network is, and how cards describe networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Literal

from torch import nn

from basis.errors import BasisError
from basis.settings import setting, settings_from

size_setting = partial(setting, at_least=1, at_most=65_536)
"""A setting that is a size of a network."""

Architecture = Mapping[str, Any]
"""The `architecture` entry of a card."""


@dataclass(frozen=True)
class NetworkKind:
    """A kind of network: its configuration, how it is built from a card, and how it is trained.

    Attributes:
        name: Its name on cards and on the command line.
        title: What a prior of this kind is called: "score", "flow".
        module: The class of the module that a prior holds.
        config: The dataclass of its configuration; None if another library has it. Fields of these
            names are filled in from the data: shape (of one signal), channels, size (the side of
            square images), dims (number of axes after the channels), mean and std (of the values),
            conditioned (one model for all noise levels).
        trainable: Whether `basis.train` trains it.
        objective: What training minimizes: a denoiser's error, the code length together with the
            error of the gradient, or ("energy") the errors of a density's slopes in x and in the
            noise level.
        noise: How training draws noise levels: "focused" around one level, "continuous"
            log-uniformly and sometimes none, or "discrete" from the module's own `levels`.
        unit_range: Whether its values must be in [0, 1].
        build: Makes the untrained module of an architecture; module(config(**network)) by default.
        describe: The architecture of a module without its kind; {"network": asdict(module.config)}
            by default.
    """

    name: str
    title: str
    module: type[nn.Module]
    config: type[Any] | None = None
    trainable: bool = True
    objective: Literal["denoising", "likelihood", "energy"] = "denoising"
    noise: Literal["focused", "continuous", "discrete"] = "focused"
    unit_range: bool = False
    build: Callable[[Architecture], nn.Module] | None = None
    describe: Callable[[Any], dict[str, Any]] | None = None

    def build_module(self, architecture: Architecture) -> nn.Module:
        """The untrained module that a card's architecture describes."""
        if self.build is not None:
            return self.build(architecture)
        return self.module(read_config(self.config, architecture))

    def describe_module(self, module: Any) -> dict[str, Any]:
        """The architecture from which `build_module` makes such a module."""
        found = self.describe(module) if self.describe else {"network": asdict(module.config)}
        return {"kind": self.name, **found}

    def new_module(
        self,
        shape: tuple[int, ...],
        mean: float,
        std: float,
        config: Mapping[str, Any],
        *,
        conditioned: bool = True,
    ) -> nn.Module:
        """An untrained module for signals of a shape, its weights from torch's global generator.

        Args:
            shape: (channels, *size) of one signal.
            mean, std: Mean and standard deviation of the data's values.
            config: Fields of the configuration; those that the data decides are filled in.
            conditioned: Whether one model serves all noise levels.
        """
        if self.config is None:
            raise BasisError(f"{self.name} networks cannot be made here")
        settings_from(self.config, config, self.name)  # before anything is filled in
        names = {f.name for f in fields(self.config)}
        facts = {"shape": shape, "channels": shape[0], "dims": len(shape) - 1}
        facts |= {"mean": mean, "std": std, "conditioned": conditioned}
        if "size" in names:
            if len(shape) != 3 or shape[1] != shape[2]:
                sides = "x".join(map(str, shape[1:]))
                raise BasisError(f"{self.name} needs square images, not {sides}")
            facts["size"] = shape[1]
        network = dict(config) | {name: fact for name, fact in facts.items() if name in names}
        architecture = {"kind": self.name, "network": network, "mean": mean, "std": std}
        try:
            module: Any = self.build_module(architecture)
            if hasattr(module, "check_shape"):
                module.check_shape(shape)
        except BasisError:
            raise
        except (TypeError, ValueError) as error:
            raise BasisError(f"{self.name}: {error}") from error
        return module  # type: ignore[no-any-return]


def read_config(config: type[Any] | None, architecture: Architecture) -> Any:
    """The configuration that an architecture holds under "network"."""
    assert config is not None
    return settings_from(config, entry(architecture, "network"), "a card's network")


def entry(architecture: Architecture, name: str) -> Mapping[str, Any]:
    """An object that an architecture must hold under a name."""
    found = architecture.get(name)
    if not isinstance(found, Mapping):
        raise BasisError(f"a card's architecture must hold {name} as an object, not {found!r:.60}")
    return found


def number(architecture: Architecture, name: str, *, positive: bool = False) -> float:
    """A number that an architecture must hold under a name."""
    found = architecture.get(name)
    if (
        isinstance(found, bool)
        or not isinstance(found, int | float)
        or not -1e30 < found < 1e30  # NaN is refused too
        or (positive and found <= 0)
    ):
        kind = "a positive number" if positive else "a number"
        raise BasisError(f"a card's architecture must hold {name} as {kind}, not {found!r:.60}")
    return float(found)
