"""How Spark's JVM starts, and why it did not: its own words, and what is looked at beforehand because it says nothing of it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

from anabranch.errors import InvalidInputError, NotFoundError

_DIRS_VARIABLE: Final = "SPARK_LOCAL_DIRS"
_DIRS: Final = "spark.local.dir"
_LINES: Final = 200
"""Of what the JVM writes to its standard error, as many of the last lines are kept."""
_SECONDS: Final = 2.0
_CAUSES: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r'^Exception in thread "[^"]*" (?P<cause>.+)$',
        r"^(?P<cause>(?:Invalid|Unrecognized|Unsupported|Conflicting|Too small) .+)$",
        r"^Error occurred during initialization of VM\s+(?P<cause>.+)$",
        r"^Error: (?P<cause>(?!Could not create the Java|A fatal exception|A JNI error).+)$",
    )
)
_CLASS: Final = re.compile(r"^(?:[\w$]+\.)+[\w$]+: ")


@contextmanager
def no_jvm_left() -> Iterator[None]:
    """End a JVM that is being started in the block if the block is broken off: it would wait for ever for whoever started it.

    PySpark removes the file in which the JVM is to say where it is reached; the JVM fails to write it, and does not end of that.
    """
    from pyspark import SparkContext, java_gateway

    gateway: Any = java_gateway
    started: list[subprocess.Popen[bytes]] = []
    popen = gateway.Popen

    def noting(*words: Any, **how: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*words, **how))
        return started[-1]

    gateway.Popen = noting
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and SparkContext._gateway is None:  # noqa: SLF001 - nobody else tells
            for process in started:
                process.kill()
        raise
    finally:
        gateway.Popen = popen


def check_local_folders(conf: Mapping[str, object]) -> None:
    """Raise `InvalidInputError` if none of the folders can be made in which Spark is told to keep its files.

    Spark ends its JVM in the middle of its start then, and what it logs of that is not shown.
    """
    told = os.environ.get(_DIRS_VARIABLE) or str(conf.get(_DIRS) or "")
    folders = [folder.strip() for folder in told.split(",") if folder.strip()]
    if not folders or any(map(_can_be_made, folders)):
        return
    name = _DIRS_VARIABLE if os.environ.get(_DIRS_VARIABLE) else _DIRS
    raise InvalidInputError(
        f"Spark has no place for its files on this machine: {name} is {told}, which is not there and cannot be made, or may not "
        "be written to",
        hint=f"name a folder on a disk with space, in {_DIRS_VARIABLE} or --conf {_DIRS}=..., or leave it out.",
    )


def _can_be_made(folder: str) -> bool:
    place = Path(folder).absolute()
    there = next((one for one in (place, *place.parents) if one.exists()), place)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return there.is_dir() and os.access(place, os.W_OK | os.X_OK)


@contextmanager
def silent_start() -> Iterator[None]:
    """Keep from the terminal what the JVM writes that is started in the block; if it does not start, raise its cause.

    Raises `InvalidInputError` with the cause, where the JVM told one; else what was raised.
    """
    reading, writing = os.pipe()
    lines: deque[str] = deque(maxlen=_LINES)
    listening = Thread(target=_listen, args=(reading, lines), name="anabranch-jvm-errors", daemon=True)
    listening.start()
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(writing)
    except Exception as error:
        if not _is_of_start(error):
            raise
        listening.join(_SECONDS)  # the JVM that has ended holds the other end no more
        cause = cause_in("\n".join(lines))
        if cause is None:
            raise
        raise InvalidInputError(
            f"Spark's JVM did not start: {cause}",
            hint="mend the setting (--conf, spark-defaults.conf, SPARK_SUBMIT_OPTS); sizes are like spark.driver.memory=2g.",
        ) from error


def _listen(reading: int, lines: deque[str]) -> None:
    """Take what a JVM writes for as long as it lives: of a pipe that is full it would wait."""
    with os.fdopen(reading, "r", encoding="utf-8", errors="replace") as written:
        for line in written:
            lines.append(line.rstrip("\n"))


def _is_of_start(error: Exception) -> bool:
    """Whether no JVM could be reached."""
    return "JAVA_GATEWAY_EXITED" in str(error) or isinstance(error, OSError)


def cause_in(text: str) -> str | None:
    """Return the cause in what a JVM wrote that did not start; None if it tells none."""
    for pattern in _CAUSES:
        found = pattern.search(text)
        if found is not None:
            return _CLASS.sub("", found["cause"].strip()).removesuffix(".")
    return None


_MASTER_SECONDS = 3.0
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
        with socket.create_connection((host, port), timeout=_MASTER_SECONDS) as connection:
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
