"""The simulation of more workers, where the answer is known."""

import json

import pytest

from basis import BasisError
from basis.cli import main
from basis.studies import ShardTimes, read_times, simulate

EVEN = ShardTimes((10.0,), (0.01,), 64)


def test_workers_that_never_fail_share_the_work():
    one = simulate(EVEN, 1, 64 * 1000, losses=0)
    ten = simulate(EVEN, 10, 64 * 1000, losses=0)
    assert one.hours == pytest.approx(1000 * 10 / 3600, rel=1e-3)
    assert ten.hours == pytest.approx(one.hours / 10, rel=0.02)
    assert ten.efficiency == pytest.approx(1, abs=0.02) and ten.lost == 0


def test_one_process_feeds_so_many_and_no_more():
    assert EVEN.limit == pytest.approx(1000)
    slow = ShardTimes((10.0,), (1.0,), 64)
    found = simulate(slow, 100, 64 * 1000, losses=0)
    assert found.hours == pytest.approx(1000 * 1.0 / 3600, rel=0.03)
    assert found.busy > 0.95 and found.efficiency < 0.15


def test_lost_workers_cost_what_they_should():
    calm = simulate(EVEN, 10, 64 * 3000, losses=0)
    wild = simulate(EVEN, 10, 64 * 3000, losses=36)  # every 100 seconds, for a shard of ten
    # Per shard: 1 / (1 - p) tries with p = 1 - exp(-0.1), and a minute for each that is lost.
    assert wild.lost == pytest.approx(3000 * 0.105, rel=0.15)
    assert wild.hours == pytest.approx(calm.hours * (1 + 0.105 * (60 + 5) / 10), rel=0.1)


def test_the_command_and_its_record(tmp_path, capsys):
    words = ["study", "scale", "--out", str(tmp_path / "out"), "--workers", "1", "1000"]
    assert main(words) == 2
    assert "--store is needed" in capsys.readouterr().err
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(BasisError, match="not the record"):
        read_times(tmp_path)
    times = {"shard_seconds": [9, 11], "write_seconds": [0.01], "mixtures_per_shard": 64}
    (tmp_path / "run.json").write_text(json.dumps(times))
    assert main([*words, "--store", str(tmp_path), "--separations", "100000"]) == 0
    assert "1,000" in capsys.readouterr().out
    rows = json.loads((tmp_path / "out" / "scale.json").read_text())["scale"]
    assert rows[0]["hours"] > 500 * rows[1]["hours"]
