"""A schema registry in memory that speaks the part of the REST interface which clients need to write and read values."""

import contextlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        subject = re.match(r"/subjects/([^/?]+)", self.path)[1]
        schema = {"schemaType": "AVRO", **body}
        schemas = self.server.schemas
        if schema not in schemas:
            schemas.append(schema)
        number = schemas.index(schema) + 1
        self._answer(200, {"id": number, "version": number, "subject": subject, **schema})

    def do_GET(self):
        found = re.match(r"/schemas/ids/(\d+)", self.path)
        number = int(found[1]) if found else 0
        if 0 < number <= len(self.server.schemas):
            self._answer(200, self.server.schemas[number - 1])
        else:
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def _answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running_registry():
    """Its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.schemas = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
