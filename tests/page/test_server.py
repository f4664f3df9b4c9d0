"""`basis page`: who may reach it, its flags and its errors."""

import socket
import sys

import pytest

from basis.cli import main
from basis.cli.page import _password
from basis.errors import BasisError
from basis.page import Limits
from basis.page.server import check_password
from basis.settings import METHODS, SAMPLER_NAMES


def test_other_computers_need_a_password():
    for host in ("127.0.0.1", "localhost", "::1"):
        check_password(host, None)
    for host in ("0.0.0.0", "192.168.1.4", "::", "example.org"):
        with pytest.raises(BasisError, match="needs a password"):
            check_password(host, None)
        check_password(host, "long enough")
    with pytest.raises(BasisError, match="at least 8"):
        check_password("0.0.0.0", "short")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--host", "0.0.0.0"], "needs a password"),
        (["--password-file", "none"], "cannot read the password file"),
        (["--password-file", "empty"], "is empty"),
        (["--password-file", "/dev/zero"], "too long"),
        (["--port", "70000"], "from 0 to 65535"),
        (["--seconds", "0"], "more than 0"),
        (["--runs", "0"], "at least 1"),
    ],
)
def test_bad_flags_are_one_line(words, complaint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    assert main(["page", *words]) == 2
    message = capsys.readouterr().err
    assert complaint in message and message.count("\n") == 1


def test_the_password_is_the_first_line_of_the_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("  the password \nmore\n" + "x" * 100_000)
    assert _password(path) == "the password"
    path.write_bytes(b"\xff\n")
    with pytest.raises(BasisError, match="is not text"):
        _password(path)
    with pytest.raises(BasisError, match="cannot read"):
        _password(tmp_path)


def test_without_gradio_one_line_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert main(["page", "--port", "0"]) == 2
    assert "pip install 'basis-separation[page]'" in capsys.readouterr().err


def test_a_taken_port_is_one_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["page", "--port", str(taken.getsockname()[1])]) == 2
    message = capsys.readouterr().err
    assert "cannot listen on 127.0.0.1" in message and message.count("\n") == 1


def test_nothing_is_shown_before_the_password():
    pytest.importorskip("gradio")
    testclient = pytest.importorskip("fastapi.testclient")
    from basis.page.server import make_app

    app = make_app(Limits(), "long enough")
    with testclient.TestClient(app, base_url="http://127.0.0.1") as client:
        first = client.get("/")
        assert first.status_code in (200, 401) and "digits-go" not in first.text
        assert client.get("/config").status_code == 401
        assert client.post("/gradio_api/queue/join", json={}).status_code == 401
        login = {"username": "basis", "password": "not this one"}
        assert client.post("/login", data=login).status_code == 400
        assert client.post("/login", data=login | {"password": "long enough"}).status_code == 200
        config = client.get("/config")
        assert config.status_code == 200 and "digits-go" in config.text
        assert "default-src 'self'" in config.headers["content-security-policy"]


def test_the_methods_of_the_page_exist():
    pytest.importorskip("gradio")
    from basis.page.forms import METHODS as SHOWN

    assert {method for _, method in SHOWN} <= {*METHODS, *SAMPLER_NAMES}
