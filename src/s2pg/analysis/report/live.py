"""A page that is served on this machine, to those who know its address, and made anew when it changes."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from s2pg.errors import UserError

HOST = "127.0.0.1"
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Server(ThreadingHTTPServer):
    """Serves one page under an address with a token.

    A page of another site can send requests here. It does not know the token; and where it makes a name of its own
    point to this machine, the Host header tells.
    """

    daemon_threads = True

    def __init__(self, state: Callable[[], str], page: Callable[[str], str], port: int = 0):
        super().__init__((HOST, port), _Handler)
        self.token = secrets.token_urlsafe(16)
        self._state, self._page = state, page
        self._lock = threading.Lock()
        self._shown = "", ""  # version and page

    @property
    def hosts(self) -> set[str]:
        return {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def current(self) -> tuple[str, str]:
        """The version and the page; those of before while something is being written and cannot be read."""
        with self._lock:
            try:
                version = self._state()
                if version != self._shown[0]:
                    self._shown = version, self._page(version)
            except UserError:
                if not self._shown[0]:
                    raise
            return self._shown


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "s2pg", ""

    def do_GET(self) -> None:
        server = cast(Server, self.server)
        if self.headers.get("Host") not in server.hosts:
            return self._answer(HTTPStatus.FORBIDDEN)
        if not hmac.compare_digest(self.path.encode(), f"/{server.token}/".encode()):
            return self._answer(HTTPStatus.NOT_FOUND)
        version, page = server.current()
        if self.headers.get("If-None-Match") == f'"{version}"':
            return self._answer(HTTPStatus.NOT_MODIFIED)
        self._answer(HTTPStatus.OK, page.encode())

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps quiet: the page asks every second."""
