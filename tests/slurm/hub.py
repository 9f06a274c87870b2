"""A hub on this machine: as much of its protocol as its own client library needs to fetch a model."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "c0ffee" + 34 * "0"
LARGE = (".safetensors", ".bin")


class Hub(BaseHTTPRequestHandler):
    """Serves the files of a folder as the model `owner/name`, large ones as git-lfs does. A gated one is
    described to everybody and given to nobody.
    """

    folder: Path
    requests: list[str]
    gated: bool
    stored: dict[str, bytes]
    """What was uploaded of large files, by SHA-256."""
    received: dict[str, bytes]
    """What was committed, by name."""

    def do_POST(self) -> None:
        """Uploads: which files are large, where they are put, and the commit that names all of them."""
        self.requests.append(self.path)
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if "commit" in self.path:
            self._commit([json.loads(line) for line in content.splitlines()])
            return
        asked = json.loads(content)
        if self.path == "/api/repos/create":
            self._json({"url": f"{self._address()}/{asked['organization']}/{asked['name']}"})
        elif "/preupload/" in self.path:
            kinds = {name: "lfs" if name.endswith(LARGE) else "regular" for name in _paths(asked)}
            files = [{"path": name, "uploadMode": kinds[name], "shouldIgnore": False} for name in kinds]
            self._json({"files": files})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {**item, "actions": {"upload": {"href": f"{self._address()}/stored/{item['oid']}"}}}
                for item in asked["objects"]
            ]
            self._json({"objects": objects})
        elif self.path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        else:
            self._refuse(404, "RepoNotFound")

    def do_PUT(self) -> None:
        """A large file's content."""
        self.stored[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"]))
        self._json({})

    def _commit(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.received[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.received[value["path"]] = self.stored[value["oid"]]
        self._json(
            {
                "commitUrl": f"{self._address()}/owner/name/commit/{COMMIT}",
                "commitOid": COMMIT,
                "success": True,
            }
        )

    def _address(self) -> str:
        return f"http://{self.headers['Host']}"

    def do_HEAD(self) -> None:
        self._answer(with_content=False)

    def do_GET(self) -> None:
        self._answer(with_content=True)

    def _answer(self, *, with_content: bool) -> None:
        path = self.path.partition("?")[0]
        self.requests.append(path)
        if "/resolve/" in path:
            self._file(self.folder / path.rpartition("/")[2], with_content=with_content)
        elif self.gated and path.endswith("/auth-check"):
            self._refuse(403, "GatedRepo")
        elif "/tree/" in path:
            self._json([_listed(file) for file in sorted(self.folder.iterdir())])
        elif path.startswith("/api/models/owner/name"):
            files = sorted(self.folder.iterdir())
            siblings = [{"rfilename": file.name, "size": file.stat().st_size} for file in files]
            gated = "manual" if self.gated else False
            self._json({"id": "owner/name", "sha": COMMIT, "siblings": siblings, "gated": gated})
        else:
            self._refuse(404, "RepoNotFound")

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _file(self, file: Path, *, with_content: bool) -> None:
        if not file.is_file():
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hash_of(file)}"')
        self.send_header("Content-Length", str(file.stat().st_size))
        self.end_headers()
        if with_content:
            self.wfile.write(file.read_bytes())

    def log_message(self, *_arguments: object) -> None:
        """Not on the terminal."""


def hash_of(file: Path) -> str:
    """What the hub calls a file's content by: SHA-256 of large files, git's hash of others."""
    content = file.read_bytes()
    if file.suffix in LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _paths(asked: dict[str, Any]) -> list[str]:
    return [item["path"] for item in asked["files"]]


def _listed(file: Path) -> dict[str, object]:
    listed: dict[str, object] = {
        "type": "file",
        "path": file.name,
        "size": file.stat().st_size,
        "oid": hash_of(file),
    }
    if file.suffix in LARGE:
        listed["lfs"] = {"oid": hash_of(file), "size": file.stat().st_size, "pointerSize": 134}
    return listed


@contextmanager
def hub_of(
    folder: Path, *, gated: bool = False, received: dict[str, bytes] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """A running hub: its address, and what it is asked for. Uploaded files go to `received`."""
    requests: list[str] = []
    uploads: dict[str, object] = {"stored": {}, "received": {} if received is None else received}
    values = {"folder": folder, "requests": requests, "gated": gated, **uploads}
    handler = type("FolderHub", (Hub,), values)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
