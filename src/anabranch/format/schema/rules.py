"""Rules that a schema must satisfy before it is written, as checks on its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from anabranch.errors import OptionError, SchemaError, UnsupportedFeatureError
from anabranch.format.text.names import check_column_name
from anabranch.format.types.data_types import DataType, Field, RowType, is_atomic
from anabranch.format.types.grammar import check_depth, inner_types
from anabranch.options import (
    BUCKET,
    BUCKET_KEY,
    BUCKET_KEY_ASSIGNED,
    FILE_FORMAT,
    FULL_COMPACTION_DELTA_COMMITS,
    FULL_COMPACTION_SCALABLE,
    SNAPSHOT_NUM_RETAINED_MAX,
    SNAPSHOT_NUM_RETAINED_MIN,
    TAG_CREATION_DELAY,
    TAG_CREATION_PERIOD,
)

WRITTEN_FORMAT = "parquet"
"""Of data files."""
_PERIODS = {"hourly": 3_600_000, "two-hours": 7_200_000, "daily": 86_400_000}
"""Milliseconds."""
_COLUMNS_IN_OPTIONS = {"primary-key": "primary keys", "partition": "partition keys"}


def check_fields(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The columns, if their names and types can be those of a table.

    Raises:
        SchemaError: there is no column, two have one name, or types are nested too deeply.
        InvalidNameError: a name is not acceptable.
    """
    if not fields:
        raise SchemaError("a table needs at least one column")
    for f in fields:
        check_depth(f.type)
        check_column_name(f.name)
        check_inner_fields(f.type, f"column '{f.name}'")
    _refuse_duplicates([f.name for f in fields], "the table has the column '{}' more than once")
    return fields


def check_inner_fields(data_type: DataType, where: str) -> None:
    """Check names and counts of the fields inside a type; raises as `check_fields` does."""
    if isinstance(data_type, RowType):
        if not data_type.fields:
            raise SchemaError(
                f"{where} has a row type without fields", hint="give the row at least one field."
            )
        for f in data_type.fields:
            check_column_name(f.name, nested=True)
        _refuse_duplicates([f.name for f in data_type.fields], f"{where} has the field '{{}}' more than once")
    for inner in inner_types(data_type):
        check_inner_fields(inner, where)


def refuse_primary_keys(primary_keys: Sequence[str], options: Mapping[str, str]) -> None:
    """Refuse keys, given as such or as an option. Raises `UnsupportedFeatureError`, `OptionError`."""
    keys = list(primary_keys) or split_names(options.get("primary-key"))
    if keys:
        raise primary_key_error(f"asked for the primary key ({', '.join(keys)})")
    for key, meaning in _COLUMNS_IN_OPTIONS.items():
        if key in options:
            raise OptionError(f"{meaning} are not an option of the table", hint=f"remove the option '{key}'.")


def check_format(options: Mapping[str, str]) -> None:
    """Refuse formats of data files that are read and not written. Raises `UnsupportedFeatureError`, `OptionError`."""
    found = FILE_FORMAT.of(options)
    if found != WRITTEN_FORMAT:
        raise UnsupportedFeatureError(
            f"option '{FILE_FORMAT.key}' is '{found}'; Anabranch reads such files but writes {WRITTEN_FORMAT}",
            feature="file-format",
            hint=f"leave the option out or set it to '{WRITTEN_FORMAT}'; existing files stay readable.",
        )


def primary_key_error(found: str, *, path: str | None = None) -> UnsupportedFeatureError:
    """Return the error for a primary key."""
    return UnsupportedFeatureError(
        f"{found}; tables here hold complete records and have no keys",
        feature="primary-key",
        path=path,
        hint="rows that are updated or deleted by key need a Paimon primary-key table, made and read by an "
        "engine such as Flink; append complete records here, ordered by bucket-key if order matters.",
    )


def check_partition_keys(fields: tuple[Field, ...], keys: tuple[str, ...]) -> None:
    """Check that a table of these columns can be partitioned so. Raises `SchemaError`."""
    types = {f.name: f.type for f in fields}
    _refuse_duplicates(keys, "the partition key '{}' is given more than once")
    for key in keys:
        if key not in types:
            raise SchemaError(
                f"the partition key '{key}' is no column; columns are {', '.join(list(types)[:20])}",
                hint="partition by columns of the table; they are also stored with the rows.",
            )
        if not is_atomic(types[key]):
            raise SchemaError(
                f"the partition key '{key}' is {types[key]}",
                hint="partition by columns of simple types.",
            )
    if keys and len(keys) == len(fields):
        raise SchemaError("every column is a partition key", hint="leave at least one column for the data.")


def check_option_texts(options: Mapping[str, str]) -> None:
    """Check that keys and values are text, as schema files need them. Raises `OptionError`."""
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise OptionError(
                f"option {key!r} is {value!r}, expected text",
                hint=f"write it as text, for example '{value}'.",
            )
        if not key.strip():
            raise OptionError("an option has an empty name", hint="give every option a name.")


def with_own_full_compaction(options: Mapping[str, str]) -> dict[str, str]:
    """The options, of a scalable table with the one for full compactions under our own name.

    Other engines do not open a scalable table that has it under theirs.
    """
    found = dict(options)
    if BUCKET.of(options) == -1 and FULL_COMPACTION_DELTA_COMMITS.key in found:
        found[FULL_COMPACTION_SCALABLE.key] = found.pop(FULL_COMPACTION_DELTA_COMMITS.key)
    return found


