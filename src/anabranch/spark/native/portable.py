"""Scan through the portable door: read by Python in Spark's tasks, as with the data source ``anabranch``.

That source finds tables by the options of a read. A scan is found already, perhaps filtered, so here it is described
by an option, as JSON. SQL can write such an option too, and reads no more by it than with ``anabranch`` itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.errors import CorruptTableError, InvalidInputError
from anabranch.format.text.json_object import JsonObject
from anabranch.format.types.data_types import Field
from anabranch.scan.metadata import columns_named
from anabranch.scan.scan import Scan
from anabranch.spark.context.as_json import scan_from, scan_values
from anabranch.spark.context.registering import register
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.rows.row_reader import RowReader, snapshot_rows
from anabranch.spark.types.columns import arrow_schema, spark_schema
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.open import settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_NAME = "anabranch-scan"
_SCAN = "scan"
_REGISTERED: WeakSet[SparkSession] = WeakSet()


def portable_frame(spark: SparkSession, scan: Scan) -> DataFrame:
    """Return the rows of a scan as a DataFrame; the limit is ignored.

    Raises `InvalidInputError` if the table is in the memory of this process, which Spark's do not share.
    """
    register_scans(spark)
    return spark.read.format(_NAME).options(**_options(scan)).load()


def portable_scan(jvm: Jvm, scan: Scan) -> Any:
    """Return a DataSource V2 ``Scan`` of the JVM that outputs the columns of the scan."""
    register_scans(jvm.spark)
    options = jvm.map(_options(scan))
    source = (
        jvm.of("org.apache.spark.sql.execution.datasources.DataSource")
        .lookupDataSourceV2(_NAME, jvm.session.sessionState().conf())
        .get()
    )
    no_transforms = jvm.array("org.apache.spark.sql.connector.expressions.Transform", [])
    table = source.getTable(jvm.struct(spark_schema(chosen_fields(scan))), no_transforms, options)
    cased = jvm.of("org.apache.spark.sql.util.CaseInsensitiveStringMap")(options)
    return table.newScanBuilder(cased).build()


def chosen_fields(scan: Scan) -> tuple[Field, ...]:
    """Return the output columns of a scan, in their order."""
    return scan.schema.fields if scan.columns is None else columns_named(scan.columns, scan.schema)


class ScanSource(DataSource):
    """Data source for a scan that is described by an option."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> StructType:
        return spark_schema(chosen_fields(self._scan))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _ScanReader(self._scan)

    @property
    def _scan(self) -> Scan:
        return described_scan(self.options)


class _ScanReader(DataSourceReader):
    """Reader that plans on the driver and reads in tasks."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def partitions(self) -> Sequence[InputPartition]:
        return self._rows.partitions(self._scan.plan().splits)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    @property
    def _rows(self) -> RowReader:
        scan = self._scan
        columns = arrow_schema(chosen_fields(scan))
        return snapshot_rows(
            scan.context, scan.schema, columns, scan.predicate, snapshot=scan.snapshot, verify=scan.verify
        )

    def __getstate__(self) -> dict[str, Any]:
        # A copy without its cached plan, which is large, and not needed where rows are read.
        return {"_scan": replace(self._scan, limit=None)}


def described_scan(options: Mapping[str, str]) -> Scan:
    """Return the scan that the options describe. Raises `InvalidInputError` if they describe none."""
    text = options.get(_SCAN)
    try:
        if text is None:
            raise CorruptTableError("is missing", path=_SCAN)
        return scan_from(JsonObject.parse(text.encode("utf-8", "surrogatepass"), path=_SCAN), options)
    except CorruptTableError as error:
        raise InvalidInputError(
            f"the options of the data source '{_NAME}' describe no scan: {error.message}",
            hint="that source is for Anabranch itself; read tables as catalog.db.t, or with format('anabranch').",
        ) from error


def _options(scan: Scan) -> dict[str, str]:
    """Return options that describe the scan; credentials are separate ones, as Spark redacts such in its logs."""
    if isinstance(scan.context.storage, MemoryStorage):
        raise InvalidInputError(
            f"'{scan.context.title}' is in the memory of one process, and Spark works in several",
            hint="make a frame of its rows: spark.createDataFrame(scan.to_arrow()).",
        )
    return {**settings_of(scan.context.storage), _SCAN: json.dumps(scan_values(scan))}


def register_scans(spark: SparkSession) -> None:
    """Let the session, and later copies of it, read scans that an option describes."""
    if spark not in _REGISTERED:
        register(spark, ScanSource)
        _REGISTERED.add(spark)
