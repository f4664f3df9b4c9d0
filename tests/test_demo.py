"""What is behind the page: uploads, the line, runs that can be stopped, and what is taken home."""

import base64
import dataclasses
import io
import json
import struct
import time
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import basis
from basis.cli import main
from basis.errors import BasisError
from basis.page.answer import answer_view
from basis.page.desk import equation_view, new_desk, offers
from basis.page.downloads import write_files
from basis.page.limits import Limits
from basis.page.line import Line
from basis.page.markup import chains_view, curves
from basis.page.recipes import command_lines, python_lines
from basis.page.run import Run
from basis.page.server import check_door
from basis.page.task import Task, Way
from basis.page.uploads import (
    as_digit,
    as_square,
    at_most,
    decode_canvas,
    in_bytes,
    read_upload,
    samples,
)

LIMITS = Limits()


def two_digits(alphas=(1.0, 0.5), way=None, seed=0):
    sources = samples("sample").floats([3, 18])[None]
    mixture = basis.mixture(alphas)(sources)
    references = ("sample:3", "sample:18")
    way = way or Way("mnist", "fast", 2)
    return Task("separate", mixture, alphas, way, seed, sources, references)


def wait(run, seconds=120.0):
    for _ in run.watch():
        assert time.monotonic() - run.started < seconds
    run.join(10)
    return run.outcome


@pytest.fixture(scope="module")
def separated():
    run = Run(two_digits(), LIMITS).start()
    wait(run)
    return run


def test_a_run_shows_its_states_and_answers_as_separate_does(separated):
    task, outcome = separated.task, separated.outcome
    again = basis.separate(
        task.observed, basis.load_prior("mnist"), alphas=(1.0, 0.5), effort="fast", samples=2,
        choose="energy", seed=0,
    )  # fmt: skip
    assert torch.equal(outcome.result.sources, again.sources)
    assert outcome.result.evaluations == again.evaluations  # watching is not on the bill
    frames = separated.frames
    assert len(frames) >= 5 and frames[0].states.shape == (2, 2, 1, 28, 28)
    assert frames[0].sigma > 0.8 and frames[-1].sigma < 0.2
    assert frames[0].energy > 10 * frames[-1].energy
    assert frames[0].residual > 10 * frames[-1].residual
    assert [f.step for f in frames] == sorted(f.step for f in frames)


def test_what_is_shown_of_a_run(separated):
    view = answer_view(separated)
    assert "The sources" in view and "dB" in view and "draw 2" in view and "uncertainty" in view
    assert view.count("<img") >= 6 + 4 + 4  # sources and truth, draws, mean and map
    live = chains_view(separated.frames[0]) + curves(separated.frames, 0)
    assert live.count("<img") == 8 and live.count("<svg") == 3 and "http" not in live


