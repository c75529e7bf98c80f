"""Table properties in statements, and the table options they translate to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.errors import UnsupportedFeatureError
from anabranch.format.schema.change import RemoveOption, SchemaChange, SetComment, SetOption
from anabranch.format.schema.watermark import EXPRESSION, ROWTIME, WATERMARK_KEYS, read_watermark
from anabranch.format.text.tokens import Tokens
from anabranch.format.types.data_types import Field

WATERMARK = "watermark"
"""Property for watermarks, which Spark's grammar cannot express: ``order_time - INTERVAL '5' SECOND``."""
RESERVED = frozenset(
    {"provider", "owner", "comment", "is_managed_location", "external", "location", "collation"}
)
"""Properties that Spark sets for other clauses of its grammar; tables have no properties of these names."""
OWN_PREFIX = "anabranch."
"""Prefix of options that the table sets for itself."""
_COMMENT = "comment"
_OPTION_PREFIX = "option."
"""Prefix with which Spark repeats the OPTIONS clause among the properties."""


@dataclass(frozen=True)
class TableDefinition:
    """A table to create, or to replace another with."""

    fields: tuple[Field, ...]
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


def table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Return the table options among the properties. Raises `SchemaError` for a watermark it cannot read."""
    options: dict[str, str] = {}
    for key, value in given.items():
        if key == WATERMARK:
            options |= watermark_options(value)
        elif key not in RESERVED and not key.startswith(_OPTION_PREFIX):
            options[key] = value
    return options


def set_properties(given: Mapping[str, str]) -> list[SchemaChange]:
    """Return the schema changes for SET TBLPROPERTIES.

    Raises `UnsupportedFeatureError` for a property that tables do not have, `SchemaError` as `table_properties` does.
    """
    changes: list[SchemaChange] = []
    for key, value in given.items():
        _check_changeable(key)
        if key == _COMMENT:
            changes.append(SetComment(value))
        else:
            changes += [SetOption(name, text) for name, text in table_properties({key: value}).items()]
    return changes


def unset_properties(keys: Iterable[str]) -> list[SchemaChange]:
    """Return the schema changes for UNSET TBLPROPERTIES. Raises `UnsupportedFeatureError` as `set_properties` does."""
    changes: list[SchemaChange] = []
    for key in keys:
        _check_changeable(key)
        if key == _COMMENT:
            changes.append(SetComment(None))
        else:
            changes += [RemoveOption(name) for name in (WATERMARK_KEYS if key == WATERMARK else (key,))]
    return changes


def _check_changeable(key: str) -> None:
    if key in RESERVED - {_COMMENT}:
        raise UnsupportedFeatureError(
            f"'{key}' of a table is fixed",
            feature="table-change",
            hint="tables lie in the warehouse, and belong to whoever can write there.",
        )
    if key.startswith(_OPTION_PREFIX):
        raise UnsupportedFeatureError(
            f"a table has no property '{key}'",
            feature="table-change",
            hint=f"name the option itself: '{key.removeprefix(_OPTION_PREFIX)}'.",
        )


def watermark_options(text: str) -> dict[str, str]:
    """Return the options that define a watermark, from ``order_time - INTERVAL '5' SECOND``. Raises `SchemaError`."""
    column = Tokens(text).name("the column of event times")
    quoted = "`" + column.replace("`", "``") + "`"
    found = read_watermark(Tokens(f"{quoted} AS {text}"))
    return {ROWTIME: found.column, EXPRESSION: found.expression}
