"""A store that is misconfigured is told by its cause and with the next step, quickly, whatever is asked of it first."""

import http.server
import socket
import threading
import time
from contextlib import contextmanager

import pytest

import anabranch
from anabranch.errors import NotFoundError, StorageError
from anabranch.storage import open_storage
from tests.support.lengths import first_short

XML = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code><Message>{}</Message></Error>'
QUICK = {"s3.retries": "1", "s3.connect-timeout": "1 s", "s3.timeout": "1 s"}


@contextmanager
def answering(status, code, message):
    """A server that gives every request this answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = XML.format(code, message).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_PUT = do_HEAD = do_POST = do_DELETE = do_GET

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def told(url, options, call):
    """The error of a call, which comes in time."""
    began = time.monotonic()
    with pytest.raises(StorageError) as raised:
        call(url, options)
    assert time.monotonic() - began < 10
    return raised.value


def listed(url, options):
    anabranch.connect(url, options=options).tables("db")


def read(url, options):
    anabranch.connect(url, options=options).table("db.t").scan().to_arrow()


def written(url, options):
    open_storage(url, options).put("a", b"x")


CALLS = pytest.mark.parametrize("call", [listed, read, written])


@pytest.mark.s3
@CALLS
@pytest.mark.parametrize(
    ("change", "cause", "hint"),
    [
        ({"s3.secret-key": "no"}, "the secret key does not belong to the access key", "s3.secret-key"),
        ({"s3.access-key": "nobody"}, "the store does not know the access key", "s3.access-key"),
        ({"s3.endpoint": "http://127.0.0.1:1"}, "nobody listens at 127.0.0.1:1", "s3.endpoint"),
        ({"s3.endpoint": "http://no-such-host.invalid"}, "there is no host of the name", "s3.endpoint"),
        ({"s3.endpoint": "https://{place}"}, "{place} does not speak TLS", "http://"),
        ({"s3.endpoint": "{place}"}, "{place} does not speak TLS", "http://"),
    ],
)
def test_a_real_server(s3_server, call, change, cause, hint):
    place = s3_server.endpoint.removeprefix("http://")
    change = {key: value.format(place=place) for key, value in change.items()}
    error = told(s3_server.new_url(), {**s3_server.options, **QUICK, **change}, call)
    assert cause.format(place=place) in str(error)
    assert hint in error.hint


@CALLS
@pytest.mark.parametrize(
    ("answer", "cause", "hint"),
    first_short(
        [
            ((503, "SlowDown", "Please reduce your request rate."), "asks for fewer requests", "s3.retries"),
            (
                (500, "InternalError", "We encountered an internal error."),
                "a trouble of its own",
                "try again later",
            ),
            (
                (403, "RequestTimeTooSkewed", "The difference is too large."),
                "the clock of this machine",
                "clock",
            ),
            (
                (
                    400,
                    "AuthorizationHeaderMalformed",
                    "the region 'us-east-1' is wrong; expecting 'eu-north-1'",
                ),
                "the bucket lies in the region eu-north-1",
                "s3.region=eu-north-1",
            ),
            ((403, "AccessDenied", "Access Denied"), "the store does not allow it", "write and delete"),
            (
                (400, "ExpiredToken", "The provided token has expired."),
                "the session token has expired",
                "aws sso",
            ),
            (
                (404, "NoSuchBucket", "The specified bucket does not exist"),
                "there is no such bucket",
                "create",
            ),
        ],
        4,
    ),
)
def test_what_servers_say(call, answer, cause, hint):
    with answering(*answer) as endpoint:
        keys = {"s3.endpoint": endpoint, "s3.access-key": "a", "s3.secret-key": "secret-of-mine"}
        error = told("s3://bucket/lake", {**keys, **QUICK}, call)
    assert cause in str(error)
    assert hint in error.hint
    assert "secret-of-mine" not in str(error)


@pytest.mark.parametrize("call", first_short([listed, read, written]))
def test_a_server_that_never_answers(call):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        keys = {"s3.endpoint": f"http://{place}", "s3.access-key": "a", "s3.secret-key": "b"}
        error = told("s3://bucket/lake", {**keys, **QUICK}, call)
    assert f"{place} does not answer in time" in str(error)
    assert "s3.timeout" in error.hint


@pytest.mark.s3
@pytest.mark.parametrize("name", ["NoSuchBucket", "503 Service Unavailable", "x - ConnectionRefused", "429"])
def test_names_of_objects_are_not_taken_for_causes(s3_server, name):
    with pytest.raises(NotFoundError):
        open_storage(s3_server.new_url(), s3_server.options).get(name)