def test_python_and_command_do_what_the_page_did(separated, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(python_lines(separated.task), names)
    assert torch.equal(names["result"].sources, separated.outcome.result.sources)
    for line in command_lines(separated.task).splitlines():
        assert main(line.split()[1:]) == 0, capsys.readouterr().err
    with np.load(tmp_path / "separated" / "sources.npz") as arrays:
        found = torch.from_numpy(arrays["sources"])
    expected = basis.metrics.reorder(separated.outcome.result.sources, separated.task.truth)
    assert torch.allclose(found, expected, atol=1e-5)


def test_weights_that_are_not_told_are_estimated(tmp_path, monkeypatch):
    task = dataclasses.replace(two_digits((1.0, 0.6), Way("mnist", "fast", 1)), told=False)
    run = Run(task, LIMITS).start()
    outcome = wait(run)
    assert outcome.message == ""
    weights = sorted(task.weights(outcome.result))
    assert abs(weights[0] - 0.6) < 0.1 and abs(weights[1] - 1.0) < 0.1
    assert "weight 0." in answer_view(run)
    steps = [frame.step for frame in run.frames]
    assert steps == sorted(steps) and run.total > 60  # both stages
    assert run.frames[-1].residual < 0.1 < run.frames[0].residual
    assert "--alphas unknown unknown" in command_lines(task)
    write_files(run, tmp_path)
    assert not json.loads((tmp_path / "run.json").read_text())["alphas_told"]
    names: dict = {}
    exec(python_lines(task), names)
    assert torch.equal(names["result"].sources, outcome.result.sources)


def test_files_to_take_home_are_whole_and_enough(separated, tmp_path, monkeypatch):
    brought = Task("separate", separated.task.observed, (1.0, 0.5), Way("mnist", "fast", 2))
    run = Run(brought, LIMITS)
    run.frames, run.outcome = separated.frames, separated.outcome
    paths = {p.rpartition("/")[2]: p for p in write_files(run, tmp_path)}
    assert set(paths) == {
        "source1.png", "source2.png", "mixture.npz", "panel.png", "sources.npz", "run.json",
    }  # fmt: skip
    with Image.open(paths["source1.png"]) as picture:
        assert picture.size == (28, 28)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["seed"] == 0 and record["evaluations_per_mixture"] > 100
    assert len(record["curves"]) == len(separated.frames)
    # Nothing of it is the package's own, so that Python begins with the file.
    assert "mixture.npz" in "\n".join(record["python"]) and len(record["command"]) == 1
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec("\n".join(record["python"]), names)
    assert torch.equal(names["result"].sources, separated.outcome.result.sources)


@pytest.mark.parametrize("kind", ["colorize", "inpaint"])
def test_photos_are_coloured_and_filled_in_as_the_lines_say(kind, tmp_path, monkeypatch, capsys):
    photo = samples("sample-photos").floats([4])
    way = Way("cifar10", "langevin", 2)
    if kind == "colorize":
        way = Way("cifar10", "fast", 1)
        task = Task(kind, in_bytes(photo.mean(dim=1, keepdim=True)), (1.0,), way)
    else:
        mask = torch.ones(1, 32, 32)
        mask[:, 10:16, 10:16] = 0
        task = Task(kind, photo, (1.0,), way, mask=mask)
    run = Run(task, LIMITS).start()
    outcome = wait(run)
    assert outcome.message == ""
    assert "<img" in answer_view(run)
    write_files(run, tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(python_lines(task), names)
    assert torch.equal(names["result"].sources, outcome.result.sources)
    if kind == "inpaint":
        kept = (outcome.result.sources[0, 0] - photo[0]) * mask
        assert kept.abs().max() < 1 / 255
        assert main([*command_lines(task).split()[1:], "--steps", "3"]) == 0
        assert (tmp_path / "separated" / "panel.png").is_file()
    else:
        assert torch.allclose(
            names["colours"].mean(dim=2), task.observed, atol=1 / 255
        ) and torch.equal(names["colours"], outcome.answer[:, :, 0])
        assert main(command_lines(task).split()[1:]) == 0


def test_stop_frees_the_cores_and_the_turn():
    line = Line(1)
    ticket = line.enter()
    assert ticket.place() == 0 and line.counts() == (1, 0)
    run = Run(two_digits(way=Way("mnist", "basis", 1)), LIMITS, ticket).start()
    frames = run.watch()
    while next(frames) is None:
        pass
    run.stop()
    started = time.monotonic()
    outcome = wait(run)
    assert not run.alive and time.monotonic() - started < 10
    assert "Stopped after" in outcome.message and outcome.result is None
    assert line.counts() == (0, 0)


def test_a_run_ends_at_its_time_and_where_nobody_looks():
    long = two_digits(way=Way("mnist", "basis", 1))
    outcome = wait(Run(long, Limits(seconds=0.5)).start())
    assert "0.5 seconds" in outcome.message and "smaller effort" in outcome.message
    alone = Run(long, Limits(idle=0.5)).start()
    alone.join(60)
    assert not alone.alive and "nobody" in alone.outcome.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alphas": (0.0, 0.0)}, "every weight is zero"),
        ({"alphas": (1.0, 0.0)}, "a source of weight zero"),
        ({"way": Way("cifar10", "fast", 1)}, "is of colour pictures"),
        ({"kind": "inpaint", "mask": torch.ones(1, 28, 28), "alphas": (1.0,)}, "painted over yet"),
        ({"kind": "inpaint", "mask": torch.zeros(1, 28, 28), "alphas": (1.0,)}, "all of the photo"),
        ({"way": Way("nothing", "fast", 1)}, "unknown prior"),
    ],
)
def test_what_cannot_be_asked_for_is_a_sentence(change, words):
    outcome = wait(Run(dataclasses.replace(two_digits(), **change), LIMITS).start())
    assert words in outcome.message and outcome.result is None


