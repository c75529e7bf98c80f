"""Carries state over: a new query's checkpoint is made from another query's after one of its batches."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from anabranch.jobs.state.file_logs import carry_log, logs_of_files
from anabranch.jobs.state.held import HeldState
from anabranch.lineage.spark_offsets import parse_batch_offsets
from anabranch.storage import files
from anabranch.storage.protocol import Storage
from anabranch.streaming.offsets import Offset, is_offset

Moved = Callable[[Offset], Offset]

_PART_BYTES = 8 << 20


def carry(held: HeldState, target: Storage, moved: Moved) -> None:
    """Copy the state after a batch into a checkpoint in which no query has begun.

    Args:
        target: rooted at the new checkpoint's folder. What an earlier try has left there is replaced.
        moved: maps a position to the same one on the table that the new query reads.

    Raises:
        NotFoundError: a file of it was cleaned up meanwhile, or a position has no counterpart.
        InvalidInputError, StorageError.
    """
    wipe(target)
    offsets = held.offsets(held.batch)
    assert offsets is not None, "its state was found with it"
    logs = logs_of_files(parse_batch_offsets(offsets))
    copy_objects(held.folder, target, (path for path in held.paths if not _is_of_log(path, logs)))
    for source, last in logs.items():
        carry_log(held.folder, target, source, last)
    for batch in (held.batch - 1, held.batch) if held.batch else (held.batch,):
        text = held.offsets(batch)
        assert text is not None, "its state was found with it"
        target.put(f"offsets/{batch}", moved_offsets(text, moved).encode())


def wipe(target: Storage) -> None:
    """Remove what Spark would find in a checkpoint in which no query has begun."""
    for folder in ("offsets", "commits", "state", "sources"):
        target.delete_folder(folder)


def moved_offsets(text: str, moved: Moved) -> str:
    """Rewrite an offset log file, mapping positions in our tables to those that are read now."""
    lines = text.split("\n")
    version = lines[0].strip()
    for number, line in enumerate(lines[2:], 2):
        source, sign, value = line.partition(":") if version == "v2" else ("", "", line)
        if not value.startswith("{"):
            continue
        found = json.loads(value)
        if is_offset(found):
            lines[number] = source + sign + json.dumps(moved(Offset.from_dict(found)).to_dict())
    return "\n".join(lines)


def copy_objects(source: Storage, target: Storage, paths: Iterable[str]) -> None:
    """Copy immutable objects under the same names; on one local file system they are linked, which copies nothing.

    They are durable when this returns. However large they are, little of them is in memory at a time.

    Raises `NotFoundError`: one is not there any more.
    """
    here, there = _local(source), _local(target)
    linked: set[Path] = set()
    for path in paths:
        if here is not None and there is not None and _link(here / path, there / path):
            linked.add((there / path).parent)
            continue
        with source.open_input(path) as content, target.open_output(path) as copy:
            while part := content.read(_PART_BYTES):
                copy.write(part)
    for folder in linked:
        _sync_up_to(folder, there)


def _is_of_log(path: str, logs: Collection[str]) -> bool:
    parts = path.split("/")
    return parts[0] == "sources" and parts[1] in logs


def _local(storage: Storage) -> Path | None:
    return Path(unquote(urlsplit(storage.url).path)) if storage.url.startswith("file:") else None


def _link(source: Path, target: Path) -> bool:
    """Link a file; False if it does not exist, which the store itself should report, or cannot be linked."""
    if not source.is_file():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _sync_up_to(folder: Path, root: Path | None) -> None:
    """Make names in a folder durable, and the folders in which it lies."""
    files.sync_folder(str(folder))
    if root is not None and folder != root and root in folder.parents:
        _sync_up_to(folder.parent, root)
