"""Messages from the processes of a stream's sources and sink to the process that started the stream.

Spark commits the batches of a Python sink in short-lived processes of their own, on the driver's machine, and asks
a source for its offsets in another. They have no session that could run a compaction or end a query, so they leave
a notice in a folder that the session's process made, which only this user can read. If the driver is another machine, as it may be with Spark Connect,
the folder is not there, and no notice is left.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch.format.text.json_object import JsonObject
from anabranch.kernel.log.context import TableContext
from anabranch.spark.context.as_json import context_from, context_values
from anabranch.storage.open import open_storage, settings_of
from anabranch.storage.protocol import Storage

_LOG = logging.getLogger(__name__)
_PREFIX = "anabranch-session-"
_SUFFIX = ".notice"


@dataclass(frozen=True)
class Notice:
    """Message that a query has committed a batch to a branch of a table."""

    query: str
    """Id of the query, the same over all its runs."""
    context: TableContext
    options: Mapping[str, str]
    """Options of the write, which override the table's."""
    checkpoint: Storage | None = None
    """Folder of the query's checkpoint, to record the names of its sources in; None if there is nothing to record."""

    @property
    def key(self) -> tuple[str, str, str | None]:
        """Query, table location and branch: only the last notice per key matters."""
        return self.query, self.context.storage.url, self.context.branch


@dataclass(frozen=True)
class BoundReached:
    """Message that some query has read a branch of a table up to its bound."""

    table_uuid: str
    branch_uuid: str

    @property
    def key(self) -> tuple[str, str]:
        """Table and branch: one notice per key is enough."""
        return self.table_uuid, self.branch_uuid


def make_folder() -> Path:
    """Create a folder for notices to this process, which other users can neither read nor write."""
    remove_abandoned(Path(tempfile.gettempdir()), (_PREFIX,))
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def leave(notice: Notice | BoundReached, folder: Path) -> None:
    """Put a notice into the folder, replacing an earlier one of the same key. Never raises."""
    name = hashlib.sha256(repr(notice.key).encode()).hexdigest()[:32]
    draft = folder / f"{name}.{os.getpid()}"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
            file.write(json.dumps(_values(notice)).encode())
        draft.replace(folder / f"{name}{_SUFFIX}")
    except FileNotFoundError:
        _LOG.debug("the session's process is on another machine or has ended: no notice reaches it")
    except Exception as error:  # the rows are there, whatever becomes of this
        _LOG.debug("no notice was left: %s", error)
        with suppress(OSError):
            draft.unlink()


def take(folder: Path) -> list[Notice | BoundReached]:
    """Return the notices in the folder and remove them from it.

    One that is put there between reading and removing is lost, but what it tells of is in the table by then, and
    whoever took the earlier one looks there afterwards. Raises `FileNotFoundError` if the folder is gone.
    """
    found: list[Notice | BoundReached] = []
    for path in [Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(_SUFFIX)]:
        data = path.read_bytes()
        path.unlink()
        try:
            found.append(_notice(JsonObject.parse(data, path=str(path))))
        except Exception as error:  # a Spark Connect server may have another version of us
            _LOG.warning("a notice of a stream cannot be read, so nothing is done about it: %s", error)
    return found


def _values(notice: Notice | BoundReached) -> dict[str, Any]:
    """Return a notice as a JSON object, including the credentials of its locations."""
    if isinstance(notice, BoundReached):
        return {"table": notice.table_uuid, "branch": notice.branch_uuid}
    place = notice.checkpoint
    return {
        "query": notice.query,
        "context": context_values(notice.context),
        "settings": dict(settings_of(notice.context.storage)),
        "options": dict(notice.options),
        "checkpoint": None if place is None else place.url,
        "checkpointSettings": None if place is None else dict(settings_of(place)),
    }


def _notice(content: JsonObject) -> Notice | BoundReached:
    if "query" not in content.values:
        return BoundReached(content.text("table"), content.text("branch"))
    checkpoint = content.optional_text("checkpoint")
    return Notice(
        content.text("query"),
        context_from(content.part("context"), content.text_map("settings")),
        content.text_map("options"),
        None
        if checkpoint is None
        else open_storage(checkpoint, content.optional_text_map("checkpointSettings")),
    )


JAVA_FOLDER: Final = "anabranch-java-"
"""Prefix of the folder of compiled classes that executors fetch."""
LEFT_BY_OTHERS: Final = ("anabranch-session-", "anabranch-spark-", "anabranch-lineage-", JAVA_FOLDER)
"""Prefixes of names that go on with the number of the process."""
_MADE: dict[str, Path] = {}


def folder_of_process(prefix: str) -> Path:
    """Return a folder that other users can neither read nor write, the same one for the life of this process."""
    found = _MADE.get(prefix)
    if found is None or not found.is_dir():
        found = _MADE[prefix] = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))
        atexit.register(partial(_remove, found, os.getpid()))
    return found


def remove_abandoned(parent: Path, prefixes: tuple[str, ...] = LEFT_BY_OTHERS) -> None:
    """Remove the folders of this user's killed processes: they take space, and may contain credentials."""
    if os.name != "posix":  # elsewhere one cannot ask for a process by a signal that does nothing
        return
    for prefix in prefixes:
        for folder in parent.glob(f"{prefix}*-*"):
            pid = folder.name.removeprefix(prefix).partition("-")[0]
            with suppress(OSError, ValueError):
                if folder.stat(follow_symlinks=False).st_uid == os.getuid() and not _is_alive(int(pid)):
                    shutil.rmtree(folder, ignore_errors=True)


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # and not a process that was forked from it
        shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True
