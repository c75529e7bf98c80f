"""Who may ask the page, and what comes back from hostile requests."""

import pytest

from tests.ui.client import Client


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


def test_it_listens_on_this_machine_only(page):
    import socket

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