def check_buckets(
    fields: tuple[Field, ...], partition_keys: tuple[str, ...], options: Mapping[str, str]
) -> None:
    """Check the options of scalable and queue tables against each other and the columns.

    Raises:
        OptionError: they contradict each other or name no usable column.
    """
    buckets = BUCKET.of(options)
    keys = split_names(options.get(BUCKET_KEY.key))
    if buckets < -1 or buckets == 0:
        raise OptionError(
            f"option 'bucket' is {buckets}",
            hint="use -1 for a scalable table or the number of buckets of a queue.",
        )
    if buckets == -1 and BUCKET_KEY.key in options:
        raise OptionError(
            f"option 'bucket-key' is '{options[BUCKET_KEY.key]}', but a table with bucket = -1 has no buckets",
            hint="set 'bucket' to the number of buckets, or remove 'bucket-key'.",
        )
    if buckets > 1 and not keys:
        raise OptionError(
            f"a table with bucket = {buckets} needs a 'bucket-key', found none",
            hint="name the columns whose rows keep their order; bucket = 1 is a queue without a key.",
        )
    _check_bucket_keys(fields, partition_keys, keys)


def check_bounds(options: Mapping[str, str]) -> None:
    """Check that options that bound each other do: what is kept at least and at most, delays and periods of tags.

    Raises `OptionError`.
    """
    least, most = SNAPSHOT_NUM_RETAINED_MIN, SNAPSHOT_NUM_RETAINED_MAX
    if {least.key, most.key} <= options.keys() and least.of(options) > most.of(options):
        raise OptionError(
            f"option '{least.key}' is {least.of(options)}, more than '{most.key}', which is {most.of(options)}",
            hint="snapshots could not expire: lower the first or raise the second.",
        )
    if TAG_CREATION_DELAY.key not in options:
        return
    period = TAG_CREATION_PERIOD.of(options)
    if TAG_CREATION_DELAY.of(options) >= _PERIODS[period]:
        raise OptionError(
            f"option '{TAG_CREATION_DELAY.key}' is '{options[TAG_CREATION_DELAY.key]}', not less than the period of "
            f"automatic tags, which is {period}",
            hint=f"lower it, or choose a longer '{TAG_CREATION_PERIOD.key}'.",
        )


def split_names(text: str | None) -> tuple[str, ...]:
    """The names in a comma-separated option."""
    return tuple(name for part in (text or "").split(",") if (name := part.strip()))


def _check_bucket_keys(
    fields: tuple[Field, ...], partition_keys: tuple[str, ...], keys: tuple[str, ...]
) -> None:
    types = {f.name: f.type for f in fields}
    repeated = _first_duplicate(keys)
    if repeated is not None:
        raise OptionError(f"option 'bucket-key' names '{repeated}' more than once")
    for key in keys:
        if key not in types:
            raise OptionError(
                f"option 'bucket-key' names '{key}', which is no column",
                hint=f"columns are {', '.join(list(types)[:20])}.",
            )
        if key in partition_keys:
            raise OptionError(
                f"option 'bucket-key' names '{key}', which is a partition key",
                hint="all rows of a partition have the same value there; name other columns.",
            )
        if not is_atomic(types[key]):
            raise OptionError(
                f"option 'bucket-key' names '{key}', which is {types[key]}",
                hint="name columns of simple types.",
            )


def _refuse_duplicates(names: Sequence[str], message: str) -> None:
    repeated = _first_duplicate(names)
    if repeated is not None:
        raise SchemaError(message.format(repeated), hint="names are unique.")


def _first_duplicate(names: Sequence[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


# The bucket-key of a queue of one bucket whose user named none.
#
# All rows of such a queue are in one bucket, so nothing has to decide between buckets. Engines of Paimon's 0.9
# line nevertheless refuse to read or write a queue without a ``bucket-key``. Therefore the first column that can
# be one is written down as the key when the table is created, and an option of ours remembers that nobody asked
# for it: it orders nothing, follows when its column is dropped, and has to be chosen by a person before the queue
# gets more buckets.

_OPTIONS = frozenset({BUCKET_KEY.key, BUCKET_KEY_ASSIGNED.key})


def is_assigned(options: Mapping[str, str]) -> bool:
    """Whether the key in these options is there for other engines only."""
    return BUCKET_KEY_ASSIGNED.of(options) and BUCKET.of(options) == 1


def with_assigned_key(
    options: Mapping[str, str], fields: Sequence[Field], partition_keys: Sequence[str]
) -> dict[str, str]:
    """The options of a queue of one bucket, completed by a key if they have none and a column can be one."""
    if BUCKET.of(options) != 1 or BUCKET_KEY.key in options:
        return dict(options)
    for f in fields:
        if f.name not in partition_keys and is_atomic(f.type) and split_names(f.name) == (f.name,):
            return {**options, BUCKET_KEY.key: f.name, BUCKET_KEY_ASSIGNED.key: "true"}
    return dict(options)


def without_key(options: Mapping[str, str]) -> dict[str, str]:
    """The options, with no key and no memory of one."""
    return {key: value for key, value in options.items() if key not in _OPTIONS}


def check_assigned(options: Mapping[str, str]) -> None:
    """Refuse more buckets by a key that nobody chose. Raises `OptionError`."""
    if not BUCKET_KEY_ASSIGNED.of(options) or is_assigned(options):
        return
    raise OptionError(
        f"a table with bucket = {BUCKET.of(options)} needs a 'bucket-key'; '{options.get(BUCKET_KEY.key)}' was "
        "only put there because some engines ask for one, and decides nothing while there is one bucket",
        hint=f"set 'bucket-key' as well, to the columns whose rows keep their order; "
        f"'{BUCKET_KEY_ASSIGNED.key}' is not for setting.",
    )
