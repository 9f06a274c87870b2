"""A proxy before a real server that fails on request: what networks and servers do."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_SECONDS = 30


class Proxy(ThreadingHTTPServer):
    """Passes calls on to `upstream`. Each POST takes the next of `faults` first; `seen` are their bodies.

    429, 500, 401: that status. hang: no reply. cut: the connection ends within the reply. malformed: a reply
    that is no JSON. other: JSON of another kind. no n, no seed, no max_tokens: that parameter is refused
    whenever it is there. one: one choice only, whatever n.
    """

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.faults: list[str] = []
        self.always: set[str] = set()
        self.seen: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def next_fault(self) -> str | None:
        with self.lock:
            return self.faults.pop(0) if self.faults else None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are what is tested."""


@contextmanager
def running(proxy: Proxy) -> Iterator[Proxy]:
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        self._pass_on(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        values = json.loads(body)
        self.server.seen.append(values)
        self.server.keys.add(self.headers.get("Authorization"))
        for name in ("n", "seed", "max_tokens"):
            if f"no {name}" in self.server.always and name in values:
                error = {"message": f"Unsupported parameter: '{name}' is not supported.", "param": name}
                return self._reply(400, json.dumps({"error": error}).encode())
        if "one" in self.server.always:
            body = json.dumps({**values, "n": 1}).encode()
        fault = self.server.next_fault()
        if fault in ("429", "500", "401"):
            error = {"message": f"no, {self.headers.get('Authorization')}"}
            return self._reply(int(fault), json.dumps({"error": error}).encode())
        if fault == "hang":
            time.sleep(HANG_SECONDS)
        elif fault == "cut":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.connection.close()
        elif fault == "malformed":
            self._reply(200, b'{"choices": [{"text": "py')
        elif fault == "other":
            self._reply(200, b'{"choices": []}')
        else:
            self._pass_on(body)
        return None

    def _pass_on(self, body: bytes | None) -> None:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(self.server.upstream + self.path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=120) as reply:
                self._reply(reply.status, reply.read())
        except urllib.error.HTTPError as error:
            self._reply(error.code, error.read())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""
