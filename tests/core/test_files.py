"""Files are written whole or not at all, locked, inspected; text of others is made printable."""

import json
import math
import os
import subprocess
import sys
import threading

import pytest

from basis import files
from basis.errors import (
    BasisError,
    markdown_cell,
    markdown_code,
    one_line,
    printable,
    shown,
)
from basis.files import (
    RunFolder,
    check_disk_space,
    check_fits_memory,
    check_no_link,
    check_regular,
    check_replaceable,
    folder_lock,
    protected,
    read_json,
    read_text,
    reading,
    remove_files,
    sha256,
    whole_file,
    write_json,
    write_text,
)

POSIX = pytest.mark.skipif(os.name != "posix", reason="pipes and links")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "made" / "result.txt"
    write_text(path, "before")
    for error in (OSError(28, "No space left on device"), OSError("784 requested and 0 written")):
        with pytest.raises(BasisError, match=r"cannot write .*result\.txt"), whole_file(path):
            raise error
    with pytest.raises(KeyError), whole_file(path):
        raise KeyError
    assert path.read_text() == "before" and os.listdir(path.parent) == ["result.txt"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~files._umask()
    write_text(path, "é\udcff")
    assert path.read_text(encoding="utf-8") == "é\\udcff"
    with pytest.raises(BasisError, match="folder"):
        write_text(tmp_path / "made", "x")
    with pytest.raises(BasisError, match=r"cannot write .*result\.txt"):
        write_text(path / "below", "x")
    assert sha256(path).startswith("71364db8")


def test_data_is_on_disk_before_the_file_gets_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def log_sync(handle):
        events.append(("sync", os.fstat(handle).st_ino))
        fsync(handle)

    def log_name(source, target):
        events.append(("name", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", log_sync)
    monkeypatch.setattr(os, "replace", log_name)
    write_text(tmp_path / "a.txt", "text")
    number = (tmp_path / "a.txt").stat().st_ino
    assert events.index(("sync", number)) < events.index(("name", number))


@POSIX
def test_devices_and_pipes_are_written_to_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    found = []
    thread = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()))
    thread.start()
    for _ in range(500):  # until the reader has opened the pipe
        try:
            write_text(tmp_path / "pipe", "text")
            break
        except BasisError:
            thread.join(0.01)
    thread.join(20)
    assert found == ["text"] and not (tmp_path / "pipe").is_file()
    write_text("/dev/null", "text")
    code = "from basis.files import write_text; print('a'); write_text('/dev/stdout', 'b')"
    with open(tmp_path / "out", "w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "a\nb"


def test_inputs_are_not_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    os.link(path, tmp_path / "same")
    with protected([path, tmp_path / "none"]):
        for name in ("a", "same"):
            with pytest.raises(BasisError, match="are read"):
                write_text(tmp_path / name, "new")
        remove_files(tmp_path, ["a"])
    assert path.read_text() == "old"
    write_text(path, "new")
    check_replaceable(tmp_path / "none")
    remove_files(tmp_path, ["a", "none"])
    assert not path.exists()


@POSIX
def test_links_are_not_followed_by_outputs(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    check_no_link(tmp_path)
    with pytest.raises(BasisError, match="link"):
        check_no_link(tmp_path / "link")


def test_disk_space_and_memory_are_checked(tmp_path, monkeypatch):
    check_disk_space(tmp_path, 1000)
    with pytest.raises(BasisError, match=r"there.* 1000000000\.0 GB"):
        check_disk_space(tmp_path / "not" / "there", 10**18)
    check_fits_memory(1000, "a")
    monkeypatch.setattr(files, "memory_left", lambda: 100)
    with pytest.raises(BasisError, match="a decompresses"):
        check_fits_memory(1000, "a")


def test_a_run_removes_only_what_the_earlier_run_wrote(tmp_path):
    first = RunFolder(tmp_path)
    for name in ("a.png", "b.png"):
        first.path(name).touch()
    (tmp_path / "mine.png").touch()
    assert json.loads(first.finish({"x": math.inf}).read_text()) == {
        "x": None,
        "files": ["a.png", "b.png"],
    }
    second = RunFolder(tmp_path)
    second.path("b.png").touch()
    assert second.earlier() == {"a.png", "b.png"}
    second.finish({})
    assert sorted(os.listdir(tmp_path)) == ["b.png", "mine.png", "run.json"]
    (tmp_path / "store.json").touch()
    with pytest.raises(BasisError, match=r"store\.json"):
        second.refuse_job()


@pytest.mark.parametrize(
    "record", ["{", "[]", "3", '{"files": 3}', '{"files": ["../x", "", "/x"]}']
)
def test_a_record_cannot_name_files_elsewhere(tmp_path, record):
    (tmp_path / "x").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.json").write_text(record)
    RunFolder(tmp_path / "out").finish({})
    assert (tmp_path / "x").exists()


def test_a_folder_is_locked_for_others_and_not_for_its_holder(tmp_path):
    messages = []

    def other():
        try:
            with folder_lock(tmp_path / "a"):
                messages.append("")
        except BasisError as error:
            messages.append(str(error))

    with folder_lock(tmp_path / "a"):
        with folder_lock(tmp_path / "a"):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert f"process {os.getpid()} on" in messages[0]
        code = "import sys; from basis.files import *\nwith folder_lock(sys.argv[1]): pass"
        words = [sys.executable, "-c", code, str(tmp_path / "a")]
        done = subprocess.run(words, capture_output=True, text=True)
        assert f"process {os.getpid()} on" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "a").exists()  # it was made for the lock, and was empty
    with folder_lock(tmp_path):
        write_text(tmp_path / "b", "text")
    assert os.listdir(tmp_path) == ["b"]


@POSIX
def test_a_lock_does_not_follow_links(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".lock").symlink_to("mine")
    with pytest.raises(BasisError, match="cannot write"), folder_lock(tmp_path):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_crashed_holder_leaves_no_lock(tmp_path):
    code = "import os, sys; from basis.files import *\nwith folder_lock(sys.argv[1]): os._exit(1)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=False)
    assert (tmp_path / "a" / ".lock").exists()
    with folder_lock(tmp_path / "a"):
        pass


@POSIX
def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, says in (
        (tmp_path / "pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        (tmp_path, "folder"),
        (tmp_path / "none\n", r"none\\n"),
        ("a\0b", r"a\\x00b"),
        ("a" * 5000, "no file"),
    ):
        for read in (check_regular, read_text):
            with pytest.raises(BasisError, match=says) as caught:
                read(path)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "", "[" * 5000, "[" * 100 + "]" * 100, "\xff", "\0"])
def test_broken_json_is_one_line(tmp_path, text):
    (tmp_path / "a.json").write_text(text, encoding="latin-1")
    with pytest.raises(BasisError, match=r"a\.json cannot be read as") as caught:
        read_json(tmp_path / "a.json", "a card")
    assert "\n" not in str(caught.value)


def test_text_is_limited_and_json_is_strict(tmp_path):
    write_json(tmp_path / "a.json", {"a": [1.5, math.nan, (math.inf,)], "b": {"c": "é"}})
    assert read_json(tmp_path / "a.json", "it") == {"a": [1.5, None, [None]], "b": {"c": "é"}}
    with pytest.raises(BasisError, match="at most 3"):
        read_text(tmp_path / "a.json", 3)


def test_errors_of_decoders_are_one_line():
    for error in (KeyError("x"), AssertionError(), ValueError("\n\n first\nsecond\x1b[2J")):
        says = r"f cannot be read as a thing .*; again$"
        with pytest.raises(BasisError, match=says) as caught, reading("f", "a thing", "again"):
            raise error
        assert str(caught.value).isprintable()
    for error in (MemoryError, KeyboardInterrupt):
        with pytest.raises(error), reading("f", "a thing"):
            raise error


def test_text_of_others_is_printable():
    assert printable("a\nb\x00\u2028\udcff") == r"a\nb\x00\u2028\udcff"
    assert one_line(KeyError("a")) == "KeyError: 'a'"
    assert one_line(AssertionError()) == "AssertionError"
    assert one_line(ValueError("\n\n first\nsecond")) == "first"
    assert len(one_line(ValueError("x" * 9999))) == 400
    assert markdown_cell("a|b\n![x](http://y)<b>`") == r"a\|b\n![x\](http://y)&lt;b>\`"
    assert markdown_code("a`b\n") == r"`` a`b\n ``" and markdown_code("a") == "`a`"


def test_text_reaches_the_terminal_without_its_codes():
    assert shown("a\x1b[2J\x9b1m\u202eb\n\tc") == "a\\x1b[2J\\x9b1m\\u202eb\n\tc"
    assert shown("50 %\rall is well") == "50 %\\rall is well"
    for bar in ("\r 50%|████    | 1/2", "\x1b[A", "\n\n", "\r      \r"):
        assert shown(bar) == bar
