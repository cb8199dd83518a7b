"""Shards in a bucket: read over HTTP in the protocol of S3, from a server of this process that speaks its few calls."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pyarrow.fs as pafs
import pytest

from hardsight.files.parquet import MANIFEST_FILE
from tests.engines.test_shards import SIZES, expected, read, rejected, run, source, write, written

pytestmark = pytest.mark.skipif(not hasattr(pafs, "S3FileSystem"), reason="this pyarrow was built without S3")

__all__ = ["expected", "source"]


class Bucket(ThreadingHTTPServer):
    """The files of a folder as the objects of the bucket `b`, a few to a page of the list."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.folder = folder
        self.asked: list[tuple[str, str | None]] = []
        # How often an object is answered with a server's error before it is given.
        self.failures = 0

    def address(self, place: str, who: str = "") -> str:
        options = f"endpoint_override=127.0.0.1:{self.server_port}&scheme=http&region=us-east-1"
        return f"s3://{who}b/{place}?{options}"


class _Answers(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._object(body=False)

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" in asked:
            self._list({name: values[0] for name, values in asked.items()})
        else:
            self._object(body=True)

    def _object(self, *, body: bool) -> None:
        key = unquote(urlsplit(self.path).path).removeprefix("/b").lstrip("/")
        file, span = self.server.folder / key, self.headers["Range"]
        self.server.asked.append((key, span))
        if not key:
            self._answer(200)
        elif not file.is_file():
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if body else b"")
        elif self.server.failures:
            self.server.failures -= 1
            self._answer(503, b"<Error><Code>SlowDown</Code></Error>" if body else b"")
        else:
            data = file.read_bytes()
            first, _, last = (span or "bytes=0-").removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last) + 1 if last else None]
            about = {"Last-Modified": self.date_time_string(int(file.stat().st_mtime)), "ETag": '"e"'}
            if span:
                about["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
            self._answer(206 if span else 200, part, about, body=body)

    def _list(self, asked: dict[str, str]) -> None:
        """ListObjectsV2: keys below a prefix, those behind a further delimiter as one, some at a time."""
        prefix, delimiter, after = (asked.get(name, "") for name in ("prefix", "delimiter", "continuation-token"))
        keys = sorted(
            str(one.relative_to(self.server.folder)) for one in self.server.folder.rglob("*") if one.is_file()
        )
        keys = [key for key in keys if key.startswith(prefix) and key > after]
        shown = keys[: min(2, int(asked.get("max-keys", 1000)))]
        items, folders = "", {}
        for key in shown:
            head, found, _ = key.removeprefix(prefix).partition(delimiter) if delimiter else (key, "", "")
            if found:
                folders[prefix + head + delimiter] = None
                continue
            state = (self.server.folder / key).stat()
            # To the millisecond, as many servers list it; of one object they say whole seconds.
            changed = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(state.st_mtime)) + ".789Z"
            items += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{changed}</LastModified>"
                f"<ETag>e</ETag><Size>{state.st_size}</Size></Contents>"
            )
        items += "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders)
        more = len(keys) > len(shown)
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
        said = f"<KeyCount>{len(shown)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        self._answer(200, f"<ListBucketResult>{said}{items}</ListBucketResult>".encode())

    def _answer(self, code: int, data: bytes = b"", about: dict[str, str] | None = None, *, body: bool = True) -> None:
        self.send_response(code)
        for name, value in (about or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "bucket").mkdir()
    with Bucket(tmp_path / "bucket") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrow-stream", "safetensors"])
def test_a_bucket_gives_the_scores_of_a_folder(kind: str, bucket: Bucket, expected: Path, tmp_path: Path) -> None:
    write(bucket.folder / "deep" / "in", kind)
    found = run(bucket.address("deep/in"), tmp_path / "out")
    assert (found.rows, found.made) == (sum(SIZES), len(SIZES))
    assert read(tmp_path / "out").equals(read(expected))
    assert run(bucket.address("deep/in"), tmp_path / "out").made == 0


def test_a_glob_in_a_bucket_and_two_workers(bucket: Bucket, expected: Path, tmp_path: Path) -> None:
    write(bucket.folder / "in")
    assert run(bucket.address("in/part-[01].parquet"), tmp_path / "glob").shards == 2
    assert run(bucket.address("in"), tmp_path / "out", workers=2).made == len(SIZES)
    assert read(tmp_path / "out").equals(read(expected))


def test_parts_are_asked_for_and_not_the_whole(bucket: Bucket, tmp_path: Path) -> None:
    write(bucket.folder / "in")
    run(bucket.address("in"), tmp_path / "out")
    spans = [span for key, span in bucket.asked if span is not None]
    assert spans
    assert all("=0-" not in span or not span.endswith("-") for span in spans)


def test_a_bucket_that_stumbles_is_asked_again(bucket: Bucket, expected: Path, tmp_path: Path) -> None:
    write(bucket.folder / "in")
    bucket.failures = 2
    run(bucket.address("in"), tmp_path / "out")
    assert read(tmp_path / "out").equals(read(expected))


def test_what_is_not_in_a_bucket_or_changes_there_is_named(bucket: Bucket, tmp_path: Path) -> None:
    (bucket.folder / "other").mkdir()
    (bucket.folder / "other" / "file").touch()
    rejected("must be a folder or a glob of shards", bucket.address("nothing"), tmp_path / "out")
    write(bucket.folder / "in")
    run(bucket.address("in"), tmp_path / "out")
    (bucket.folder / "in" / "part-1.parquet").unlink()
    rejected("shard part-1.parquet is no longer in", bucket.address("in"), tmp_path / "out")
    (bucket.folder / "in" / "part-0.parquet").write_bytes(b"PAR1 no")
    rejected("part-0.parquet is truncated or is not a Parquet file", bucket.address("in"), tmp_path / "new")
    assert not written(tmp_path / "new")


def test_a_password_in_an_address_is_written_nowhere(bucket: Bucket, tmp_path: Path) -> None:
    write(bucket.folder / "in")
    run(bucket.address("in", "someone:secret@"), tmp_path / "out")
    assert "secret" not in (tmp_path / "out" / MANIFEST_FILE).read_text()
    with pytest.raises((ValueError, OSError)) as told:
        run(bucket.address("none", "someone:secret@"), tmp_path / "o")
    assert "secret" not in str(told.value)
