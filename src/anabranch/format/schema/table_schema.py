"""Schemas: the columns and options of a table, one immutable version at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from anabranch.errors import OptionError, SchemaError, UnsupportedFeatureError, did_you_mean
from anabranch.format.schema.rules import (
    check_assigned,
    check_bounds,
    check_buckets,
    check_fields,
    check_option_texts,
    check_partition_keys,
    is_assigned,
    refuse_primary_keys,
    split_names,
    with_assigned_key,
    with_own_full_compaction,
)
from anabranch.format.schema.support import check_readable, check_writable, has_known_bucket_function
from anabranch.format.schema.watermark import check_watermark, watermark_settled
from anabranch.format.text.json_object import JsonObject, to_bytes
from anabranch.format.types.data_types import DataType, Field, RowType, is_atomic, walk_fields
from anabranch.format.types.field_tree import assign_field_ids
from anabranch.format.types.grammar import MAX_FIELD_ID, field_to_json, inner_types, parse_fields
from anabranch.options import BUCKET, BUCKET_KEY, COMPACTION_MAX_FILE_NUM, FILE_FORMAT, check_options

NEWEST_VERSION = 3
_VERSION_WITHOUT_BUCKET = 1
_LAST_VERSION_WITH_ORC = 2


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's schema.

    `from_json` and `create` check what they make; changes are made by `schema_change`.

    Example:
        >>> [(field.name, str(field.type)) for field in table.schema.fields]
        [('id', 'BIGINT NOT NULL'), ('day', 'STRING'), ('price', 'DOUBLE')]
        >>> table.schema.partition_keys
        ('day',)
    """

    id: int
    fields: tuple[Field, ...]
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: Mapping[str, str]
    highest_field_id: int
    """The largest field id ever used in the table, by fields that are gone too."""
    comment: str | None = None
    time_millis: int = 0
    """When this version was made, milliseconds since the epoch."""
    version: int = NEWEST_VERSION
    """Version of the file's format, not of the schema."""

    @classmethod
    def create(
        cls,
        fields: Iterable[Field],
        *,
        partition_keys: Sequence[str] = (),
        primary_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        time_millis: int,
    ) -> TableSchema:
        """The first schema of a new table.

        Args:
            fields: the columns; ids they have are replaced.
            partition_keys: columns that rows are grouped by in folders, outermost first.
            primary_keys: refused unless empty.
            options: table options as text.
            time_millis: now, in milliseconds since the epoch.

        Raises:
            SchemaError: the columns or the partitioning are not acceptable.
            InvalidNameError: a column's name is not acceptable.
            OptionError: an option is unknown, malformed or contradicts another.
            UnsupportedFeatureError: the table would need something this version does not implement.
        """
        given = dict(options or {})
        check_option_texts(given)
        columns = check_fields(tuple(fields))
        refuse_primary_keys(primary_keys, given)
        check_partition_keys(columns, tuple(partition_keys))
        check_options(given)
        check_assigned(given)
        given = with_own_full_compaction(with_assigned_key(given, columns, partition_keys))
        check_buckets(columns, tuple(partition_keys), given)
        check_bounds(given)
        check_watermark(columns, given)
        given = watermark_settled(columns, given)
        numbered, highest = assign_field_ids(columns)
        schema = cls(
            id=0,
            fields=numbered,
            partition_keys=tuple(partition_keys),
            primary_keys=(),
            options=_with_explicit_defaults(given),
            highest_field_id=highest,
            comment=comment,
            time_millis=time_millis,
        )
        check_readable(schema, path=None)
        check_writable(schema, path=None)
        return schema

    @classmethod
    def from_json(cls, data: bytes, *, path: str) -> TableSchema:
        """A schema from its file.

        A table of any kind can be described, so this refuses only what cannot be understood; see
        `check_readable` and `check_writable`.

        Raises:
            CorruptTableError: the file does not say what it must.
            UnsupportedFeatureError: a later version of the format, or a type that is not implemented.
        """
        return _parsed(data, path)

    def to_json(self) -> bytes:
        """The content of the schema's file."""
        values: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [field_to_json(f) for f in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": dict(self.options),
        }
        if self.comment is not None:
            # Engines of the 0.9 line would read null as the text 'null'.
            values["comment"] = self.comment
        values["timeMillis"] = self.time_millis
        return to_bytes(values)

    def field(self, name: str) -> Field:
        """The column of that name. Raises `SchemaError` naming the columns there are."""
        for f in self.fields:
            if f.name == name:
                return f
        names = [f.name for f in self.fields]
        raise SchemaError(
            f"there is no column '{name}'; columns are {', '.join(names[:20])}{', …' if len(names) > 20 else ''}",
            hint=did_you_mean(name, names),
        )

    def field_by_id(self, field_id: int) -> Field | None:
        """The column of that id, or None if the schema does not have it."""
        return next((f for f in self.fields if f.id == field_id), None)

    @property
    def row_type(self) -> RowType:
        """The type of a row."""
        return RowType(self.fields, nullable=False)

    @property
    def partition_fields(self) -> tuple[Field, ...]:
        """The columns of the partition keys, in the order of the keys."""
        return tuple(self.field(name) for name in self.partition_keys)

    @property
    def bucket(self) -> int:
        """Number of buckets, -1 for a scalable table."""
        return BUCKET.of(self.options)

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """Names of the columns that decide the bucket of a row; empty if nothing does."""
        return () if is_assigned(self.options) else split_names(BUCKET_KEY.of(self.options))

    @property
    def bucket_follows_from_keys(self) -> bool:
        """Whether the bucket of a row can be computed from its bucket keys, so that others can be skipped."""
        return bool(self.bucket_keys) and has_known_bucket_function(self.options)


