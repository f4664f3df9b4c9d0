"""`basis reproduce`: the paper's tables and figures, made again."""

from __future__ import annotations

import argparse
import ast
import pkgutil
from importlib import resources

import basis.lab.tables
from basis.cli.arguments import add_root, add_seed_and_device, device_from, out_folder, say
from basis.errors import BasisError
from basis.files import check_no_link

_ROOM = "reproduce/tables"

_EPILOG = """\
names: all, or some of
{names}

examples:
  basis reproduce all --size quick          a quick version of everything
  basis reproduce mnist-split --size full   1,024 mixtures, hours
  basis reproduce colour --size whole       distances of as many photos as the test set has

The folder gets report.html, a single file, its tables as tables.md, and a cache of results: a run
that was stopped goes on, a second run with the same settings is instant, and what depends on
changed settings, priors, data or code is computed again.
"""


def _summaries() -> dict[str, str]:
    """Names of the tables and the first lines of their files, read without importing them."""
    folder = resources.files("basis").joinpath(*_ROOM.split("/"))
    summaries = {}
    for name in sorted(m.name for m in pkgutil.iter_modules(basis.lab.tables.__path__)):
        text = folder.joinpath(f"{name}.py").read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
        summaries[name.replace("_", "-")] = first.rstrip(".")
    return summaries


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    summaries = _summaries()
    lines = "\n".join(f"  {name:16} {summary}" for name, summary in summaries.items())
    parser.epilog = _EPILOG.format(names=lines)
    parser.add_argument("names", nargs="+", choices=("all", *summaries), metavar="NAME")
    parser.add_argument(
        "--size", default="quick", help="quick (the default), full, whole, or a share such as 0.1"
    )
    parser.add_argument("--data", default="mnist", help="mnist (the default) or sample")
    add_seed_and_device(parser)
    parser.add_argument("--out", default="reproduced", metavar="DIR", help="default: reproduced")
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Makes the tables behind a progress bar, then prints them."""
    from tqdm import tqdm

    from basis.lab.context import Context
    from basis.lab.report import build_report
    from basis.lab.result_cache import ResultCache
    from basis.lab.section import Section

    if args.data not in ("mnist", "sample"):
        raise BasisError(f"--data takes mnist or sample, not {args.data}")
    out = out_folder(args.out)
    check_no_link(out / "cache")
    with tqdm(
        total=1.0,
        leave=False,
        disable=None,
        bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
    ) as bar:
        label = ""

        def on_progress(what: str, share: float) -> None:
            nonlocal label
            if what != label:
                label = what
                bar.reset(total=1.0)
                bar.set_description(what)
            bar.update(share - bar.n)

        def on_section(section: Section) -> None:
            bar.write(f"{section.name}: {section.seconds:.0f} s of computing")

        ctx = Context(
            ResultCache(out / "cache"),
            seed=args.seed,
            root=args.data_root,
            data=args.data,
            device=device_from(args.device),
            on_progress=on_progress,
        )
        sections = build_report(
            args.names, ctx, out, size=args.size, command=args.line, on_section=on_section
        )
    for section in sections:
        for table in section.tables:
            print()
            say(section.title)
            for row in (table.header, *table.rows):
                say("  " + " | ".join(row))
    print()
    say(f"report: {out / 'report.html'}")
