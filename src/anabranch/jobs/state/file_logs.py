"""Spark's logs of the files that a query has read: ``sources/<source>/<batch>`` in its checkpoint.

Each entry is a file with the batch of the log that read it, which is not the number of the query's batch. Now and then
``<batch>.compact`` has all entries so far, and those before are removed some time later. A source takes whatever its log does
not name for new, so a log that lacks entries would have files read a second time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from anabranch.errors import CorruptTableError, InvalidInputError, NotFoundError
from anabranch.lineage.model import LineageEntry
from anabranch.lineage.spark_offsets import BatchOffsets
from anabranch.storage.open import OBJECT_STORE_SCHEMES, open_storage
from anabranch.storage.protocol import Storage

_OFFSET: Final = "logOffset"
_COMPACT: Final = ".compact"

_BY_HAND: Final = "run the job on the branch yourself, where it reads what is there, and then this again"


def logs_of_files(offsets: BatchOffsets) -> dict[str, int]:
    """Return, by source that reads files, the last batch of its log."""
    return {source: int(value[_OFFSET]) for source, value in offsets.ends.items() if _is_of_log(value)}


def newest_logs(entries: Iterable[LineageEntry]) -> dict[str, dict[str, int]]:
    """Return, by job, the queries whose logs together name all files that it had read, each with its last batch.

    The log of a query that went on after another one has that one's entries too; that of one that began anew has not.

    Args:
        entries: of commits, oldest first.
    """
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        query, batch = entry.engine.query, entry.engine.batch
        begins = [read.start for read in entry.streams if _is_of_log(read.end)]
        if entry.is_of_no_job or query is None or batch is None or not begins:
            continue
        logs = found.setdefault(entry.job, {})
        if logs and query not in logs and None not in begins:
            logs.popitem()  # of the one before it
        logs[query] = batch
    return found


def _is_of_log(position: Any) -> bool:
    """Whether a position is one in a log of files."""
    return isinstance(position, dict) and position.keys() == {_OFFSET}


def carry_log(checkpoint: Storage, target: Storage, source: str, last: int) -> None:
    """Copy the log of a source up to a batch of it into a checkpoint in which no query has begun.

    What was read since has been joined with older entries, or is in files of its own. All go into one file, which is a form
    that Spark reads whatever its settings are.

    Raises:
        NotFoundError: entries of some batch are not there any more.
        CorruptTableError: it cannot be read.
    """
    if last < 0:
        return  # it had seen no file
    # By batch and file: one that was written anew after `maxFileAge` is in several batches.
    version, entries = "v1", dict[tuple[int, str], str]()
    for path in _paths(checkpoint, source):
        version, *lines = checkpoint.get(path).decode().split("\n")
        for batch, file, line in _entries(lines, path):
            if batch <= last:
                entries[batch, file] = line
    missing = {*range(last + 1)} - {batch for batch, _ in entries}
    if missing:
        raise NotFoundError(f"which files batch {min(missing)} of source {source} read is not known any more")
    kept = [entries[key] for key in sorted(entries)]
    target.put(f"sources/{source}/{last}{_COMPACT}", "\n".join([version, *kept]).encode())


def check_there(
    checkpoint: Storage, options: Mapping[str, str], *, after: Mapping[str, int] | None = None
) -> None:
    """Raise `InvalidInputError` if files that a query has read are not there to be read again.

    Args:
        options: credentials and endpoint of the store.
        after: only those after these batches, by source; those of other sources all.
    """
    by_folder: dict[str, set[str]] = {}
    for folder in checkpoint.list_folders("sources"):
        source = folder.rpartition("/")[2]
        for path in _paths(checkpoint, source):
            _, *lines = checkpoint.get(path).decode().split("\n")
            if not lines or not lines[0].startswith('{"path"'):
                break  # of a source that reads no files
            for batch, file, _ in _entries(lines, path):
                if batch > (after or {}).get(source, -1):
                    place, _, name = file.rpartition("/")
                    by_folder.setdefault(place, set()).add(unquote(name))
    gone = [
        f"{place}/{name}" for place, names in by_folder.items() for name in names - _there(place, options)
    ]
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        raise InvalidInputError(
            f"files that it has read are not there to be read again: {min(gone)}{more}",
            hint=f"put them back; or {_BY_HAND}.",
        )


def _there(folder: str, options: Mapping[str, str]) -> set[str]:
    """Return the names of the files in a folder."""
    scheme = urlsplit(folder).scheme
    if scheme != "file" and scheme not in OBJECT_STORE_SCHEMES:
        raise InvalidInputError(
            f"whether files that it has read are still there cannot be seen: {folder}",
            hint=f"{_BY_HAND}; or write what arrives into a table first.",
        )
    place = unquote(urlsplit(folder).path if scheme == "file" else folder)
    return {info.path.rpartition("/")[2] for info in open_storage(place, options).list()}


def _paths(checkpoint: Storage, source: str) -> list[str]:
    """Return the files of a log, the older ones first."""
    names = {
        info.path: info.path.rpartition("/")[2].removesuffix(_COMPACT)
        for info in checkpoint.list(f"sources/{source}")
    }
    return sorted((path for path, name in names.items() if name.isdigit()), key=lambda path: int(names[path]))


def _entries(lines: list[str], path: str) -> Iterator[tuple[int, str, str]]:
    """Yield the batch and the file of each entry, and its line."""
    for line in lines:
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
            yield int(value["batchId"]), str(value["path"]), line
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTableError("is no log of files that were read", path=path) from error
