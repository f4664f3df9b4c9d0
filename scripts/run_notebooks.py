"""Runs the notebooks of docs/notebooks and stores what they show: `make notebooks`."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def run_notebook(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook with what its cells give when they are run, one after the other, in a folder."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=300, record_timing=False, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):  # pictures offer themselves in two formats
                output.data.pop("image/jpeg", None)
    return notebook


def store(path: Path) -> None:
    """Runs a notebook and writes it back."""
    notebook = run_notebook(path, path.parent)
    for cell in notebook.cells:
        cell.metadata = {}
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        store(path)
        print(path, f"{path.stat().st_size / 1024:.0f} KiB", file=sys.stderr)
