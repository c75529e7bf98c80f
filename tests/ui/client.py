"""A client that sends exactly what it is told."""

import http.client
import json
from urllib.parse import urlencode, urlsplit


class Client:
    """Speaks to a server as a browser that opened its address would."""

    def __init__(self, server):
        self.port = server.port
        self.address = urlsplit(server.url)
        _, headers, _ = self.raw(f"/?{self.address.query}")
        self.cookie = headers["set-cookie"].partition(";")[0]

    def raw(self, path, method="GET", body=None, **headers):
        """Send a request without a cookie; headers are named with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="host" in named)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        for name, value in named.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def get(self, what, **arguments):
        """Ask for data; the status and the value."""
        query = urlencode(arguments, doseq=True)
        status, _, body = self.raw(f"/api/{what}?{query}", cookie=self.cookie)
        return status, json.loads(body)


def caught_up(ask, what):
    """Ask as the page does, again and again while the answer is behind."""
    found = ask(what)
    while found["behind"]:
        found = ask(what)
    return found


def post(client, body, **headers):
    """Ask the page to do something, as its own script does; status and answer."""
    own = {
        "origin": f"http://127.0.0.1:{client.port}",
        "content_type": "application/json",
        "cookie": client.cookie,
    }
    status, _, answer = client.raw("/api/act", "POST", json.dumps(body).encode(), **{**own, **headers})
    return status, json.loads(answer) if answer.startswith((b"{", b"n")) else answer


OF_TABLE = (
    *("table", "health", "schemas", "history", "rows", "partitions", "statistics", "sizes", "trend", "graph"),
    *("lags", "producer"),
)
"""What the page asks for about one table."""
