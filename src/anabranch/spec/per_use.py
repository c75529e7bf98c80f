"""Options that belong to a table and mean nothing for a single read or write of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from anabranch.errors import OptionError
from anabranch.options import BUCKET, BUCKET_KEY, PARTITION_DEFAULT_NAME, PARTITION_LEGACY_NAME
from anabranch.spec.schema_rules import refuse_primary_keys, split_names

if TYPE_CHECKING:
    from anabranch.spec.schema import TableSchema

_BUCKET_FUNCTION = "bucket-function.type"


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