def test_the_line_serves_in_order_and_drops_who_left():
    line = Line(runs=1, waiting=2, idle=0.3)
    first, second, third = line.enter(), line.enter(), line.enter()
    assert (first.place(), second.place(), third.place()) == (0, 1, 2)
    with pytest.raises(BasisError, match="2 visitors are waiting"):
        line.enter()
    time.sleep(0.2)
    third.place()  # asks again; the second visitor has gone
    time.sleep(0.2)
    assert third.place() == 1
    first.leave()
    first.leave()
    assert third.place() == 0 and line.counts() == (1, 0)
    assert second.place() == 1  # who comes back stands at the end


def picture_file(path, size=(40, 30), mode="RGB", **options):
    rng = np.random.default_rng(0)
    shape = (size[1], size[0]) + ((3,) if mode == "RGB" else ())
    Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(path, **options)
    return path


def test_good_uploads_are_read(tmp_path):
    assert read_upload(picture_file(tmp_path / "a.png"), LIMITS).shape == (3, 30, 40)
    assert read_upload(picture_file(tmp_path / "b.jpg", mode="L"), LIMITS).shape == (1, 30, 40)
    # The ending says nothing: what is inside counts.
    assert read_upload(
        picture_file(tmp_path / "c.txt", format="PNG"), LIMITS
    ).shape == (3, 30, 40)  # fmt: skip


def test_bad_uploads_are_one_sentence(tmp_path):
    text = tmp_path / "letter.png"
    text.write_text("this is no picture")
    broken = picture_file(tmp_path / "broken.png", (200, 200))
    broken.write_bytes(broken.read_bytes()[:20000])
    frames = [Image.new("L", (32, 32), i * 40) for i in range(3)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "moving.png", save_all=True, append_images=frames[1:])
    Image.new("L", (32, 32)).save(tmp_path / "still.gif")
    cases = {
        text: "not a picture that can be read",
        broken: "is broken",
        tmp_path / "moving.gif": "is animated (3 frames)",
        tmp_path / "moving.png": "is animated (3 frames)",
        tmp_path / "still.gif": "is a GIF file",
        picture_file(tmp_path / "tiny.png", (4, 4)): "at least 8 x 8",
        tmp_path / "gone.png": "did not arrive",
    }
    for path, words in cases.items():
        with pytest.raises(BasisError) as caught:
            read_upload(path, LIMITS)
        said = str(caught.value)
        assert words in said and "\n" not in said
        assert str(tmp_path) not in said, "where files lie is nobody's business"
    large = picture_file(tmp_path / "large.png", (300, 300))
    with pytest.raises(BasisError, match=r"has 0\.3 MB; up to 0\.1 MB"):
        read_upload(large, Limits(megabytes=0.1))
    with pytest.raises(BasisError, match="is 300 x 300 pixels"):
        read_upload(large, Limits(pixels=10_000))


def test_a_bomb_of_pixels_is_refused_before_it_is_unpacked(tmp_path):
    def chunk(kind, data):
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    for side in (8_000, 100_000):
        header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
        body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
        path = tmp_path / "bomb.png"
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b""))
        with pytest.raises(BasisError, match="pixels"):
            read_upload(path, LIMITS)


