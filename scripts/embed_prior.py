r"""Puts a trained prior into the package, with measurements on its card.

    python scripts/embed_prior.py runs/mnist --name mnist --title "..." --origin "..." \
        --license "..." --quality a.json b.json

The quality files are written by `basis lab evaluate --json`, `basis lab bench --json`, or by
`basis lab distance --json` for samples or separations of the prior.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from basis.store.folder import read_card, save_prior
from basis.store.loading import EMBEDDED, load_prior


def quality_rows(path: Path) -> list[dict[str, object]]:
    """The entries of a card for what one file records."""
    record = json.loads(path.read_text(encoding="utf-8"))
    if "distance" in record:
        return [record]
    return [
        {
            "command": record["command"],
            "method": row["method"],
            "pairs": record["count"],
            "seed": record["seed"],
            "evaluations_per_mixture": round(row["evaluations"]),
            **{key: round(row[key], 3) for key in ("mean", "median", "stderr")},
        }
        for row in record["quality"]
        if row["evaluations"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--title", required=True)
    parser.add_argument("--origin", required=True, help="who published the data")
    parser.add_argument("--license", required=True)
    parser.add_argument("--note", help="further information")
    parser.add_argument("--quality", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    card = read_card(args.run).to_dict()
    card |= {"name": args.name, "title": args.title, "license": args.license}
    card["data"] = {
        "name": card["data"]["name"],
        "origin": args.origin,
        "images": card["data"]["images"],
    }
    if args.note:
        card["note"] = args.note
    card["quality"] = [row for path in args.quality for row in quality_rows(path)]
    weights = dict(load_prior(args.run).module.named_parameters())
    print(save_prior(EMBEDDED / args.name, weights, card))


if __name__ == "__main__":
    main()
