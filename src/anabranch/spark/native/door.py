"""Choice of the door for a read: Spark's own Parquet reader, or the portable Python data source."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from anabranch.format.records.layout import Layout
from anabranch.format.types.data_types import Field
from anabranch.kernel.log.cache import MetadataCache
from anabranch.spark.jvm.proxy import Jvm
from anabranch.spark.native.generations import Generation, Obstacle, generations
from anabranch.spark.native.internals import missing, reachable, unsupported
from anabranch.spark.native.planned_files import hadoop_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.arrow.writer import WriteContext
    from anabranch.kernel.log.context import TableContext
    from anabranch.scan.scan import Scan

_LOG = logging.getLogger(__name__)
_REACHED_BYTES = 1 << 20
"""Cache size for names of files known to be reachable, so that not every query checks them again."""
_MOST_TOLD = 10_000
_TOLD: set[tuple[str, str, str]] = set()
"""Tables and reasons for the portable door that this process has logged already."""


def native_generations(
    spark: SparkSession, scan: Scan, wanted: Sequence[Field]
) -> list[Generation] | Obstacle:
    """Return how Spark's own reader reads a scan, or why it cannot.

    It can where the session is a classic one of a version whose internals are known, where all files are Parquet
    and Hadoop reaches them, and where each is of a schema that reads as the table's without failing. In all other
    cases the portable door does, more slowly.

    Args:
        scan: what to read.
        wanted: the columns to read, as the scan has them.
    """
    reason = impossible(spark) or _reason(spark, scan)
    if reason is not None:
        return Obstacle(reason)
    found = partial(generations, scan.schema, wanted, scan.plan().schema_ids, scan.context.schemas.get)
    either = found(case_sensitive=False)
    if not isinstance(either, Obstacle) and len(either) == 1 and either[0].is_plain:
        return either  # the same if names are told apart by their case, which takes a call to know
    return found(case_sensitive=spark.conf.get("spark.sql.caseSensitive", "false") == "true")


def impossible(spark: SparkSession) -> str | None:
    """Return why this session reads nothing natively; None if it can."""
    return unsupported(spark) or missing(Jvm(spark))


def unreachable(spark: SparkSession, context: TableContext, path: str, size: int) -> str | None:
    """Return why Spark does not find a file of a table; None if it does.

    Args:
        path: of the file, relative to the table.
    """
    root = hadoop_root(context.storage.url)
    if root is None:
        return _unnamed(context)
    jvm, whole = Jvm(spark), f"{root}/{path}"
    reached = jvm.once("files that Hadoop reaches", lambda: MetadataCache(_REACHED_BYTES))
    key = (whole, str(size))
    if reached.get(key):
        return None
    try:
        reason = reachable(jvm, whole, size)
    except Py4JError as error:
        return not_as_expected(error)
    if reason is None:
        reached.put(key, True, len(whole))
    return reason


def foreign(formats: Collection[str]) -> str | None:
    """Return why files of those formats cannot be read natively; None if they can."""
    others = sorted({*formats} - {"parquet"})
    return f"there are files of format {', '.join(others)}" if others else None


def not_as_expected(error: Exception) -> str:
    """Return an error of Spark's internals as a reason to use the portable door."""
    return f"Spark's internals are not as expected: {str(error).splitlines()[0]}"


def _reason(spark: SparkSession, scan: Scan) -> str | None:
    plan = scan.plan()
    if plan.files.height == 0:
        return None if hadoop_root(scan.context.storage.url) else _unnamed(scan.context)
    first = plan.files.row(0, named=True)
    path = f"{Layout().bucket_path(plan.folders[first['folder']], first['bucket'])}/{first['file_name']}"
    return foreign(plan.formats) or unreachable(spark, scan.context, path, first["file_size"])


def _unnamed(context: TableContext) -> str:
    return f"Hadoop, through which Spark reads files, has no name for {context.storage.url}"


def tell(context: TableContext, obstacle: Obstacle, *, stream: bool = False) -> None:
    """Log that a table is read through the portable door, and why: each reason once per table.

    Args:
        stream: whether batches of a stream are.
    """
    what = f"batches of the stream of {context.title} go" if stream else f"{context.title} is read"
    without = "without Spark's own Parquet reader and without Spark's filters leaving out files"
    _tell_once(context.storage.url, what, without, obstacle)


def tell_written(context: WriteContext, name: str, obstacle: Obstacle) -> None:
    """Log that a table is written through the portable door, by slower Python processes, and why."""
    _tell_once(context.storage.url, f"{name} is written", "by processes of Python", obstacle)


def _tell_once(url: str, what: str, how: str, obstacle: Obstacle) -> None:
    key = (url, obstacle.reason, what)
    if key in _TOLD:
        return
    if len(_TOLD) >= _MOST_TOLD:
        _TOLD.clear()
    _TOLD.add(key)
    _LOG.warning("%s through the portable door, %s: %s.", what, how, obstacle.reason)
