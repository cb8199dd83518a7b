"""What the server answers to others than its own page: nothing. Raw requests, without a browser."""

import http.client
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from hardsight.explorer import explore
from hardsight.explorer.server import Explorer
from hardsight.records import write_table

from .conftest import HOSTILE, audited, write_pets

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    folder = write_pets(tmp_path_factory.mktemp("pets"))
    with explore(folder, folder / "images", browser=False) as page:
        yield page


def ask(served: Explorer, path: str, body: bytes | None = None, token: str | None = "", **headers: str) -> Answer:
    """A request as the page makes it, with what is given in the place of its own headers."""
    url = urlsplit(served.url)
    if token == "":
        token = parse_qs(url.query)["token"][0]
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=20)
    sent = {"Host": url.netloc, **({"x-token": token} if token else {}), **headers}
    connection.putrequest("GET" if body is None else "POST", path, skip_host=True, skip_accept_encoding=True)
    for name, value in sent.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.putheader("Content-Length", str(len(body or b"")))
    connection.endheaders()
    if body:
        connection.send(body)
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def told(served: Explorer, path: str, body: Any = None) -> Any:
    status, _, data = ask(served, path, None if body is None else json.dumps(body).encode())
    assert status == 200, data
    return json.loads(data)


def test_only_who_has_the_address_is_answered(served: Explorer) -> None:
    for path in ("/", "/api/table", "/api/picture?row=0", "/api/news"):
        assert ask(served, path)[0] == 200
        for token in (None, "x", "é"):
            assert ask(served, path, token=token and token.encode().decode("latin-1"))[0] == 403
    assert ask(served, "/page/app.js", token=None)[0] == 200


def test_other_hosts_and_origins_are_not_answered(served: Explorer) -> None:
    port = urlsplit(served.url).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil.example", ""):
        assert ask(served, "/api/table", Host=host)[0] == 403
    assert ask(served, "/api/table", Host=f"localhost:{port}")[0] == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", "http://127.0.0.1:1"):
        assert ask(served, "/api/table", Origin=origin)[0] == 403
    assert ask(served, "/api/table", Origin=f"http://127.0.0.1:{port}")[0] == 200


def test_kept_pictures_that_are_texts_are_no_pictures(tmp_path: Path) -> None:
    folder = write_pets(tmp_path)
    write_table(folder / "thumbnails.parquet", pa.table({"id": ["1", "2"], "png": ["text", None]}))
    with explore(folder, browser=False) as page:
        assert ask(page, "/api/picture?row=1&side=160")[0] >= 400
        assert ask(page, "/api/table")[0] == 200


def test_nothing_inline_nothing_from_elsewhere_nothing_kept(served: Explorer) -> None:
    for path in ("/", "/page/app.js", "/api/table", "/api/nothing"):
        headers = ask(served, path)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path",
    ["/page/../server.py", "/page/%2e%2e/server.py", "/page/..%2fserver.py", "/etc/passwd", "/api/picture?row=1000000"],
)
def test_no_other_file_is_given(served: Explorer, path: str) -> None:
    assert ask(served, path)[0] == 404


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b'{"filters": 1}', b'{"filters": []' + b" " * (1 << 18) + b"}", b"[" * 100_000,
        b'{"filters": [{"kind": "list", "columns": ["nothing"], "values": [1]}]}',
        b'{"filters": [{"kind": "brush", "columns": ["loss"], "values": [9, 1]}]}',
        b'{"filters": [{"kind": "lasso", "columns": ["x", "y"], "values": [[0, 0], [1, 1], [NaN, 0]]}]}',
        b'{"filters": [], "histograms": ["id"]}', b'{"filters": [], "map": {"view": [0, 0, 0, 0]}}',
        b'{"filters": [], "map": {"view": [0, 0, 1, 1], "x": "text", "y": "x"}}',
    ],
)  # fmt: skip
def test_a_request_of_anything_else_is_one_sentence(served: Explorer, body: bytes) -> None:
    status, _, data = ask(served, "/api/counts", body)
    assert status == 400
    sentence = json.loads(data)["error"]
    assert 0 < len(sentence) <= 2000
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "body",
    [
        {"rows": [0], "action": "burn"}, {"rows": [0], "action": "relabel", "label": "zebra"},
        {"rows": [-1], "action": "drop"}, {"rows": ["0"], "action": "drop"}, {"rows": [10**6], "action": "drop"},
        {"rows": [0] * 10_001, "action": "drop"},
        {"filters": [], "count": 1, "action": "drop"}, {"action": "drop"},
    ],
)  # fmt: skip
def test_a_decision_that_cannot_be_is_rejected_and_nothing_is_written(served: Explorer, body: Any) -> None:
    assert ask(served, "/api/decide", json.dumps(body).encode())[0] == 400
    assert not (served._answers.source.decisions / "marks.jsonl").exists()


