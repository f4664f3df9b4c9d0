"""Kinds of networks and their registry."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from basis.errors import BasisError
from basis.settings import check_fields


def size_field(
    default: Any,
    text: str,
    *,
    flag: bool = True,
    least: int = 1,
    most: int = 65_536,
    **bounds: float,
) -> Any:
    """A field of a sizes dataclass.

    Args:
        default: Its value where none is given.
        text: What it is, in a few words, for help texts.
        flag: Whether it is the user's to choose; False for what the data or the training decide.
        least, most: The smallest and largest whole number that is accepted.
        bounds: Those of a number: `at_least`, `at_most`, or `above`, which it may not meet.
    """
    ranges = {"least": least, "most": most, **bounds}
    return field(default=default, metadata={"help": text, "flag": flag, **ranges})


def refer(reference: str) -> Any:
    """What a reference such as "basis.nn:Glow" stands for; its room is imported now."""
    room, name = reference.split(":")
    return getattr(importlib.import_module(room), name)


@dataclass(frozen=True)
class Family:
    """A kind of network: its sizes, how it is built from a card, and how it is trained.

    Attributes:
        kind: What cards and the command line call it.
        title: What a prior of this family is called: "score", "flow".
        sizes: The dataclass of its sizes, each field made by `size_field`; None where another
            library has it. Fields of these names are filled in by training: shape (of one signal),
            channels, size (the side of square images), dims (number of axes after the channels),
            mean and std (of the data's values), conditioned (one model for all noise levels).
        module: Reference to the class of what a prior holds, for example "basis.nn:Glow".
        trainable: Whether `basis.training.train` takes it.
        objective: What training minimises: a denoiser's error, code length with the error of the
            gradient, or ("energy") the errors of a density's slopes in x and in the noise level.
        noise: How training draws noise levels: "focused" about one level, "continuous"
            log-uniformly and sometimes none, or "discrete" from the module's own `levels`.
        unit_range: Whether its values must be in [0, 1].
        build: Makes the untrained module of a card's `architecture`; by default
            module(sizes(**network)). Where a model with a likelihood has a `variance` on its card,
            a `basis.nn.VarianceNetwork` becomes its `head`.
        describe: The `architecture` of a module without its kind; by default {"network":
            asdict(module.config)}.
        belongs: Whether an instance of the class is of this family; always, by default.
    """

    kind: str
    title: str
    sizes: type[Any] | None
    module: str
    trainable: bool = True
    objective: Literal["denoising", "likelihood", "energy"] = "denoising"
    noise: Literal["focused", "continuous", "discrete"] = "focused"
    unit_range: bool = False
    build: Callable[[Mapping[str, Any]], Any] | None = None
    describe: Callable[[Any], dict[str, Any]] | None = None
    belongs: Callable[[Any], bool] | None = None

    def make_sizes(self, values: Mapping[str, Any]) -> Any:
        """The sizes dataclass with these values; lists, as JSON has them, become tuples."""
        if self.sizes is None:
            raise BasisError(f"{self.kind} has no sizes of its own")
        known = [f.name for f in fields(self.sizes)]
        unknown = [name for name in values if name not in known]
        if unknown:
            raise BasisError(f"{self.kind} has no size {unknown[0]!r}; it has {', '.join(known)}")
        return self.sizes(**check_fields(self.sizes, values, self.kind))

    def build_module(self, architecture: Mapping[str, Any]) -> Any:
        """The untrained module that a card's `architecture` describes."""
        if self.build is not None:
            module = self.build(architecture)
        else:
            module = refer(self.module)(self.make_sizes(entry(architecture, "network")))
        if self.objective == "likelihood" and "variance" in architecture:
            module.head = _variance_network(entry(architecture, "variance"))
        return module

    def new_module(
        self,
        shape: tuple[int, ...],
        mean: float,
        std: float,
        config: Mapping[str, Any],
        *,
        conditioned: bool = True,
    ) -> Any:
        """An untrained module for signals of a shape, with first weights of torch's generator.

        Args:
            shape: (channels, *size) of one signal.
            mean, std: Mean and standard deviation of the data's values.
            config: Fields of the configuration; those that the data decides are filled in.
            conditioned: Whether one model serves all noise levels.
        """
        self.make_sizes(config)  # an unknown field is refused before anything is built
        names = {f.name for f in fields(self.sizes)} if self.sizes else set()
        facts = {"shape": shape, "channels": shape[0], "dims": len(shape) - 1}
        facts |= {"mean": mean, "std": std, "conditioned": conditioned}
        if "size" in names:
            if len(shape) != 3 or shape[1] != shape[2]:
                sides = "x".join(map(str, shape[1:]))
                raise BasisError(f"{self.kind} takes square images; these are {sides}")
            facts["size"] = shape[1]
        network = dict(config) | {name: fact for name, fact in facts.items() if name in names}
        try:
            module = self.build_module(
                {"kind": self.kind, "network": network, "mean": mean, "std": std}
            )
            if hasattr(module, "check_shape"):
                module.check_shape(shape)
        except BasisError:
            raise
        except (TypeError, ValueError) as error:
            raise BasisError(f"{self.kind}: {error}") from error
        return module

    def describe_module(self, module: Any) -> dict[str, Any] | None:
        """The `architecture` that `build_module` takes; None for a module of another family."""
        if not isinstance(module, refer(self.module)):
            return None
        if self.belongs is not None and not self.belongs(module):
            return None
        told = self.describe(module) if self.describe else {"network": asdict(module.config)}
        head = getattr(module, "head", None)
        if self.objective == "likelihood" and head is not None:
            own = head.denoiser
            sizes = {"network": asdict(own.network.config), "mean": own.mean, "std": own.std}
            told = told | {"variance": sizes}
        return {"kind": self.kind, **told}


def entry(architecture: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object of entries that a card's `architecture` must hold under a name."""
    found = architecture.get(name)
    if not isinstance(found, Mapping):
        raise BasisError(f"a card's architecture must hold {name} as an object, not {found!r:.60}")
    return found


def number_entry(architecture: Mapping[str, Any], name: str, *, positive: bool = False) -> float:
    """A number that a card's `architecture` must hold under a name."""
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


def _variance_network(told: Mapping[str, Any]) -> Any:
    """The network that says how sure a model with a likelihood is, from its entry of a card."""
    sizes = find_family("unet").make_sizes(entry(told, "network"))
    mean, std = number_entry(told, "mean"), number_entry(told, "std", positive=True)
    return refer("basis.nn:VarianceNetwork")(sizes, mean, std)


# The files that hold a kind of network. A new kind is one file and one line here.
_MODULES = ("unet", "experts", "energy", "glow", "ncsn", "diffusers_unet")


def all_families() -> dict[str, Family]:
    """Every family by its kind."""
    found = [
        family
        for name in _MODULES
        for family in vars(importlib.import_module(f"basis.nn.{name}")).values()
        if isinstance(family, Family)
    ]
    return {family.kind: family for family in found}


def find_family(kind: Any, *, trainable: bool = False) -> Family:
    """The family of this kind, or one line that names those there are."""
    families = all_families()
    names = [name for name, family in families.items() if family.trainable or not trainable]
    if not isinstance(kind, str) or kind not in names:
        raise BasisError(f"unknown architecture {kind!r:.60}; known are {', '.join(names)}")
    return families[kind]


def describe_module(module: Any) -> dict[str, Any]:
    """The `architecture` entry of a card from which this module can be built again."""
    for family in all_families().values():
        told = family.describe_module(module)
        if told is not None:
            return told
    raise BasisError(f"a {type(module).__name__} cannot be described by a card")
