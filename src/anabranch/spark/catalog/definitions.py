"""What CREATE TABLE says, from Spark's terms into ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import UnsupportedFeatureError
from anabranch.kernel.scan.request import FORMATS
from anabranch.options import BUCKET, BUCKET_KEY, FILE_FORMAT
from anabranch.spark.catalog import java
from anabranch.spark.types import fields_from_spark
from anabranch.spec.tokens import Tokens
from anabranch.spec.types import Field
from anabranch.spec.watermark import EXPRESSION, ROWTIME, read_watermark

PROVIDER = "anabranch"
WATERMARK = "watermark"
"""Property for what Spark's grammar has no place for: ``order_time - INTERVAL '5' SECOND``."""
_OPTION_PREFIX = "option."
_SPARKS_OWN = frozenset(
    {"provider", "owner", "comment", "is_managed_location", "external", "location", "collation"}
)
"""Properties that Spark sets for what its grammar says elsewhere."""


@dataclass(frozen=True)
class TableDefinition:
    """A table to be made, or to take another one's place."""

    fields: tuple[Field, ...]
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


def definition(
    schema: Any, transforms: Any, properties: Any, *, default_provider: str | None = None
) -> TableDefinition:
    """The definition that Spark's three pieces make.

    Args:
        schema: a ``StructType`` of the JVM.
        transforms: a ``Transform[]``: what stood in PARTITIONED BY and CLUSTERED BY.
        properties: a Java map: what stood in TBLPROPERTIES, OPTIONS, COMMENT, USING and LOCATION.
        default_provider: what Spark writes for USING where nobody named anything.

    Raises:
        UnsupportedFeatureError: Spark's grammar has it, tables do not.
        SchemaError: a column's type is none that a table can have.
    """
    given = java.python_map(properties)
    _check_location(given)
    partition_by, buckets = _placed(list(transforms))
    fields = fields_from_spark(java.python_struct(schema))
    options = {**_format(given, default_provider), **buckets, **table_properties(given)}
    return TableDefinition(fields, partition_by, options, given.get("comment"))


def table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The table options among the properties of a statement. Raises `SchemaError` for a watermark it cannot read."""
    options: dict[str, str] = {}
    for key, value in given.items():
        if key == WATERMARK:
            options |= watermark_options(value)
        elif key not in _SPARKS_OWN and not key.startswith(_OPTION_PREFIX):
            options[key] = value
    return options


def watermark_options(text: str) -> dict[str, str]:
    """The options that define a watermark, from ``order_time - INTERVAL '5' SECOND``. Raises `SchemaError`."""
    column = Tokens(text).name("the column of event times")
    quoted = "`" + column.replace("`", "``") + "`"
    found = read_watermark(Tokens(f"{quoted} AS {text}"))
    return {ROWTIME: found.column, EXPRESSION: found.expression}


def _format(given: Mapping[str, str], default_provider: str | None) -> dict[str, str]:
    """What USING says of the files."""
    provider = given.get("provider", PROVIDER).lower()
    if provider in (PROVIDER, default_provider):
        return {}
    if provider in FORMATS:
        return {FILE_FORMAT.key: provider}
    raise UnsupportedFeatureError(
        f"a table of this catalog cannot be made USING {provider}",
        feature="provider",
        hint=f"leave USING out, or name the format of its files: {', '.join(FORMATS)}.",
    )


def _check_location(given: Mapping[str, str]) -> None:
    if "location" in given or given.get("external") == "true":
        raise UnsupportedFeatureError(
            "a table of this catalog has no LOCATION of its own: it lies in the warehouse",
            feature="location",
            hint="leave LOCATION and EXTERNAL out.",
        )


def _placed(transforms: Sequence[Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Partition columns, and the options of the buckets."""
    keys: list[str] = []
    buckets: dict[str, str] = {}
    for transform in transforms:
        names = [list(reference.fieldNames()) for reference in transform.references()]
        plain = all(len(name) == 1 for name in names)
        match str(transform.name()):
            case "identity" if plain:
                keys.append(names[0][0])
            case "bucket" if plain:
                count = transform.numBuckets().value()
                buckets = {BUCKET.key: str(count), BUCKET_KEY.key: ",".join(name[0] for name in names)}
            case "cluster_by":
                raise UnsupportedFeatureError(
                    "CLUSTER BY is not kept by the table itself",
                    feature="cluster-by",
                    hint="leave it out, and sort the table when it is compacted: CALL lake.sys.sort_compact(...).",
                )
            case _:
                raise UnsupportedFeatureError(
                    f"a table cannot be partitioned by {transform.toString()}, only by columns as they are",
                    feature="partition-transforms",
                    hint="add a column with that value, and partition by it.",
                )
    return tuple(keys), buckets
