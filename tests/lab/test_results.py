"""The page of results is what the generator makes of the measurements."""

import json
from pathlib import Path

import pytest

from basis.cli import main
from basis.errors import BasisError
from basis.lab.results import EARLIER, is_current, results_page, shipped_checksums

DOCS = Path(__file__).parents[2] / "docs"
RECORD = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
ROW = {
    "section": "A", "task": "t", "method": "fast", "measure": "PSNR, dB", "ours": "30.0",
    "count": 8, "seed": 0, "command": "basis lab evaluate", "version": "0.1.0",
    "weights": {"mnist": "abc"},
}  # fmt: skip


def page(*rows, shipped):
    record = {"title": "R", "introduction": ["i"], "sections": {"A": "text"}, "rows": rows}
    return results_page(record, shipped)


def test_the_page_is_up_to_date():
    """If this fails, run `basis lab results` and commit docs/results.md."""
    assert (DOCS / "results.md").read_text(encoding="utf-8") == results_page(RECORD)


def test_rows_of_earlier_weights_are_marked():
    current = page(ROW, shipped={"mnist": "abc"})
    assert "†" not in current and "| fast | 30.0 |" in current
    earlier = page(ROW, shipped={"mnist": "def"})
    assert "| 30.0 † |" in earlier and EARLIER in earlier
    assert not is_current(ROW, {})
    shipped = shipped_checksums()
    old = [row for row in RECORD["rows"] if not is_current(row, shipped)]
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert text.count(" † |") == len(old)


def test_every_shipped_prior_has_a_checksum():
    shipped = shipped_checksums()
    assert {"mnist", "cifar10"} <= set(shipped)
    assert all(len(checksum) == 64 for checksum in shipped.values())
    known = {name for row in RECORD["rows"] for name in row["weights"]}
    assert known <= set(shipped)
    assert all(len(c) == 64 for row in RECORD["rows"] for c in row["weights"].values())


def test_every_row_says_how_it_was_measured():
    assert set(RECORD["sections"]) == {row["section"] for row in RECORD["rows"]}
    for row in RECORD["rows"]:
        assert row["count"] > 0 and row["seed"] >= 0 and row["command"].startswith("basis lab ")
    with pytest.raises(BasisError, match="lacks command"):
        page({k: v for k, v in ROW.items() if k != "command"}, shipped={})
    with pytest.raises(BasisError, match="unknown speed"):
        page(ROW | {"speed": 3}, shipped={})


@pytest.mark.parametrize("command", sorted({row["command"] for row in RECORD["rows"]}))
def test_commands_are_accepted(command, tmp_path, monkeypatch, capsys):
    """Every command is parsed and reaches its work."""
    import shlex

    from basis.cli import lab

    seen = []
    for name, entry in list(lab._COMMANDS.items()):
        monkeypatch.setitem(lab._COMMANDS, name, (*entry[:3], seen.append))
    assert main(shlex.split(command)[1:]) == 0 and len(seen) == 1
    from basis.lab.bench import find_method

    methods = seen[0].method or []
    for method in methods if isinstance(methods, list) else [methods]:
        find_method(method)


def test_the_command(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(RECORD))
    assert main(["lab", "results", str(tmp_path / "r.json")]) == 0
    assert (tmp_path / "r.md").read_text() == results_page(RECORD)
