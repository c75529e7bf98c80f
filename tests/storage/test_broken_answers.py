"""Reads whose answers break off, from a server that speaks as much of S3 as a read needs; objects too large to be copied."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from anabranch.errors import StorageError
from anabranch.runtime import Runtime
from anabranch.storage import objects, open_storage
from anabranch.storage.object_options import Clients
from anabranch.storage.objects import ObjectStorage
from tests.support.lengths import first_short

CONTENT = bytes(range(256)) * 400


class Impatient:
    """Waits for nothing, and remembers for how long it should have."""

    def __init__(self):
        self.waits = []

    def sleep(self, seconds):
        self.waits.append(seconds)


@pytest.fixture
def server():
    """Answers so many reads with half of what they promise, and all others in full."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = CONTENT
            asked = self.headers.get("Range")
            if asked:
                first, last = asked.removeprefix("bytes=").split("-")
                found = CONTENT[int(first) : int(last) + 1]
                self.send_response(206)
                self.send_header(
                    "Content-Range", f"bytes {first}-{int(first) + len(found) - 1}/{len(CONTENT)}"
                )
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
            self.send_header("ETag", '"x"')
            self.end_headers()
            self.server.reads += 1
            if self.server.broken > 0:
                self.server.broken -= 1
                self.wfile.write(found[: len(found) // 2])
                self.close_connection = True
            else:
                self.wfile.write(found)

        def log_message(self, *_):
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.broken = made.reads = 0
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def storage(server):
    options = {
        "s3.endpoint": f"http://127.0.0.1:{server.server_port}",
        "s3.anonymous": "true",
        "s3.retries": "0",
    }
    return open_storage("s3://bucket/folder", options, runtime=Runtime(sleeper=Impatient()))


READS = {
    "whole": lambda s: s.get("x") == CONTENT,
    "range": lambda s: s.get_range("x", 1000, 5000) == CONTENT[1000:6000],
    "file": lambda s: s.open_input("x", size=len(CONTENT)).read() == CONTENT,
}


@pytest.mark.parametrize("read", first_short(READS, 2))
@pytest.mark.parametrize("broken", [0, 1, 3])
def test_reads_whose_answers_break_off_are_repeated(server, storage, read, broken):
    server.broken = broken
    assert READS[read](storage)
    waits = storage._runtime.sleeper.waits
    assert len(waits) <= broken
    assert waits == sorted(waits), "each wait is longer than the one before"


@pytest.mark.parametrize("read", first_short(READS))
def test_they_are_not_repeated_for_ever(server, storage, read):
    server.broken = 1_000
    with pytest.raises(StorageError, match="cannot read s3://bucket/folder/x") as caught:
        READS[read](storage)
    assert caught.value.retryable
    assert server.reads < 30


@pytest.mark.long
def test_objects_that_are_too_large_to_be_copied_are_moved_in_pieces(monkeypatch):
    """S3 copies up to 5 GiB at once; here the limit is lower, and the refusal is what S3 says."""
    store = MemoryStore()
    storage = ObjectStorage(Clients(store, store), url="mem://x")
    large, small = bytes(20 << 20), b"small"
    storage.put_many({"large": large, "small": small})
    copy = obstore.copy

    def refusing(made, source, target):
        if obstore.head(made, source)["size"] > 1 << 20:
            raise GenericError(
                "400 Bad Request: InvalidRequest: The specified copy source is larger than the maximum"
            )
        return copy(made, source, target)

    monkeypatch.setattr(objects.obstore, "copy", refusing)
    monkeypatch.setattr(objects, "_LARGEST_COPY", 1 << 20)
    storage.move_many({"large": "a/large", "small": "a/small", "absent": "a/absent"})
    assert sorted(info.path for info in storage.list(recursive=True)) == ["a/large", "a/small"]
    assert storage.get("a/large") == large
    monkeypatch.setattr(objects, "_LARGEST_COPY", 5 << 30)
    with pytest.raises(StorageError, match="InvalidRequest"):
        storage.move_many({"a/large": "b"})
    assert storage.get("a/large") == large
