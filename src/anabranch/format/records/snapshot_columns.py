"""Many snapshots as columns of JSON values: read in a tenth of the time that their files take.

What takes time where there are thousands is to look at every field by itself. A column is looked at as a whole: the
types of its values, and its file names at once. What is the same for all is said once, and texts are one text. Checksums
of single snapshots are not kept: whoever stores the columns stores a checksum of all of them.

Whoever knows thousands mostly looks at a few, or at one thing that each says, so a snapshot is made of its columns when it
is asked for, and `field_of` and `property_of` make none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import repeat
from types import NoneType
from typing import Any, Final, TypeVar, overload

from anabranch.format.records.history_segment import PastSnapshot
from anabranch.format.records.layout import check_file_names
from anabranch.format.records.snapshot import CommitKind, Snapshot


def to_columns(snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return what snapshots say, field by field; without fields of which none says anything."""
    columns = {name: [*field_of(snapshots, name)] for name in _TYPES}
    columns["log_offsets"] = [
        {str(key): value for key, value in offsets.items()} for offsets in columns["log_offsets"]
    ]
    ids, properties = columns.pop("id"), columns.pop("properties")
    said = {name: _packed(column) for name, column in columns.items() if any(map(_is_said, column))}
    keys = dict.fromkeys(key for found in properties for key in found)
    packed = {key: _packed([found.get(key) for found in properties]) for key in keys}
    return {"ids": ids, "fields": said, "properties": packed}


P = TypeVar("P", bound=Snapshot | PastSnapshot)
"""Either of them: what is asked here of snapshots, the archive has of expired ones too."""


class Snapshots(Sequence[Snapshot], ABC):
    """Snapshots of which one can know what all say in a field without having each: see `field_of` and `property_of`."""

    @abstractmethod
    def field(self, name: str) -> Sequence[Any]:
        """Return what each says in a field."""

    @abstractmethod
    def property(self, key: str) -> Sequence[str | None]:
        """Return what each says in a property; None where it says nothing."""

    @abstractmethod
    def at(self, rows: Sequence[int]) -> list[Snapshot]:
        """Return those at some places, ascending, which takes less than one after the other."""


def field_of(snapshots: Sequence[Snapshot | PastSnapshot], name: str) -> Sequence[Any]:
    """Return what each of some snapshots says in a field."""
    if isinstance(snapshots, Snapshots):
        return snapshots.field(name)
    return [getattr(snapshot, name) for snapshot in snapshots]


def property_of(snapshots: Sequence[Snapshot | PastSnapshot], key: str) -> Sequence[str | None]:
    """Return what each of some snapshots says in a property; None where it says nothing."""
    if isinstance(snapshots, Snapshots):
        return snapshots.property(key)
    return [snapshot.properties.get(key) for snapshot in snapshots]


def snapshots_at(snapshots: Sequence[P], rows: Sequence[int]) -> list[P]:
    """Return those of some snapshots at some places, ascending."""
    found: list[Any] = (
        snapshots.at(rows) if isinstance(snapshots, Snapshots) else [snapshots[row] for row in rows]
    )
    return found


class SnapshotColumns(Snapshots):
    """The snapshots of `to_columns`."""

    def __init__(
        self, count: int, said: Mapping[str, Sequence[Any]], properties: Mapping[str, Sequence[Any]]
    ) -> None:
        """Hold columns that were looked at: see `from_columns`.

        Args:
            count: number of snapshots.
            said: values by field, but for the properties.
            properties: values by key; None where a snapshot has none.
        """
        self._count = count
        self._said = said
        self._properties = properties

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Snapshot: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Snapshot, ...]: ...
    def __getitem__(self, at: int | slice) -> Snapshot | tuple[Snapshot, ...]:
        rows = range(self._count)[at]
        return self.at((rows,))[0] if isinstance(rows, int) else tuple(self.at(rows))

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self[:])

    def field(self, name: str) -> Sequence[Any]:
        if name == "properties":
            return self._properties_at(range(self._count))
        return self._said[name] if name in self._said else [_DEFAULTS[name]] * self._count

    def property(self, key: str) -> Sequence[str | None]:
        return self._properties.get(key) or [None] * self._count

    def at(self, rows: Sequence[int]) -> list[Snapshot]:
        # What the constructor would make of each, in a quarter of the time: it sets a frozen field by its name.
        made = [Snapshot.__new__(Snapshot) for _ in rows]
        for name, default in _DEFAULTS.items():
            column: Iterable[Any]
            if name == "properties":
                column = self._properties_at(rows)
            elif name in self._said:
                column = map(self._said[name].__getitem__, rows)
            else:
                column = repeat(default)
            deque(map(getattr(Snapshot, name).__set__, made, column), maxlen=0)
        return made

    def _properties_at(self, rows: Sequence[int]) -> list[dict[str, str]]:
        found: list[dict[str, str]] = [{} for _ in rows]
        for key, column in self._properties.items():
            for properties, text in zip(found, map(column.__getitem__, rows), strict=True):
                if text is not None:
                    properties[key] = text
        return found


