"""Check that a standalone master listens at its address: Spark itself retries for a minute and says little."""

from __future__ import annotations

import re
import socket

from anabranch.errors import NotFoundError

_SECONDS = 3.0
_PORT = 7077
_WEB_PORTS = (8080, 8081)
"""Ports of the web pages of masters and workers, which users mistake for the master's."""
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:,\s]+):(?P<port>\d{1,5})$")


def check_master(master: str | None) -> None:
    """Raise `NotFoundError` if no master of ``spark://host:port,...`` listens. Other kinds are not checked."""
    if master is None or not master.startswith("spark://"):
        return
    problems = []
    for place in master.removeprefix("spark://").split(","):
        problem = _problem(place.strip())
        if problem is None:
            return
        problems.append(problem)
    raise NotFoundError(
        f"there is no Spark master at {master}: {'; '.join(problems)}",
        hint="its own web page (port 8080) and its log show the address, spark://HOST:PORT; it is started by "
        "sbin/start-master.sh.",
    )


def _problem(place: str) -> str | None:
    """Return why no master is reached at ``host:port``; None if something listens there."""
    match = _ADDRESS.match(place)
    if match is None:
        return f"'{place}' is not HOST:PORT"
    host, port = match["host"].strip("[]"), int(match["port"])
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as connection:
            if port in _WEB_PORTS and _speaks_http(connection):
                return f"{place} is a web page, the master listens at another port ({_PORT} by default)"
            return None
    except socket.gaierror:
        return f"there is no host of the name {host}"
    except TimeoutError:
        return f"{place} does not answer"
    except ConnectionRefusedError:
        return f"nobody listens at {place}"
    except (OSError, OverflowError) as error:
        return f"{place} is not reached: {error}"


def _speaks_http(connection: socket.socket) -> bool:
    connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
    return connection.recv(5) == b"HTTP/"
