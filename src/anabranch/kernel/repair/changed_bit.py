"""Mending snapshots and tags in whose file one bit changed, as disks and memory do: their checksum tells which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from anabranch.errors import AnabranchError
from anabranch.kernel.context import TableContext
from anabranch.kernel.repair.problem import Kind, Problem
from anabranch.kernel.repair.repair import Act, Step
from anabranch.spec.layout import snapshot_id_of
from anabranch.spec.refs import Tag
from anabranch.spec.snapshot import Snapshot

_LONGEST = 64 * 1024
"""Bytes of a file that is tried at all, eight times each."""


def plan_bits(context: TableContext, problems: Sequence[Problem]) -> Iterator[tuple[Step, Act]]:
    """What puts changed bits back, where a single one explains the damage."""
    for path in dict.fromkeys(p.path for p in problems if p.kind in (Kind.SNAPSHOT, Kind.REF) and p.path):
        try:
            data = context.storage.get(path)
        except AnabranchError:
            continue
        whole = _before(data, _again(path))
        if whole is not None:

            def act(path: str = path, data: bytes = data, whole: bytes = whole) -> bool:
                if context.storage.get(path) != data:
                    return False
                context.storage.put(path, whole)
                return True

            yield Step(Kind.SNAPSHOT, f"put back the one bit that changed in {path}", path), act


def _again(path: str) -> Callable[[bytes], bytes]:
    """What reads a file of ours and writes it again, which for a whole one gives the same bytes."""
    if snapshot_id_of(path) is not None:
        return lambda data: Snapshot.from_json(data, path=path).to_json()
    name = path.rpartition("/tag-")[2]
    return lambda data: Tag.from_json(data, name=name, path=path).to_json()


def _before(data: bytes, again: Callable[[bytes], bytes]) -> bytes | None:
    """The content before one bit of it changed; None if no bit explains the damage, or several do."""
    found: bytes | None = None
    for place in range(8 * len(data) if len(data) <= _LONGEST else 0):
        tried = bytearray(data)
        tried[place >> 3] ^= 1 << (place & 7)
        try:
            whole = again(bytes(tried))
        except AnabranchError:
            continue
        if whole == tried:
            if found is not None:
                return None
            found = whole
    return found
