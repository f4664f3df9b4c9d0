"""`basis data`: which data sets are there, and how to get the others."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from basis.cli.arguments import add_json, add_root, say
from basis.files import write_json


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `basis data`."""
    parser.add_argument("action", nargs="?", choices=("list", "download"), default="list")
    parser.add_argument("name", nargs="?", help="with download: mnist or cifar10")
    add_root(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Lists the data sets, or downloads one."""
    from basis.errors import BasisError
    from basis.signals.datasets import download, list_datasets
    from basis.signals.image_set import data_root

    if args.action == "download":
        if not args.name:
            raise BasisError("name what to download: basis data download mnist (or cifar10)")
        folder = download(args.name, args.data_root)
        say(f"{args.name}: {folder}")
        return
    entries = list_datasets(args.data_root)
    say(f"data root: {data_root(args.data_root)}")
    for entry in entries:
        say(f"{entry.name:16} {entry.about}")
        say(f"{'':16} {entry.where if entry.found else 'not there: ' + entry.how}")
    if args.json:
        rows = [{k: str(v) for k, v in asdict(entry).items()} for entry in entries]
        write_json(args.json, {"data": rows})
