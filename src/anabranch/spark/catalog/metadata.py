"""Metadata columns of a table as Spark's catalog tells of them: a query that names one reads it, ``*`` does not."""

from __future__ import annotations

from typing import Any, ClassVar

from anabranch.format.types.data_types import Field
from anabranch.scan.metadata import METADATA_FIELDS
from anabranch.spark.catalog import java
from anabranch.spark.jvm.answers import answered
from anabranch.spark.jvm.proxy import JavaProxy, Jvm
from anabranch.spark.types.columns import spark_schema_json

_COLUMN = f"{java.CONNECTOR}.catalog.MetadataColumn"


class MetadataColumn(JavaProxy):
    """A metadata column."""

    class Java:
        implements: ClassVar = [_COLUMN]

    def __init__(self, jvm: Jvm, field: Field) -> None:
        self.jvm = jvm
        self._field = field

    def name(self) -> str:
        return self._field.name

    def dataType(self) -> Any:  # noqa: N802 - Java's name, as all of them
        return self.jvm.struct(spark_schema_json([self._field])).fields()[0].dataType()

    def isNullable(self) -> bool:  # noqa: N802
        return self._field.type.nullable

    def comment(self) -> str | None:
        return self._field.description

    def transform(self) -> Any:
        return None

    def metadataInJSON(self) -> str | None:  # noqa: N802
        return None


def metadata_columns(jvm: Jvm) -> Any:
    """Return the metadata columns of every table, as ``MetadataColumn[]``."""
    return jvm.once(_COLUMN, lambda: jvm.array(_COLUMN, [_told(jvm, field) for field in METADATA_FIELDS]))


def _told(jvm: Jvm, field: Field) -> Any:
    column = MetadataColumn(jvm, field)
    known = {
        "name": column.name(),
        "dataType": column.dataType(),
        "isNullable": column.isNullable(),
        "comment": column.comment(),
    }
    return answered(column, known)
