"""Devices are checked; work is divided among threads, and stops as one."""

import threading

import pytest
import torch

from basis.devices import find_device, run_all, threads
from basis.errors import BasisError


@pytest.mark.parametrize("device", ["cuda:77", "tpu", "auto ", "meta"])
def test_a_device_that_does_not_exist_is_named(device):
    with pytest.raises(BasisError, match=f"'{device}'") as caught:
        find_device(device)
    assert "\n" not in str(caught.value)


def test_auto_finds_a_device():
    assert find_device("auto").type in ("cpu", "cuda")
    assert find_device("cpu") == find_device(torch.device("cpu"))


@pytest.mark.parametrize("workers", [1, 3])
def test_results_are_in_order(workers):
    found = run_all(lambda number, piece, check: (number, piece), "abc", workers)
    assert found == [(0, "a"), (1, "b"), (2, "c")]


def test_an_error_stops_the_other_workers():
    started = threading.Event()

    def work(number, piece, check):
        if number == 0:
            started.wait(20)
            raise KeyError(piece)
        started.set()
        while True:
            check()

    with pytest.raises(KeyError, match="a"):
        run_all(work, "ab", 2)


def test_threads_are_restored():
    before = torch.get_num_threads()
    with threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
