"""Options of one read or write: which there are for each way of asking, and which belong to the table instead.

| asked by                                             | known                                                      |
|------------------------------------------------------|------------------------------------------------------------|
| `Table.with_options`, ``WITH`` and hints of a write  | options of tables, reads and streams; moments; ``branch``  |
| Spark's readers and writers, ``WITH`` of a read      | those, and the ones that only Spark's forms need           |

Nobody else would heed an option of one use, so an unknown one is an error; in the options that a table stores it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from anabranch.errors import OptionError, did_you_mean
from anabranch.format.schema.rules import refuse_primary_keys, split_names
from anabranch.format.schema.watermark import WATERMARK_PREFIX
from anabranch.options import (
    ALL,
    BUCKET,
    BUCKET_KEY,
    CHECK_PREFIX,
    MERGE_SCHEMA,
    OVERWRITE_IF_UNCHANGED_SINCE,
    OVERWRITE_PARTITION,
    PARTITION_DEFAULT_NAME,
    PARTITION_LEGACY_NAME,
    PATH,
    SCAN_COLUMNS,
    SCAN_FILTER,
    SCAN_START_OFFSET,
    SCAN_TIMESTAMP,
    SCAN_VERSION,
    WAREHOUSE,
    check_values,
)

if TYPE_CHECKING:
    from anabranch.format.schema.table_schema import TableSchema

_BUCKET_FUNCTION = "bucket-function.type"


_ELSEWHERE: Mapping[str, str] = {
    SCAN_FILTER.key: "give it to the read: table.scan(filter).",
    SCAN_COLUMNS.key: "give them to the read: table.scan(columns=[...]).",
    SCAN_START_OFFSET.key: "name where to begin in table.tail(start=...).",
    OVERWRITE_PARTITION.key: "give it to the write: table.overwrite(rows, partition={...}).",
    OVERWRITE_IF_UNCHANGED_SINCE.key: "give it to the write: table.overwrite(rows, if_unchanged_since=...).",
    MERGE_SCHEMA.key: "give it to the write: table.append(rows, schema='merge').",
    PATH.key: "open the table by its name: lake.table('db.t').",
    WAREHOUSE.key: "open the warehouse: anabranch.connect(warehouse).",
}
"""Options of Spark's readers and writers that are arguments elsewhere."""
_MEANT: Mapping[str, str] = {
    "versionasof": f"the option is '{SCAN_VERSION.key}'.",
    "timestampasof": f"the option is '{SCAN_TIMESTAMP.key}'.",
}
"""Names that other systems have, in lower case, and what does the same here."""
_STORES = ("s3.", "s3a.", "fs.", "gs.", "az.", "azure.")
_FAMILIES = ("fields.", WATERMARK_PREFIX)
_BY_KEY = {option.key: option for option in ALL}


def check_use(given: Mapping[str, str], *, also: Iterable[str] | None = None) -> None:
    """Refuse options of one read or write that nobody knows, and values that cannot be read.

    Args:
        also: what is known besides, for Spark's readers and writers; None for Python's own.

    Raises `OptionError`; its hint names the option that was probably meant.
    """
    check_values(given)
    besides = frozenset(also or ())
    for key in given:
        if also is None and key in _ELSEWHERE:
            raise OptionError(f"option '{key}' is one of Spark's readers and writers", hint=_ELSEWHERE[key])
        if key in _BY_KEY or key in _TABLES or key in besides or key.startswith((*_STORES, *_FAMILIES)):
            continue
        if key.startswith(CHECK_PREFIX):
            raise OptionError(
                f"option '{key}' is a check of the table, and holds for every write",
                hint="set it for the table: table.alter().add_check(name, condition).apply().",
            )
        hint = _MEANT.get(key.lower()) or did_you_mean(key, (*_BY_KEY, *besides))
        raise OptionError(
            f"unknown option '{key}' of a read or write",
            hint=hint or "leave it out: nobody would heed it. The page of options has all there are.",
        )


def asks_of_the_table(given: Mapping[str, str]) -> bool:
    """Whether there is an option among them that `refuse_table_options` looks at."""
    return not _MEANINGS.keys().isdisjoint(given) or "primary-key" in given or "partition" in given


def refuse_table_options(given: Mapping[str, str], schema: TableSchema) -> None:
    """Refuse options of one read or write that ask for rows to lie elsewhere than the table says.

    Raises:
        OptionError: one of them differs from the table's.
        UnsupportedFeatureError: they name a primary key.
    """
    refuse_primary_keys((), given)
    for key, meaning in _MEANINGS.items():
        if key in given and meaning(given) != meaning(schema.options):
            found = schema.options.get(key)
            raise OptionError(
                f"option '{key}' = '{given[key]}' was given for one read or write, but where rows lie is a matter "
                f"of the table, which has {'none' if found is None else repr(found)}",
                hint="leave it out; a table with other buckets or folder names is created so.",
            )


def _bucket_function(options: Mapping[str, str]) -> str:
    return options.get(_BUCKET_FUNCTION, "default").strip().lower()


_MEANINGS: Mapping[str, Callable[[Mapping[str, str]], object]] = {
    BUCKET.key: BUCKET.of,
    BUCKET_KEY.key: lambda options: split_names(BUCKET_KEY.of(options)),
    _BUCKET_FUNCTION: _bucket_function,
    PARTITION_DEFAULT_NAME.key: PARTITION_DEFAULT_NAME.of,
    PARTITION_LEGACY_NAME.key: PARTITION_LEGACY_NAME.of,
}

_TABLES = frozenset({*_MEANINGS, "primary-key", "partition"})
"""Options that `refuse_table_options` judges."""
