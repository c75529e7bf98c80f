"""Temporary folders of a process, removed at its end; those of killed processes by the next one."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

LEFT_BY_OTHERS: Final = ("anabranch-session-", "anabranch-spark-", "anabranch-lineage-")
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
