"""A summary of a branch's first merges: one file for the two records of each, read in a hundredth of the requests.

``MERGES-<k>`` in the branch's folder holds what ``MERGE-1`` to ``MERGE-<k>`` and their ends say. Those are written once,
so a summary stays true for as long as the branch is the one that it names. The records stay: where a summary is missing,
damaged or of another release, they are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from anabranch.errors import AnabranchError, CorruptTableError
from anabranch.format.records.snapshot import SnapshotRef
from anabranch.format.records.snapshot_columns import from_columns, to_columns
from anabranch.format.text.packed import pack_json, unpack_json
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.log.merge_record import MergeEnd, MergeRecord, MergeRequest

SUMMARY_PREFIX: Final = "MERGES-"
_VERSION: Final = 1


def find_summary(
    branch: TableContext, last: int
) -> tuple[dict[int, MergeRecord], dict[int, MergeEnd]] | None:
    """Read what the first merges of a branch recorded, by number; None if that cannot be read.

    Args:
        branch: the branch.
        last: number of the last of them.
    """
    path = _path(branch, last)
    try:
        # Whoever writes it again writes the same. A copy of the table elsewhere has the same identity, and diverges.
        key = (branch.storage.url, branch.branch_uuid, "merges", path)
        data = branch.cache.get_or(key, lambda: branch.storage.get(path), len)
        return _from_bytes(branch, data, path, last)
    except AnabranchError:
        return None


def put_summary(
    branch: TableContext,
    records: Sequence[MergeRecord],
    ends: Sequence[MergeEnd],
    *,
    replaces: Sequence[int] = (),
) -> None:
    """Write what the first merges of a branch recorded.

    Args:
        branch: the branch.
        records: of merges 1 to k.
        ends: of the same.
        replaces: numbers of the last merges in summaries that are not needed any more.

    Raises `StorageError`: it could not be written, and the records are read one by one.
    """
    last = len(records)
    content = {
        "version": _VERSION,
        "branch": branch.branch_uuid,
        "heads": to_columns([record.head for record in records]),
        "schemas": [record.schema_id for record in records],
        "mains": _refs_to_columns([record.main for record in records]),
        "wishes": [record.wishes.to_dict() if record.wishes != _NO_WISHES else None for record in records],
        "created": [record.created_millis for record in records],
        "results": _refs_to_columns([end.snapshot for end in ends]),
        "replaced": [sorted(row.hex() for row in end.replaced) for end in ends],
        "theirs": [sorted(row.hex() for row in end.theirs) for end in ends],
    }
    branch.storage.put(_path(branch, last), pack_json(content), durable=False)
    branch.storage.delete_many([_path(branch, old) for old in replaces if old != last])


def _path(branch: TableContext, last: int) -> str:
    return branch.layout.branch_file_path(f"{SUMMARY_PREFIX}{last}")


def _from_bytes(
    branch: TableContext, data: bytes, path: str, last: int
) -> tuple[dict[int, MergeRecord], dict[int, MergeEnd]]:
    """Raises `CorruptTableError`; `UnsupportedFeatureError` if it is newer."""
    try:
        content = unpack_json(data, path=path)
        content.version(_VERSION)
        said = content.values
        if said["branch"] != branch.branch_uuid:
            raise CorruptTableError("is of another branch", path=path)
        numbers = range(1, last + 1)
        if not set(map(type, chain(said["schemas"], said["created"]))) <= {int}:
            raise TypeError
        mains = _refs(said["mains"])
        if None in mains:
            raise TypeError
        wishes = [
            _NO_WISHES if found is None else MergeRequest.from_dict(found, where=path)
            for found in said["wishes"]
        ]
        heads = from_columns(said["heads"], path=path)
        columns = (numbers, heads, said["schemas"], mains, wishes, said["created"])
        records = [MergeRecord(*row) for row in zip(*columns, strict=True)]
        rows = (numbers, _refs(said["results"]), _rows(said["replaced"]), _rows(said["theirs"]))
        ends = [MergeEnd(*row) for row in zip(*rows, strict=True)]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError("cannot be read as a summary of merges", path=path) from error
    return {record.number: record for record in records}, {end.number: end for end in ends}


def _refs_to_columns(refs: Sequence[SnapshotRef | None]) -> list[list[Any]]:
    """Branches, numbers and stamps of snapshots; null for none."""
    return [[None if ref is None else getattr(ref, name) for ref in refs] for name in _REF]


def _refs(columns: Any) -> list[SnapshotRef | None]:
    uuids, ids, stamps = columns
    found = [
        None if uuid is None else SnapshotRef(uuid, number, stamp)
        for uuid, number, stamp in zip(uuids, ids, stamps, strict=True)
    ]
    for ref in found:
        if ref is not None and (type(ref.branch_uuid), type(ref.id), type(ref.stamp)) != (str, int, str):
            raise TypeError
    return found


def _rows(column: list[list[str]]) -> list[frozenset[bytes]]:
    return [frozenset(map(bytes.fromhex, rows)) if rows else _NONE for rows in column]


_REF: Final = ("branch_uuid", "id", "stamp")
_NO_WISHES: Final = MergeRequest()
_NONE: Final[frozenset[bytes]] = frozenset()
