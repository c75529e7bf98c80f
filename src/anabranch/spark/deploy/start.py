"""Why Spark's JVM did not start: its own words, and what is looked at beforehand because it says nothing of it."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from anabranch.errors import InvalidInputError

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
