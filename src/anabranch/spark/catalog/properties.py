"""What a statement says of a table beside its columns, and the options that this is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.spec.tokens import Tokens
from anabranch.spec.types import Field
from anabranch.spec.watermark import EXPRESSION, ROWTIME, read_watermark

WATERMARK = "watermark"
"""Property for what Spark's grammar has no place for: ``order_time - INTERVAL '5' SECOND``."""
RESERVED = frozenset(
    {"provider", "owner", "comment", "is_managed_location", "external", "location", "collation"}
)
"""Properties that Spark sets for what its grammar says elsewhere; tables have none of that name."""
_OPTION_PREFIX = "option."


@dataclass(frozen=True)
class TableDefinition:
    """A table to be made, or to take another one's place."""

    fields: tuple[Field, ...]
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


def table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The table options among the properties of a statement. Raises `SchemaError` for a watermark it cannot read."""
    options: dict[str, str] = {}
    for key, value in given.items():
        if key == WATERMARK:
            options |= watermark_options(value)
        elif key not in RESERVED and not key.startswith(_OPTION_PREFIX):
            options[key] = value
    return options


def watermark_options(text: str) -> dict[str, str]:
    """The options that define a watermark, from ``order_time - INTERVAL '5' SECOND``. Raises `SchemaError`."""
    column = Tokens(text).name("the column of event times")
    quoted = "`" + column.replace("`", "``") + "`"
    found = read_watermark(Tokens(f"{quoted} AS {text}"))
    return {ROWTIME: found.column, EXPRESSION: found.expression}
