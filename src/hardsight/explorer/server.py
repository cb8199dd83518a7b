"""The page over HTTP: a token, one host, one origin, nothing inline, and only what the page itself needs."""

import errno
import json
import os
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hardsight.explorer.answers import Answers
from hardsight.explorer.source import SIDES
from hardsight.files import parse_json

_LARGEST_REQUEST, _CONNECTIONS = 1 << 18, 256
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Lets through what comes from the page itself: the right host and origin, the token, no more than it may send."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        problem = self._problem(scope)
        await (_error(problem, 403) if problem else self.app)(scope, receive, guarded)

    def _problem(self, scope: Scope) -> str:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope.get("headers", [])}
        if headers.get("host", "") not in self.hosts:
            return "this host is not served here"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.hosts}:
            return "another origin may not ask here"
        if scope["path"].startswith("/page/"):
            return ""  # the library's own files, the same for everybody
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not secrets.compare_digest(headers.get("x-token", given).encode(), self.token.encode()):
            return "the address must be the one that was printed, with its token"
        return ""


def application(answers: Answers, token: str, hosts: frozenset[str]) -> ASGIApp:
    """The page and its data as an ASGI application."""
    page = {one.name: one.read_bytes() for one in (files("hardsight.explorer") / "page").iterdir() if one.is_file()}

    async def shell(request: Request) -> Response:
        return Response(page["index.html"], media_type="text/html; charset=utf-8")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in page:
            return _error("there is no such file", 404)
        return Response(page[name], media_type=f"{_TYPES[Path(name).suffix]}; charset=utf-8")

    async def picture(request: Request) -> Response:
        row, side = _whole(request, "row", 0), _whole(request, "side", SIDES[0])
        if not 0 <= row < answers.columns.rows or side not in SIDES:
            return _error("there is no such picture", 404)
        wanted = (
            (answers.pictures.heat, row) if request.query_params.get("heat") else (answers.pictures.picture, row, side)
        )
        found = await run_in_threadpool(*wanted)
        if found is None:
            return _error("there is no such picture", 404)
        return Response(found, media_type="image/png" if found.startswith(b"\x89PNG") else "image/jpeg")

    async def sample(request: Request) -> Response:
        tokens = request.query_params.get("tokens", "")
        return _json(await run_in_threadpool(answers.sample, _whole(request, "row", -1), tokens))

    async def news(request: Request) -> Response:
        return _json(await run_in_threadpool(answers.news, _whole(request, "since", 0)))

    async def table(request: Request) -> Response:
        return _json(await run_in_threadpool(answers.table))

    def asked(answer: Callable[[Mapping[str, Any]], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            body = await _body(request)
            found = await run_in_threadpool(answer, body)
            return _binary(*found) if isinstance(found, tuple) else _json(found)

        return endpoint

    routes = [
        Route("/", shell),
        Route("/page/{name}", asset),
        Route("/api/table", table),
        Route("/api/picture", picture),
        Route("/api/sample", sample),
        Route("/api/news", news),
        Route("/api/counts", asked(answers.counts), methods=["POST"]),
        Route("/api/rows", asked(answers.page), methods=["POST"]),
        Route("/api/decide", asked(answers.decide), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={ValueError: _bad, OSError: _failed}), token, hosts)


class Explorer:
    """A page that is being served: its `url`, with the token; `close` ends it, `wait` stays until it ends."""

    def __init__(self, answers: Answers, host: str = "127.0.0.1", port: int = 0) -> None:
        self._answers = answers
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                raise ValueError(f"port must be free; {port} is in use: give another, or 0 for any") from None
            raise
        port = self._socket.getsockname()[1]
        token = secrets.token_urlsafe(24)
        names = _LOCAL if host in ("127.0.0.1", "localhost", "::1") else (*_LOCAL, host, socket.gethostname())
        hosts = frozenset(f"{name}:{port}" for name in names) | frozenset(names if port == 80 else ())
        self.url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::', 'localhost') else host}:{port}/?token={token}"
        app = application(answers, token, hosts)
        config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", ws="none",
                                limit_concurrency=_CONNECTIONS, timeout_graceful_shutdown=2)  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)

    def open(self) -> bool:
        """Open the page in the person's browser; whether one was found."""
        return webbrowser.open(self.url)

    def wait(self) -> None:
        """Stay until the page is closed, or the process is interrupted."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """Serve no more; the decisions and their list are on disk."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self._answers.close()

    def __enter__(self) -> "Explorer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer of {self._answers.source.name}: {self.url}"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank" rel="noreferrer">explore the samples</a>'


async def _body(request: Request) -> Mapping[str, Any]:
    """A request's JSON object, rejected as soon as it is too long."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > _LARGEST_REQUEST:
            raise ValueError(f"a request must have at most {_LARGEST_REQUEST:,} bytes")
    found = parse_json(bytes(data))
    if not isinstance(found, dict):
        raise ValueError("a request must be a JSON object")
    return found


def _whole(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, str(default))
    if not given.removeprefix("-").isdecimal() or len(given) > 12:
        raise ValueError(f"{name} must be a whole number; got {given[:40]!r}")
    return int(given)


def _json(value: Any) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "backslashreplace"), media_type="application/json")


def _binary(facts: dict[str, Any], parts: dict[str, np.ndarray]) -> Response:
    """One answer: the length of a JSON text, the text, then the arrays it describes, each at a multiple of 8 bytes."""
    described = [{"name": name, "type": one.dtype.str, "shape": one.shape} for name, one in parts.items()]
    head = json.dumps(facts | {"parts": described}).encode()
    pieces = [len(head).to_bytes(8, "little"), head + b" " * (-len(head) % 8)]
    for array in parts.values():
        data = np.ascontiguousarray(array).tobytes()
        pieces += [data, bytes(-len(data) % 8)]
    return Response(b"".join(pieces), media_type="application/octet-stream")


def _error(sentence: str, status: int) -> Response:
    return JSONResponse({"error": sentence}, status)


async def _bad(request: Request, problem: Exception) -> Response:
    return _error(" ".join(str(problem).split())[:2000], 400)


async def _failed(request: Request, problem: Exception) -> Response:
    """What the disk says of itself: full, gone, not allowed."""
    assert isinstance(problem, OSError)
    if isinstance(problem, FileNotFoundError):
        return _error(problem.strerror or str(problem), 404)
    name = os.path.basename(str(problem.filename)) if problem.filename else ""
    return _error(f"{problem.strerror or problem}{': ' if name else ''}{name}", 507)
