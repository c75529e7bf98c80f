"""What CREATE TABLE says, from Spark's terms into ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import UnsupportedFeatureError
from anabranch.options import BUCKET, BUCKET_KEY
from anabranch.spark.catalog import java
from anabranch.spark.types import fields_from_spark
from anabranch.spec.types import Field

PROVIDER = "anabranch"
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


def definition(schema: Any, transforms: Any, properties: Any) -> TableDefinition:
    """The definition that Spark's three pieces make.

    Args:
        schema: a ``StructType`` of the JVM.
        transforms: a ``Transform[]``: what stood in PARTITIONED BY and CLUSTERED BY.
        properties: a Java map: what stood in TBLPROPERTIES, OPTIONS, COMMENT, USING and LOCATION.

    Raises:
        UnsupportedFeatureError: Spark's grammar has it, tables do not.
        SchemaError: a column's type is none that a table can have.
    """
    given = java.python_map(properties)
    _check_properties(given)
    partition_by, buckets = _placed(list(transforms))
    return TableDefinition(
        fields_from_spark(java.python_struct(schema)),
        partition_by,
        {**buckets, **table_properties(given)},
        given.get("comment"),
    )


def table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The table options among the properties of a statement."""
    return {
        key: value
        for key, value in given.items()
        if key not in _SPARKS_OWN and not key.startswith(_OPTION_PREFIX)
    }


def _check_properties(given: Mapping[str, str]) -> None:
    provider = given.get("provider", PROVIDER)
    if provider.lower() != PROVIDER:
        raise UnsupportedFeatureError(
            f"a table of this catalog cannot be made USING {provider}",
            feature="provider",
            hint="leave USING out; the format of its files is the table property 'file.format'.",
        )
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
                    f"a table cannot be partitioned by {transform.describe()}, only by columns as they are",
                    feature="partition-transforms",
                    hint="add a column with that value, and partition by it.",
                )
    return tuple(keys), buckets