def canvas_url(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def test_a_drawing_becomes_a_digit_as_mnist_has_them():
    pixels = np.zeros((280, 280), dtype=np.uint8)
    pixels[20:120, 200:220] = 255  # a one, in a corner
    digit = as_digit(decode_canvas(canvas_url(pixels), LIMITS))
    assert digit.shape == (1, 28, 28) and digit.max() > 0.9
    rows = (digit[0] > 0.5).any(dim=1).nonzero().flatten()
    assert 18 <= len(rows) <= 21
    weights = digit[0] / digit.sum()
    assert abs((weights.sum(dim=1) * torch.arange(28)).sum().item() - 13.5) < 0.6
    # Dark ink on paper that is not quite white is the same digit.
    paper = torch.from_numpy(230 - pixels.astype(np.float32) * 0.8)[None] / 255
    assert (as_digit(paper) - digit).abs().max() < 0.1


def test_bad_drawings_are_one_sentence():
    with pytest.raises(BasisError, match="nothing on it to see"):
        as_digit(torch.zeros(1, 280, 280))
    for url in ("", "data:image/png;base64,!!!", "data:image/png;base64,aGVsbG8=", None):
        with pytest.raises(BasisError, match="did not arrive whole"):
            decode_canvas(url, LIMITS)


def test_photos_are_cut_and_sized():
    photo = torch.rand(3, 60, 90)
    assert as_square(photo, 32, 3).shape == (3, 32, 32)
    assert as_square(photo[:1], 48, 3).shape == (3, 48, 48)
    assert at_most(photo, 45, least=8).shape == (3, 30, 45)
    assert at_most(photo, 1024).shape == (3, 60, 90)
    own = samples("sample-photos").floats([4])[0]
    assert torch.equal(as_square(own, 32, 3), own)


def test_desks_offer_every_digit_and_show_the_sum():
    labels = samples("sample").labels
    for shelf in (0, 1, 40):
        assert sorted(labels[offers("sample", shelf)].tolist()) == sorted([*range(10)] * 3)
    assert not set(offers("sample", 0)) & set(offers("sample", 1))
    view = equation_view(new_desk("sample", (3, 18, 8, 61)), (1.0, 0.25, 0.5))
    assert view.count("<button") == 3 and "0.25 ×" in view and view.count("<img") == 4


def test_others_are_let_in_by_a_password_alone(tmp_path, capsys):
    for host in ("127.0.0.1", "localhost", "::1"):
        check_door(host, None)
    for host in ("0.0.0.0", "192.168.1.4", "::", "example.org"):
        with pytest.raises(BasisError, match="needs a password"):
            check_door(host, None)
        check_door(host, "long enough")
    with pytest.raises(BasisError, match="at least 8"):
        check_door("0.0.0.0", "short")
    (tmp_path / "empty").write_text("\n")
    for words, complaint in (
        (["--host", "0.0.0.0"], "needs a password"),
        (["--password-file", str(tmp_path / "none")], "cannot read the password file"),
        (["--password-file", str(tmp_path / "empty")], "has no password"),
        (["--port", "70000"], "from 0 to 65535"),
        (["--seconds", "0"], "more than 0"),
    ):
        assert main(["page", *words]) == 2
        said = capsys.readouterr().err
        assert complaint in said and said.count("\n") == 1


def test_without_gradio_one_line_says_what_to_install(monkeypatch, capsys):
    import sys

    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["page", "--port", "0"]) == 2
    assert "pip install 'basis-separation[page]'" in capsys.readouterr().err


def test_a_taken_port_is_one_line(capsys):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["page", "--port", str(taken.getsockname()[1])]) == 2
    said = capsys.readouterr().err
    assert "cannot listen on 127.0.0.1" in said and said.count("\n") == 1


def test_behind_a_password_nothing_is_shown(monkeypatch, tmp_path):
    pytest.importorskip("gradio")
    testclient = pytest.importorskip("fastapi.testclient")
    from basis.page.server import make_app

    app = make_app(LIMITS, "long enough", tmp_path)
    with testclient.TestClient(app, base_url="http://127.0.0.1") as client:
        first = client.get("/")
        assert first.status_code in (200, 401) and "digits-go" not in first.text
        assert client.get("/config").status_code == 401
        assert client.post("/gradio_api/queue/join", json={}).status_code == 401
        wrong = client.post("/login", data={"username": "basis", "password": "not this one"})
        assert wrong.status_code == 400
        right = client.post("/login", data={"username": "basis", "password": "long enough"})
        assert right.status_code == 200
        config = client.get("/config")
        assert config.status_code == 200 and "digits-go" in config.text
        assert "default-src 'self'" in config.headers["content-security-policy"]