@lru_cache(maxsize=128)  # a table is opened for every statement, and its file says the same each time
def _parsed(data: bytes, path: str) -> TableSchema:
    content = JsonObject.parse(data, path=path)
    version = content.optional_integer("version", minimum=0)
    version = _VERSION_WITHOUT_BUCKET if version is None else version
    if version > NEWEST_VERSION:
        raise UnsupportedFeatureError(
            f"schema of format version {version}, the newest known is {NEWEST_VERSION}",
            feature="schema-version",
            path=path,
            hint="read the table with a newer version of Anabranch.",
        )
    fields = parse_fields(content.items("fields"), where=path)
    highest = content.integer("highestFieldId", minimum=-1, maximum=MAX_FIELD_ID)
    schema = TableSchema(
        id=content.integer("id", minimum=0),
        fields=fields,
        partition_keys=content.texts("partitionKeys"),
        primary_keys=content.texts("primaryKeys"),
        options=_with_former_defaults(content.text_map("options"), version),
        highest_field_id=max([highest, *(f.id for f in walk_fields(fields))]),
        comment=content.optional_text("comment"),
        time_millis=content.optional_integer("timeMillis") or 0,
        version=version,
    )
    _check_consistent(schema, content)
    return schema


def _with_explicit_defaults(options: dict[str, str]) -> dict[str, str]:
    """Options of a new table, with those written out for which other engines have another default."""
    if BUCKET.of(options) < 1:
        return options
    # Paimon's Java engine compacts a queue's files from 5 on instead.
    return {COMPACTION_MAX_FILE_NUM.key: str(COMPACTION_MAX_FILE_NUM.default), **options}


def _with_former_defaults(options: dict[str, str], version: int) -> dict[str, str]:
    """Options of an older file, completed by the defaults of its time where those have changed."""
    if version <= _VERSION_WITHOUT_BUCKET:
        options = {BUCKET.key: "1", **options}
    if version <= _LAST_VERSION_WITH_ORC:
        options = {FILE_FORMAT.key: "orc", **options}
    return options


def _check_consistent(schema: TableSchema, content: JsonObject) -> None:
    """Check what the rest of the program relies on in any schema."""
    _refuse_duplicates(
        content, [f.id for f in walk_fields(schema.fields)], "the field id {} is used more than once"
    )
    _check_names(content, RowType(schema.fields))
    names = {f.name for f in schema.fields}
    for key, columns in (("partitionKeys", schema.partition_keys), ("primaryKeys", schema.primary_keys)):
        _refuse_duplicates(content, columns, f"'{key}' names '{{}}' more than once")
        for name in columns:
            if name not in names:
                content.fail(f"'{key}' names {name!r}, which is no column")
    for f in schema.partition_fields:
        if not is_atomic(f.type):
            content.fail(f"'partitionKeys' names {f.name!r}, which is {f.type}")
    try:
        BUCKET.of(schema.options)
    except OptionError as error:
        content.fail(error.message)


def _check_names(content: JsonObject, data_type: DataType) -> None:
    if isinstance(data_type, RowType):
        _refuse_duplicates(
            content, [f.name for f in data_type.fields], "the name '{}' is used more than once"
        )
    for inner in inner_types(data_type):
        _check_names(content, inner)


def _refuse_duplicates(content: JsonObject, values: Sequence[object], message: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            content.fail(message.format(value))
        seen.add(value)