def test_only_pictures_below_the_root_are_shown(tmp_path: Path) -> None:
    folder = write_pets(tmp_path / "pets")
    images = folder / "images"
    secret = tmp_path / "secret.png"
    secret.write_bytes(next(images.rglob("*.png")).read_bytes())
    (images / "link.png").symlink_to(secret)
    (images / "text.png").write_text("no picture")
    (images / "pipe.png").unlink(missing_ok=True)
    os.mkfifo(images / "pipe.png")
    paths = ["../../secret.png", str(secret), "link.png", "text.png", "pipe.png", "gone.png", "", "\0", "a/../../x.png"]
    good = next(path for path in images.rglob("*.png") if path.parent != images)
    paths += [str(good.relative_to(images)), str(good)]
    write_table(folder / "table.parquet", audited(len(paths), path=paths))
    with explore(folder, images, browser=False) as served:
        found = [ask(served, f"/api/picture?row={row}&side=160")[0] for row in range(len(paths))]
    assert all(400 <= one < 500 for one in found[:-2]), found
    assert found[-2:] == [200, 200]


def test_a_table_that_grows_is_said_to_have_changed(tmp_path: Path) -> None:
    folder = write_pets(tmp_path / "pets")
    with explore(folder, browser=False) as served:
        assert told(served, "/api/news")["problem"] == ""
        with (folder / "table.parquet").open("ab") as file:
            file.write(b"more")
        assert "changed" in told(served, "/api/news")["problem"]
        assert told(served, "/api/rows", {"filters": [], "by": "loss"})["count"] == 300
    with pytest.raises(ValueError, match=r"table\.parquet"):
        explore(folder, browser=False)


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    folder = write_pets(tmp_path / "pets")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port.*{port}"):
            explore(folder, port=port, browser=False)


def test_columns_with_names_of_the_pages_own_do_no_harm(tmp_path: Path) -> None:
    names = [
        "row",
        "mark",
        "spans",
        "scores",
        "neighbours",
        "history",
        "trajectory",
        "heat",
        "__proto__",
        HOSTILE,
        "count",
    ]
    columns = {"id": ["a", "b"]} | {name: [f"{name} 1", f"{name} 2"] for name in names} | {"score": [1.0, 2.0]}
    write_table(tmp_path / "scores.parquet", pa.table(columns))
    with explore(tmp_path / "scores.parquet", browser=False, show=[HOSTILE]) as served:
        rows = told(served, "/api/rows", {"filters": [], "by": "score"})["rows"]
        assert [(one["row"], one["mark"], one[HOSTILE]) for one in rows] == [
            (0, None, f"{HOSTILE} 1"), (1, None, f"{HOSTILE} 2"),
        ]  # fmt: skip
        sample = told(served, "/api/sample?row=1")
        assert (sample["row"], sample["neighbours"], sample["heat"]) == (1, [], False)
    with pytest.raises(ValueError, match="show"):
        explore(tmp_path / "scores.parquet", browser=False, show=["nothing"])
