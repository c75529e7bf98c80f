"""A proxy in front of an S3 server that loses requests and answers, refuses, or lies, as told.

Requests are passed on byte for byte, their Host header too, so that signatures stay valid.
"""

import contextlib
import http.client
import http.server
import socket
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Misdeed:
    """What to do to requests that match; the first one with `times` left is applied."""

    matches: Callable[[str, str], bool]  # method, path
    times: int = 1
    lose_answer: bool = False  # the server acts on the request, the client never hears of it
    lose_request: bool = False  # the connection breaks before the server sees it
    answer: int | None = None  # the proxy answers with this status itself, and this body
    body: bytes = b""
    instead: Callable[[str, bytes], object] | None = None  # given path and content; the client hears "done"
    before: Callable[[], object] | None = None  # runs first, for whatever comes in between


@dataclass
class Proxy:
    endpoint: str
    misdeeds: list = field(default_factory=list)
    requests: list = field(default_factory=list)  # (method, path)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def arrange(self, method, end="", **what):
        """Do something to requests of this method whose path ends like this."""
        self.misdeeds.append(Misdeed(lambda m, p: m == method and p.endswith(end), **what))

    def next_misdeed(self, method, path):
        with self.lock:
            self.requests.append((method, path))
            for misdeed in self.misdeeds:
                if misdeed.times and misdeed.matches(method, path):
                    misdeed.times -= 1
                    return misdeed
        return None


@contextlib.contextmanager
def proxy_before(endpoint):
    """A running `Proxy` whose own `endpoint` stands for the server's."""
    upstream = urllib.parse.urlsplit(endpoint)
    proxy = Proxy("")

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            length = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(length)
            if len(body) < length:  # the client has given up
                return self.break_off()
            path = urllib.parse.unquote(self.path.partition("?")[0])
            misdeed = proxy.next_misdeed(self.command, path)
            if misdeed is not None:
                if misdeed.before is not None:
                    misdeed.before()
                if misdeed.lose_request:
                    return self.break_off()
                if misdeed.answer is not None:
                    return self.reply(misdeed.answer, [], misdeed.body)
                if misdeed.instead is not None:
                    misdeed.instead(path, body)
                    return self.reply(200, [("ETag", '"whatever"')], b"")
            answer = self.forward(body)
            if misdeed is not None and misdeed.lose_answer:
                return self.break_off()
            return self.reply(*answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

        def forward(self, body):
            connection = http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=30)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                response = connection.getresponse()
                return response.status, response.getheaders(), response.read()
            finally:
                connection.close()

        def reply(self, status, headers, body):
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                    self.send_header(name, value)
            length = {n.lower(): v for n, v in headers}.get("content-length", str(len(body)))
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def break_off(self):
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
