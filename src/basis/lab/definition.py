"""What a table or figure is made by, and how its file is found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from basis.errors import BasisError
from basis.lab.context import Context, MissingRequirement
from basis.lab.section import Section

SIZES = {"quick": 0.03, "full": 1.0, "whole": 10.0}
"""Named sizes, as shares of the number of mixtures that the full version measures.

Of "whole" tables of photos take as many images as the test set has; others are as in "full".
"""


@dataclass(frozen=True)
class TableDefinition:
    """A table or figure that `basis reproduce` makes.

    A module in `basis/lab/tables` holds one as `TABLE`; nothing else names it.

    Attributes:
        name: What the command calls it: the name of its file, with hyphens.
        title: Its heading in the report.
        compute: Fills a section.
        order: Its place in the report; smaller numbers come first.
        sizes: Named sizes.
    """

    name: str
    title: str
    compute: Callable[[Context, Section], None]
    order: int = 1000
    sizes: Mapping[str, float] = field(default_factory=lambda: dict(SIZES))

    def share(self, size: str | float) -> float:
        """A size, by name or as a share above 0 and up to the largest of those, as a share."""
        try:
            share = self.sizes[size] if isinstance(size, str) and size in self.sizes else size
            share = float(share)
        except ValueError:
            share = 0.0
        most = max(self.sizes.values())
        if not 0 < share <= most:
            raise BasisError(
                f"a size is {', '.join(self.sizes)}, or a share above 0 and up to {most:g}, "
                f"not {size}"
            )
        return share

    def run(self, ctx: Context, size: str | float | None = None) -> Section:
        """Makes the section; one that lacks a prior or a package says so in its text.

        Args:
            ctx: What it is made with.
            size: How much to do; the context's own by default.
        """
        ctx = ctx if size is None else ctx.with_size(self.share(size))
        section = Section(self.name, self.title)
        try:
            self.compute(ctx, section)
        except MissingRequirement as missing:
            section.text.append(str(missing))
        section.settings = ctx.settings() | section.settings
        return section


def load_tables() -> dict[str, TableDefinition]:
    """Every table by its name, in the order of the report."""
    package = importlib.import_module("basis.lab.tables")
    modules = [
        importlib.import_module(f"basis.lab.tables.{m.name}")
        for m in pkgutil.iter_modules(package.__path__)
    ]
    tables: list[TableDefinition] = [module.TABLE for module in modules]
    return {t.name: t for t in sorted(tables, key=lambda t: (t.order, t.name))}
