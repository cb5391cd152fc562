"""A live page is for those who know its address, and follows its runs."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from s2pg.analysis.report.live import Server
from s2pg.cli import main
from s2pg.errors import UserError


@contextmanager
def serving(state: dict[str, str]) -> Iterator[Server]:
    def version() -> str:
        if state["version"] == "torn":
            raise UserError("half written")
        return state["version"]

    with Server(version, lambda found: f"<p>page {found}</p>") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: Server, path: str, **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest("GET", path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.text = answer.read().decode()  # pyright: ignore[reportAttributeAccessIssue]
    connection.close()
    return answer


def test_only_who_knows_the_token_and_names_this_host_gets_the_page():
    with serving({"version": "1"}) as server:
        path = f"/{server.token}/"
        assert server.address == f"http://127.0.0.1:{server.server_port}{path}" and len(server.token) >= 20
        right = ask(server, path)
        assert (right.status, right.text) == (200, "<p>page 1</p>")
        assert right.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert right.headers["Cache-Control"] == "no-store"
        assert ask(server, path, Host=f"localhost:{server.server_port}").status == 200
        for answer in (
            ask(server, path, Host="evil.example"),
            ask(server, path, Host=f"evil.example:{server.server_port}"),
            ask(server, path, Host="127.0.0.1"),
            ask(server, "/"),
            ask(server, "/wrong/"),
            ask(server, path[:-1]),
        ):
            assert answer.status in (403, 404) and answer.text == ""


def test_it_listens_on_this_machine_alone():
    with serving({"version": "1"}) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_page_is_sent_again_when_it_has_changed():
    state = {"version": "1"}
    with serving(state) as server:
        path = f"/{server.token}/"
        assert ask(server, path, If_None_Match='"1"').status == 304
        state["version"] = "2"
        assert ask(server, path, If_None_Match='"1"').text == "<p>page 2</p>"
        state["version"] = "torn"  # a run that is being written keeps the page of before
        assert ask(server, path).text == "<p>page 2</p>"


def test_mistakes_end_it_at_once(tmp_path, capsys: pytest.CaptureFixture[str]):
    assert main(["watch", str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--port", "70000"]) == 2
