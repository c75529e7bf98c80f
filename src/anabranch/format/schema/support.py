"""Features that this version does not implement, found in a table's schema and refused by name.

A table that uses such a feature would be read wrongly or damaged by writing to it, so it is refused before
anything is read or written. What only manifests and snapshots show is refused where those are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.schema.rules import primary_key_error
from anabranch.format.types.data_types import Field, is_atomic, walk_fields
from anabranch.option_kinds import parse_duration
from anabranch.options import BUCKET

if TYPE_CHECKING:
    from anabranch.format.schema.table_schema import TableSchema

_BUCKET_FUNCTION = "bucket-function.type"
FILE_FORMATS = ("parquet", "orc", "avro")


def check_readable(schema: TableSchema, *, path: str | None) -> None:
    """Refuse a table whose rows this version would not read rightly.

    Args:
        schema: the newest schema, or the one of the snapshot that is read.
        path: the schema's file, for errors; None for a table about to be made.

    Raises:
        UnsupportedFeatureError: the table uses a feature that is not implemented; names it.
        CorruptTableError: the schema contradicts itself.
    """
    if schema.primary_keys:
        raise primary_key_error(
            f"the table has the primary key ({', '.join(schema.primary_keys)})", path=path
        )
    _check_buckets(schema, path)
    for rule in _READ_RULES:
        rule.check(schema.options, path)


def check_writable(schema: TableSchema, *, path: str | None) -> None:
    """Refuse a table that this version would damage by writing to it; raises as `check_readable` does.

    What cannot be read cannot be written either: the checks of `check_readable` are part of these.
    """
    check_readable(schema, path=path)
    for rule in _WRITE_RULES:
        rule.check(schema.options, path)
    for name in set(schema.bucket_keys) & set(schema.partition_keys):
        raise CorruptTableError(f"option 'bucket-key' names '{name}', which is a partition key", path=path)
    with_default = [f for f in walk_fields(schema.fields) if f.default is not None]
    columns = {f.id for f in schema.fields if is_atomic(f.type)} if with_default else ()
    defaults = [f.name for f in with_default if f.id not in columns]
    if defaults:
        raise UnsupportedFeatureError(
            f"writing would have to fill in default values of {', '.join(defaults)}, which is not implemented for nested "
            "types and fields inside of them",
            feature="column-default",
            path=path,
            hint="write with an engine that does, or remove them from the columns.",
        )


def has_known_bucket_function(options: Mapping[str, str]) -> bool:
    """Whether the rows of a queue table were given to buckets by the hash that this version knows."""
    return options.get(_BUCKET_FUNCTION, "default").strip().lower() == "default"


def check_expirable(schema: TableSchema, *, path: str | None) -> None:
    """Refuse to expire snapshots of a table that keeps its changelog longer than its snapshots.

    Raises:
        UnsupportedFeatureError: expiring would lose changelog that other engines expect to find.
    """
    for kept, default, parse in _CHANGELOG_RETENTION:
        changelog = schema.options.get(f"changelog.{kept}")
        if changelog is None:
            continue
        snapshot = schema.options.get(f"snapshot.{kept}", default)
        if _is_more(changelog, snapshot, parse):
            raise UnsupportedFeatureError(
                f"option 'changelog.{kept}' is '{changelog}', longer than snapshots are kept ({snapshot})",
                feature="decoupled-changelog",
                path=path,
                hint="expire snapshots with the engine that keeps the changelog.",
            )


@dataclass(frozen=True, slots=True)
class _Rule:
    """An option, and for which of its values a feature is in use."""

    key: str
    feature: str
    in_use: Callable[[str], bool]
    prefix: bool = False
    """Whether `key` is the beginning of keys."""
    suffix: str = ""

    def check(self, options: Mapping[str, str], path: str | None) -> None:
        for key, value in options.items():
            if self._is_about(key) and self.in_use(value.strip().lower()):
                raise UnsupportedFeatureError(
                    f"the table has the option '{key}' = '{value}', which is not implemented",
                    feature=self.feature,
                    path=path,
                    hint="use an engine that implements it, or a table without this option.",
                )

    def _is_about(self, key: str) -> bool:
        if not self.prefix:
            return key == self.key
        return key.startswith(self.key) and key.endswith(self.suffix)


def _is_on(value: str) -> bool:
    return value != "false"


def _is_given(value: str) -> bool:
    return value != ""


def _is_not(*values: str) -> Callable[[str], bool]:
    return lambda value: value not in values


def _has_unknown_format(value: str) -> bool:
    """Whether ``level:format,...`` names a format that is not implemented."""
    return any(part.rpartition(":")[2].strip() not in FILE_FORMATS for part in value.split(","))


_READ_RULES = (
    _Rule("type", "table-type", _is_not("", "table")),
    _Rule("primary-key", "primary-key", _is_given),
    _Rule("deletion-vectors.enabled", "deletion-vectors", _is_on),
    _Rule("data-evolution.enabled", "data-evolution", _is_on),
    _Rule("data-file.external-paths", "external-paths", _is_given),
    _Rule("data-file.path-directory", "data-file-directory", _is_given),
    _Rule("file.format", "file-format", _is_not(*FILE_FORMATS)),
    _Rule("file.format.per.level", "file-format", _has_unknown_format),
    _Rule("manifest.format", "manifest-format", _is_not("avro")),
    _Rule("changelog-producer", "changelog-producer", _is_not("none")),
    _Rule("merge-engine", "merge-engine", _is_not("deduplicate")),
    _Rule("sequence.field", "sequence-field", _is_given),
    _Rule("rowkind.field", "rowkind-field", _is_given),
    _Rule("record-level.", "record-level-expire", _is_given, prefix=True),
    _Rule("chain-table.enabled", "chain-table", _is_on),
    _Rule("scan.fallback-branch", "fallback-branch", _is_given),
    _Rule("scan.primary-branch", "primary-branch", _is_given),
    _Rule("query-auth.enabled", "query-auth", _is_on),
    _Rule("fields.", "map-storage-layout", _is_given, prefix=True, suffix=".map.storage-layout"),
    _Rule("fields.", "column-default", _is_given, prefix=True, suffix=".default-value"),
)
_WRITE_RULES = (
    _Rule("row-tracking.enabled", "row-tracking", _is_on),
    _Rule(_BUCKET_FUNCTION, "bucket-function", _is_not("default")),
    _Rule("data-file.prefix", "data-file-prefix", _is_not("", "data-")),
    _Rule("index-file-in-data-file-dir", "index-file-directory", _is_on),
    _Rule("file.format.per.level", "file-format-per-level", _is_given),
)

_NEVER = 2**31 - 1
_CHANGELOG_RETENTION: tuple[tuple[str, str, Callable[[str], int]], ...] = (
    ("num-retained.min", "10", int),
    ("num-retained.max", str(_NEVER), int),
    ("time-retained", "1 h", parse_duration),
)


def _is_more(changelog: str, snapshot: str, parse: Callable[[str], int]) -> bool:
    try:
        return parse(changelog) > parse(snapshot)
    except ValueError:
        return True  # not understood, so not known to be safe


def _check_buckets(schema: TableSchema, path: str | None) -> None:
    buckets = BUCKET.of(schema.options)
    if buckets < -1:
        raise UnsupportedFeatureError(
            f"the table has bucket = {buckets}, which belongs to primary-key tables",
            feature="postpone-bucket",
            path=path,
            hint="read the table with an engine that implements primary keys.",
        )
    if buckets == 0:
        raise CorruptTableError("option 'bucket' is 0, expected -1 or a number above 0", path=path)
    columns: dict[str, Field] = {f.name: f for f in schema.fields}
    for name in schema.bucket_keys:
        if name not in columns:
            raise CorruptTableError(f"option 'bucket-key' names '{name}', which is no column", path=path)