def from_columns(columns: Any, *, path: str) -> SnapshotColumns:
    """Return the snapshots of `to_columns`.

    Raises `ValueError`, `KeyError`, `TypeError`, or `CorruptTableError` naming `path`, for columns of anything else.
    """
    ids, found, properties = columns["ids"], dict(columns["fields"]), columns["properties"]
    if not isinstance(ids, list) or not isinstance(properties, dict):
        raise TypeError("snapshots have numbers, and properties by name")
    count = len(ids)
    said = {name: _unpacked(packed, count, _TYPES[name]) for name, packed in {"id": ids, **found}.items()}
    for name in _FILES & said.keys():
        check_file_names([file for file in said[name] if file is not None], path=path)
    if count:
        said["commit_kind"] = [_KINDS[kind] for kind in said["commit_kind"]]
    if "log_offsets" in said:
        said["log_offsets"] = [
            {int(key): int(value) for key, value in offsets.items()} for offsets in said["log_offsets"]
        ]
    if count and not said.keys() >= _NEEDED:
        raise TypeError("a field is missing")
    texts = {key: _unpacked(packed, count, _MAYBE_TEXT) for key, packed in properties.items()}
    return SnapshotColumns(count, said, texts)


def _is_said(value: Any) -> bool:
    return value is not None and value != {}


def _packed(column: list[Any]) -> Any:
    """A column; a text of texts, or what all of its values are in a list of its own."""
    first = column[0]
    if not isinstance(first, dict) and column.count(first) == len(column):
        return [[first]]
    if all(isinstance(value, str) and _BETWEEN not in value for value in column):
        return _BETWEEN.join(column)
    return column


def _unpacked(packed: Any, count: int, types: _Types) -> list[Any]:
    column = packed
    if isinstance(packed, str):
        column = packed.split(_BETWEEN)
    elif len(packed) == 1 and isinstance(packed[0], list):
        column = packed[0] * count
    if not isinstance(column, list) or len(column) != count or not set(map(type, column)) <= types:
        raise TypeError("another column was expected")
    return column


_BETWEEN: Final = "/"
"""In no name of a file."""
_Types = frozenset[type[Any]]
_TEXT: Final[_Types] = frozenset({str})
_MAYBE_TEXT: Final[_Types] = frozenset({str, NoneType})
_MAYBE_NUMBER: Final[_Types] = frozenset({int, NoneType})
_TYPES: Final[Mapping[str, _Types]] = {
    **dict.fromkeys(("id", "schema_id", "commit_identifier", "time_millis", "version"), frozenset({int})),
    **dict.fromkeys(("base_manifest_list", "delta_manifest_list", "commit_user", "commit_kind"), _TEXT),
    **dict.fromkeys(
        ("base_manifest_list_size", "delta_manifest_list_size", "changelog_manifest_list_size"), _MAYBE_NUMBER
    ),
    **dict.fromkeys(("total_record_count", "delta_record_count", "changelog_record_count"), _MAYBE_NUMBER),
    **dict.fromkeys(("watermark", "next_row_id"), _MAYBE_NUMBER),
    **dict.fromkeys(("changelog_manifest_list", "index_manifest", "statistics"), _MAYBE_TEXT),
    **dict.fromkeys(("uuid", "operation", "writer_version"), _MAYBE_TEXT),
    **dict.fromkeys(("log_offsets", "properties", "extra"), frozenset({dict})),
}
"""By field, the types of its values."""
_FILES: Final = frozenset({
    *("base_manifest_list", "delta_manifest_list", "changelog_manifest_list"), "index_manifest", "statistics",
})  # fmt: skip
_NEEDED: Final = frozenset(
    field.name for field in fields(Snapshot) if field.default is MISSING and field.default_factory is MISSING
)
_DEFAULTS: Final = {
    field.name: field.default if field.default_factory is MISSING else field.default_factory()
    for field in fields(Snapshot)
}
"""By field, what a snapshot has that says nothing; one for all, as nobody changes what a snapshot says."""
_KINDS: Final = {kind.value: kind for kind in CommitKind}
