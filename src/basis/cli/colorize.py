"""`basis colorize`: colours for grey photos."""

from __future__ import annotations

import argparse
from pathlib import Path

from basis.cli.arguments import (
    add_root,
    add_seed_and_device,
    device_from,
    natural,
    number,
    out_folder,
    progress_bar,
    say,
)
from basis.cli.job_flags import MANY, add_job_flags, wants_job
from basis.errors import BasisError
from basis.files import RunFolder, check_disk_space, check_replaceable

EPILOG = """\
examples:
  basis colorize photo.png                      three colourings; a photo's own colours are not used
  basis colorize a.jpg b.jpg --samples 5 --seed 1 --out coloured
  basis colorize photo.png --preview            a look in seconds
  basis colorize photo.png --diverse            three that are far apart in colour
  basis colorize sample-photos:4                one of the photos that ship with the package
  basis colorize photos/ --size 64 --workers 2  a folder, in shards; goes on where it was stopped
  basis colorize cifar10 --samples 1            all test photos of a data set

Grey is the mean of red, green and blue and is kept; a weighted luminance may move. Colours are
drawn at --side pixels along the longer side at most, through overlapping tiles where that is more
than the prior was trained on, and laid over the photo at its own size. More pixels take longer and
see less of the photo at once. The most plausible colouring comes first; what the prior finds most
plausible may be pale.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("photos", nargs="+", metavar="PHOTO")
    parser.add_argument("--prior", default="cifar10", metavar="NAME|DIR", help="default: cifar10")
    parser.add_argument("--samples", type=natural, default=3, help="colourings of each (3)")
    parser.add_argument("--side", type=natural, default=64, help="pixels colours are drawn at (64)")
    parser.add_argument(
        "--diverse",
        action="store_true",
        help="draw three times as many and keep those far apart in colour",
    )
    parser.add_argument(
        "--preview", action="store_true", help="a look in seconds: few steps at the prior's size"
    )
    parser.add_argument(
        "--vivid",
        type=number,
        default=1.0,
        metavar="X",
        help="colours so many times as strong as they are drawn (1; 1.15 is nearer to photos)",
    )
    add_seed_and_device(parser)
    parser.add_argument(
        "--size", type=natural, help="jobs: side to which photos are cut and scaled"
    )
    parser.add_argument("--count", type=natural, help="jobs: at most so many photos")
    add_job_flags(parser, samples=False)
    parser.add_argument("--out", default="coloured", metavar="DIR", help="default: coloured")
    add_root(parser)


def run(args: argparse.Namespace) -> None:
    """Colours every photo and writes its colourings, a panel and a record."""
    if args.diverse and args.samples < 2:
        raise BasisError("--diverse needs --samples of 2 or more")
    if wants_job(args, args.photos, MANY + 1):
        from basis.cli.colorize_job import colorize_as_job

        colorize_as_job(args)
        return

    import torch

    from basis._colorize import colorize
    from basis.cli.source_images import source_image
    from basis.plots.drawing import to_picture, write_picture
    from basis.plots.panels import pictures_panel
    from basis.store.loading import load_prior

    out = out_folder(args.out)
    prior = load_prior(args.prior, root=args.data_root, device=device_from(args.device))
    photos = [source_image(name, args.data_root) for name in args.photos]
    stems = [Path(name.replace(":", "-")).stem for name in args.photos]
    if len(stems) > 1:
        stems = [f"{number}-{stem}" for number, stem in enumerate(stems, start=1)]
    for stem in stems:
        endings = [f"colours{i}.png" for i in range(1, min(args.samples, 1000) + 1)]
        for ending in (*endings, "panel.png", "run.json"):
            check_replaceable(out / f"{stem}-{ending}")
    check_disk_space(out, sum(args.samples * photo[0].numel() for photo in photos))
    for name, stem, photo in zip(args.photos, stems, photos, strict=True):
        folder = RunFolder(out, f"{stem}-run.json")
        folder.refuse_job()
        grey = photo.mean(dim=0, keepdim=True)
        with progress_bar(f"colouring {name}") as progress:
            coloured, result = colorize(
                grey[None],
                prior,
                side=args.side,
                samples=args.samples,
                diverse=args.diverse,
                preview=args.preview,
                vivid=args.vivid,
                seed=args.seed,
                progress=progress,
            )
        for i, image in enumerate(coloured[0], start=1):
            write_picture(folder.path(f"{stem}-colours{i}.png"), to_picture(image))
        shown = [grey.expand(3, -1, -1), *coloured[0].unbind()]
        captions = ["grey", *(f"colouring {i + 1}" for i in range(args.samples))]
        if photo.shape[0] == 3:
            shown, captions = [*shown, photo], [*captions, "as it was"]
        panel = pictures_panel(torch.stack(shown)[None], captions)
        write_picture(folder.path(f"{stem}-panel.png"), panel)
        off = (coloured.mean(dim=2) - grey).abs().max().item() * 255
        record = {
            "command": args.line,
            "photo": name,
            "seed": args.seed,
            "prior": prior.describe(),
            "drawn_at": list(result.sources.shape[3:]),
            "diverse": args.diverse,
            "preview": args.preview,
            "vivid": args.vivid,
            "energies": result.energies[0].tolist(),
            "evaluations": result.evaluations,
            "largest_difference_from_grey_in_8_bit_steps": off,
        }
        folder.finish(record)
        say(f"picture: {out / f'{stem}-panel.png'}  ({off:.2f}/255 from the grey at most)")
