"""Repairs snapshots and tags with one flipped bit, found by their checksum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from anabranch.errors import AnabranchError, NotFoundError
from anabranch.format.records.layout import snapshot_id_of
from anabranch.format.records.refs import Tag
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.repair.found import Act, Kind, Problem, RepairStep

_LONGEST = 64 * 1024
"""Largest file size in bytes that is tried, at eight attempts per byte."""


def plan_bits(context: TableContext, problems: Sequence[Problem]) -> Iterator[tuple[RepairStep, Act]]:
    """Plan to flip back changed bits, where a single one explains the damage."""
    for path in dict.fromkeys(p.path for p in problems if p.kind in (Kind.SNAPSHOT, Kind.REF) and p.path):
        try:
            data = context.storage.get(path)
        except AnabranchError:
            continue
        whole = _before(context, data, _reader(path))
        if whole is not None:

            def act(path: str = path, data: bytes = data, whole: bytes = whole) -> bool:
                if context.storage.get(path) != data:
                    return False
                context.storage.put(path, whole)
                return True

            yield RepairStep(Kind.SNAPSHOT, f"put back the one bit that changed in {path}", path), act


def _reader(path: str) -> Callable[[bytes], Snapshot | Tag]:
    """Return the parser of a file; `to_json` of its result reproduces an intact one byte by byte."""
    if snapshot_id_of(path) is not None:
        return lambda data: Snapshot.from_json(data, path=path)
    name = path.rpartition("/tag-")[2]
    return lambda data: Tag.from_json(data, name=name, path=path)


def _before(context: TableContext, data: bytes, read: Callable[[bytes], Snapshot | Tag]) -> bytes | None:
    """Return the content before one bit changed; None if no bit explains the damage, or several do.

    The checksum does not cover everything: the sizes of lists are checked by the lists, and a UUID cannot be checked.
    """
    found: list[tuple[Snapshot | Tag, bytes]] = []
    for place in range(8 * len(data) if len(data) <= _LONGEST else 0):
        tried = bytearray(data)
        tried[place >> 3] ^= 1 << (place & 7)
        try:
            said = read(bytes(tried))
        except AnabranchError:
            continue
        if said.to_json() == tried:
            found.append((said, bytes(tried)))
    if len(found) > 1:
        found = [(said, whole) for said, whole in found if _has_sizes_of_lists(context, _snapshot(said))]
    return found[0][1] if len({_without_uuid(said) for said, _ in found}) == 1 else None


def _snapshot(said: Snapshot | Tag) -> Snapshot:
    return said.snapshot if isinstance(said, Tag) else said


def _without_uuid(said: Snapshot | Tag) -> bytes:
    if isinstance(said, Tag):
        return replace(said, snapshot=replace(said.snapshot, uuid=None)).to_json()
    return replace(said, uuid=None).to_json()


def _has_sizes_of_lists(context: TableContext, snapshot: Snapshot) -> bool:
    """Whether the list sizes in a snapshot are those of its lists, as far as these exist."""
    lists = {
        snapshot.base_manifest_list: snapshot.base_manifest_list_size,
        snapshot.delta_manifest_list: snapshot.delta_manifest_list_size,
    }
    for name, size in lists.items():
        try:
            if size not in (None, context.storage.info(context.layout.manifest_path(name)).size):
                return False
        except NotFoundError:
            continue
    return True
