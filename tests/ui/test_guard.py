"""Who may ask the page, and what comes back from hostile requests."""

import http.client
import logging
import socket
import time
from contextlib import ExitStack, closing, suppress

import pytest

from anabranch.ui.answers import ANSWERS
from anabranch.ui.app import MOST_STREAMS
from anabranch.ui.connections import MOST_WAITING
from tests.ui.client import Client
from tests.ui.conftest import serving


@pytest.fixture(scope="module")
def client(page):
    return Client(page)


def test_the_printed_address_gives_a_cookie_and_takes_the_token_out_of_the_address(client):
    status, headers, _ = client.raw(f"/?{client.address.query}")
    assert (status, headers["location"]) == (303, "/")
    assert headers["set-cookie"].endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert client.address.query.partition("=")[2] not in headers["set-cookie"]


@pytest.mark.parametrize("query", ["token=wrong", "token=", "token=%ff", "token=a&token=b"])
def test_a_wrong_token_is_refused(client, query):
    status, headers, _ = client.raw(f"/?{query}")
    assert status == 403
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    "cookie", [None, "", "anabranch=1", "anabranch_{port}=wrong", "anabranch_{port}={token}"]
)
def test_data_needs_the_cookie(client, cookie):
    token = client.address.query.partition("=")[2]
    headers = {} if cookie is None else {"cookie": cookie.format(port=client.port, token=token)}
    assert client.raw("/api/lake", **headers)[0] == 401


@pytest.mark.parametrize(
    "host",
    [
        "example.org",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.example.org:{port}",
        "[::1]:{port}",
        "0.0.0.0:{port}",
    ],
)
def test_another_host_is_refused(client, host):
    """A name server that is not ours may name this machine: what matters is what the browser believes it asks."""
    assert client.raw("/api/lake", host=host.format(port=client.port), cookie=client.cookie)[0] == 421
    assert client.raw("/", host=host.format(port=client.port))[0] == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://example.org"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_another_site_is_refused_whatever_cookie_it_has(client, headers):
    assert client.raw("/api/lake", cookie=client.cookie, **headers)[0] == 403
    assert (
        client.raw(
            "/api/lake", "POST", b"{}", cookie=client.cookie, content_type="application/json", **headers
        )[0]
        == 403
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("origin", ("http://example.org", "{own}")),
        ("origin", ("{own}", "http://example.org")),
        ("sec-fetch-site", ("cross-site", "same-origin")),
        ("host", ("example.org", "{host}")),
        ("content-type", ("text/plain", "application/json")),
    ],
)
def test_a_request_that_says_two_things_about_itself_is_refused(client, name, values):
    """Which of them counts is told by nothing, so none does."""
    host = f"127.0.0.1:{client.port}"
    given = [value.format(own=f"http://{host}", host=host) for value in values]
    with closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)) as connection:
        connection.putrequest("GET", "/api/lake", skip_host=name == "host")
        connection.putheader("cookie", client.cookie)
        for value in given:
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 400


def test_what_acts_must_be_json_from_our_own_page(client):
    own = f"http://127.0.0.1:{client.port}"
    assert client.raw("/api/lake", "POST", b"{}", cookie=client.cookie)[0] == 403
    form = "application/x-www-form-urlencoded"
    assert (
        client.raw("/api/lake", "POST", b"a=1", cookie=client.cookie, origin=own, content_type=form)[0] == 415
    )
    json = "application/json"
    assert (
        client.raw("/api/lake", "POST", b"{}", cookie=client.cookie, origin=own, content_type=json)[0] == 405
    )


@pytest.mark.parametrize(
    "path",
    [
        "/..%2f..%2fpyproject.toml",
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/static/app.js",
        "/app.js%00.css",
        "/api/../index.html",
        "//etc/passwd",
        "/api/__class__",
        "/api/",
        "/app.js/",
        "/static/../app.js",
        "/licenses.txt",
        "/__init__.py",
        "/..%5c..%5cpyproject.toml",
        "/api//lake",
        "//api/lake",
        "/api/lake%00",
        "/api/lake%2f..%2fact",
    ],
)
def test_paths_lead_nowhere_else(client, path):
    status, _, body = client.raw(path, cookie=client.cookie)
    assert status in (404, 400)
    assert b"root:" not in body
    assert b"[project]" not in body


def test_every_answer_tells_the_browser_what_to_enforce(client):
    for path in ("/", "/app.js", "/app.css", "/api/lake", "/nothing", "/?token=wrong"):
        _, headers, _ = client.raw(path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers
    assert client.raw("/api/lake")[1]["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "ANYTHING"])
def test_other_methods_do_nothing(client, method):
    own = {"origin": f"http://127.0.0.1:{client.port}", "content_type": "application/json"}
    for path in ("/", "/api/lake", "/api/events?table=shop.orders"):
        status, headers, _ = client.raw(path, method, b"{}", cookie=client.cookie, **own)
        assert status == 405, path
        assert "access-control-allow-methods" not in headers


def test_head_of_what_never_ends_ends(client):
    status, headers, body = client.raw("/api/events?table=shop.orders", "HEAD", cookie=client.cookie)
    assert (status, body) == (200, b"")
    assert headers["content-type"].startswith("text/event-stream")
    status, headers, body = client.raw("/api/lake", "HEAD", cookie=client.cookie)
    assert (status, body) == (200, b"")


def test_a_socket_of_another_protocol_is_none_of_ours(client):
    asks = {
        "connection": "Upgrade",
        "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    for path in ("/", "/api/lake"):
        status, headers, _ = client.raw(path, upgrade="websocket", cookie=client.cookie, **asks)
        assert status == 200, "it is answered as what it is: a question for a page"
        assert "sec-websocket-accept" not in headers
    assert (
        client.raw(
            "/api/lake", upgrade="websocket", origin="http://example.org", cookie=client.cookie, **asks
        )[0]
        == 403
    )


def opened(client, text=""):
    """A connection on which some text was sent, and no more."""
    connection = socket.create_connection(("127.0.0.1", client.port), timeout=30)
    connection.sendall(text.encode())
    return connection


def request(client, path, method="GET", *headers):
    lines = (
        f"{method} {path} HTTP/1.1",
        f"host: 127.0.0.1:{client.port}",
        f"cookie: {client.cookie}",
        *headers,
    )
    return "\r\n".join(lines) + "\r\n\r\n"


def test_who_breaks_off_or_never_ends_a_request_holds_up_nobody(client, caplog):
    own = (
        f"origin: http://127.0.0.1:{client.port}",
        "content-type: application/json",
        "content-length: 99999",
    )
    halves = [
        "",
        "GET / HT",
        "GET /api/lake HTTP/1.1\r\nhost: ",
        request(client, "/api/act", "POST", *own) + "{",
    ]
    with caplog.at_level(logging.WARNING), ExitStack() as held:
        for number in range(120):
            held.enter_context(opened(client, halves[number % len(halves)]))
        assert client.get("about")[0] == 200
        held.close()  # all of them are broken off
        assert client.get("about")[0] == 200
    assert [record.getMessage() for record in caplog.records] == []


def test_who_opens_many_connections_shuts_out_nobody(client):
    """A process may hold few files open; without a token one can still connect."""
    with ExitStack() as held:
        idle = [held.enter_context(opened(client, "GET / HT")) for _ in range(MOST_WAITING + 60)]
        assert client.get("about")[0] == 200
        idle[0].settimeout(20)
        with suppress(ConnectionResetError):
            assert idle[0].recv(100) == b"", "who has waited longest without asking is let go"
        idle[-1].sendall(f"TP/1.1\r\nhost: 127.0.0.1:{client.port}\r\n\r\n".encode())
        assert idle[-1].recv(12) == b"HTTP/1.1 200"


@pytest.mark.long
def test_a_request_that_never_ends_is_not_waited_for(warehouse, monkeypatch):
    """Nor does a little now and then lengthen the time."""
    from anabranch.ui import connections, serve

    monkeypatch.setattr(serve, "make_protocol", lambda: connections.make_protocol(2.0))
    with serving(warehouse) as server:
        client = Client(server)
        for text in ("", "GET /", f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{client.port}\r\n\r\nGET / H"):
            with closing(opened(client, text)) as slow:
                slow.settimeout(0.2)
                begun, ended = time.monotonic(), False
                while not ended and time.monotonic() - begun < 30:
                    try:
                        ended = slow.recv(65_536) == b""
                    except TimeoutError:
                        slow.sendall(b"T")
                    except ConnectionError:
                        ended = True
                assert ended, text
        assert client.get("about")[0] == 200


def test_so_many_watch_for_changes_and_no_more(client):
    """Each of them looks at tables again and again."""
    path = "/api/events?table=shop.orders"
    with ExitStack() as held:
        watching = [held.enter_context(opened(client, request(client, path))) for _ in range(MOST_STREAMS)]
        assert {one.recv(12) for one in watching} == {b"HTTP/1.1 200"}
        assert client.raw(path, cookie=client.cookie)[0] == 503
        assert client.get("lake")[0] == 200
    for _ in range(200):  # those who went are noticed
        with closing(opened(client, request(client, path))) as again:
            if again.recv(12) == b"HTTP/1.1 200":
                return
    pytest.fail("nobody can watch any more")


def test_pages_that_come_again_at_once_are_refused_and_never_wait_mute(client):
    """As many more than there is room for, all at the same moment: each is answered, by events or by why not."""
    path, more = "/api/events?table=shop.orders", 30
    with ExitStack() as held:
        watching = [
            held.enter_context(opened(client, request(client, path))) for _ in range(MOST_STREAMS + more)
        ]
        said = [one.recv(65_536) for one in watching]
        refused = [text for text in said if text.startswith(b"HTTP/1.1 503")]
        assert more <= len(refused) < more + MOST_STREAMS
        for one, begun in zip(watching, said, strict=True):
            told, wanted = (
                begun,
                b"data: " if begun.startswith(b"HTTP/1.1 200") else b"waiting for changes already",
            )
            while wanted not in told:
                part = one.recv(65_536)
                assert part, told
                told += part
    for _ in range(3):  # nobody's place is lost, however often it is taken
        with ExitStack() as held:
            for _ in range(MOST_STREAMS // 2):
                held.enter_context(opened(client, request(client, path)))
    for _ in range(200):
        with closing(opened(client, request(client, path))) as again:
            if again.recv(12) == b"HTTP/1.1 200":
                return
    pytest.fail("nobody can watch any more")


def test_what_is_too_long_is_said(client):
    for path in (f"/{'a' * 200_000}", f"/api/lake?{'a' * 200_000}"):
        with closing(opened(client, request(client, path))) as connection:
            assert connection.recv(12) == b"HTTP/1.1 400"
    assert client.get("rows", table="a" * 60_000)[0] == 400
    assert len(client.get("facts", name=[f"a{i}.b" for i in range(3_000)])[1]) <= 60


@pytest.mark.parametrize("what", ["table", "history", "rows", "graph", "partitions", "health", "correction"])
@pytest.mark.parametrize(
    "name",
    ["../../etc.passwd", "shop.%2e%2e", "shop/orders", "shop..", ".orders", "shop.orders\0", "shop.\\..\\x"],
)
def test_names_that_are_paths_name_nothing(client, what, name):
    tag = {"tag": "good"} if what == "correction" else {}
    status, said = client.get(what, table=name, **tag)
    assert status in (400, 404), said
    for argument in {"branch", "at", "tag"}.intersection(ANSWERS[what].takes):
        assert client.get(what, table="shop.orders", **{argument: f"../{name}"})[0] in (400, 404)


def test_it_listens_on_this_machine_only(page):
    assert page.url.startswith("http://127.0.0.1:")
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {
        "127.0.0.1"
    }
    for address in own:
        with pytest.raises(OSError, match="refused|unreachable|timed out"):
            socket.create_connection((address, page.port), timeout=2)


def test_a_port_that_is_taken_is_said(page, warehouse):
    import anabranch
    from anabranch.ui.serve import Server
    from anabranch.ui.site import Site

    site = Site(anabranch.connect(str(warehouse)), warehouse=str(warehouse))
    with pytest.raises(anabranch.InvalidInputError, match=f"port {page.port} of this machine cannot be used"):
        Server(site, page.port)
