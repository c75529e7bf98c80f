"""Tables that Spark is handed as frames: where its SQL does not know them, and for streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.errors import NotFoundError, OptionError
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.options import (
    CONSUMER_ID,
    SCAN_BOUNDED_WATERMARK,
    SCAN_MODE,
    SCAN_TIMESTAMP_MILLIS,
    SCAN_VERSION,
)
from anabranch.spark.kafka import definition as kafka
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.references import Reference, quoted, references, replaced
from anabranch.spark.sql.scanner import closing, matches, name_at, words_of
from anabranch.spark.streams.read_stream import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OF_STREAMS = frozenset({SCAN_BOUNDED_WATERMARK.key, CONSUMER_ID.key})
_STREAM_PREFIX = "read.stream."


class Frames:
    """Queries in which some tables are replaced by frames."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], *, everything: bool) -> None:
        """Create it for one session.

        Args:
            options: warehouse and credentials.
            everything: whether Spark's SQL knows no table of the lake, so that all of them are frames.
        """
        self._spark = spark
        self._options = dict(options)
        self._everything = everything

    def query(self, text: str, names: Names, *, inserted: bool = False) -> DataFrame:
        """Return the frame of a statement whose tables may be frames. Raises `NotFoundError`, `OptionError`.

        Args:
            names: what names mean.
            inserted: whether its rows are inserted: then topics are read as streams.
        """
        found = [
            (reference, name)
            for reference in references(text)
            if (name := self._needed(reference, names)) is not None
        ]
        if not found:
            return self._spark.sql(text)
        view = temporary_view(text)
        if view is not None:
            view.define(self.query(view.query, names, inserted=inserted))
            return self._spark.createDataFrame([], "done BOOLEAN").drop("done")
        frames = {
            f"t{number}": self.table(
                name, reference, names, streaming=self._is_stream(name, reference, names, inserted)
            )
            for number, (reference, name) in enumerate(found)
        }
        # Marks that no statement has stand for the frames' names until all braces are doubled, as PySpark wants it.
        marks = [f"\0{key}\0" for key in frames]
        spliced = replaced(text, [(r, mark) for (r, _), mark in zip(found, marks, strict=True)])
        spliced = spliced.replace("{", "{{").replace("}", "}}")
        for mark in marks:
            spliced = spliced.replace(mark, "{" + mark.strip("\0") + "}")
        return self._spark.sql(spliced, **frames)  # type: ignore[arg-type]

    def has_stream(self, text: str, names: Names) -> bool:
        """Whether this query, when inserted, reads a stream, endless or bounded."""
        return any(
            names.table(reference.parts) is not None
            if _asks_for_stream(reference.options)
            else names.elsewhere(reference.parts) is not None
            for reference in references(text)
        )

    def table(self, name: str, reference: Reference, names: Names, *, streaming: bool) -> DataFrame:
        """Return the frame that represents a table."""
        definition = names.connector(name)
        if definition is not None:
            if reference.version is not None or reference.timestamp is not None:
                raise OptionError(f"'{name}' is a topic: it has no past", hint="leave AS OF out.")
            return kafka.frame(self._spark, definition, reference.options, streaming=streaming)
        options = {**self._options, **self._moment(reference), **reference.options}
        if streaming:
            return read_stream(self._spark, name, **options)
        return self._spark.read.format("anabranch").options(**options).load(name)

    def _moment(self, reference: Reference) -> dict[str, str]:
        if reference.version is not None:
            return {SCAN_VERSION.key: reference.version}
        if reference.timestamp is None:
            return {}
        millis = self._spark.sql(f"SELECT unix_millis(CAST(({reference.timestamp}) AS TIMESTAMP))").first()
        if millis is None or millis[0] is None:
            raise OptionError(
                f"{reference.timestamp} is no time", hint="write TIMESTAMP AS OF '2026-01-31 12:00:00'."
            )
        return {SCAN_TIMESTAMP_MILLIS.key: str(millis[0])}

    def _needed(self, reference: Reference, names: Names) -> str | None:
        """Return the table's name if Spark cannot find it by itself, else None."""
        if not self._everything and not _asks_for_stream(reference.options):
            return names.elsewhere(reference.parts)
        name = names.table(reference.parts)
        if name is not None and name.partition(".")[0] != SYSTEM_DATABASE and not names.has(name):
            raise NotFoundError(
                f"table '{names.catalog}.{name}' does not exist",
                hint=f"SHOW TABLES IN {names.catalog}.{name.partition('.')[0]} lists those there are.",
            )
        return name

    def _is_stream(self, name: str, reference: Reference, names: Names, inserted: bool) -> bool:
        return _asks_for_stream(reference.options) or (inserted and names.connector(name) is not None)


def _asks_for_stream(options: Mapping[str, str]) -> bool:
    """Whether the options of a read imply a stream, as only streams have them."""
    if any(key in _OF_STREAMS or key.startswith(_STREAM_PREFIX) for key in options):
        return True
    named = any(option.key in options for option in MOMENT_OPTIONS)
    return SCAN_MODE.key in options and SCAN_MODE.of(options) == "latest" and not named


_HOW = tuple(
    (*start, *kind)
    for start in (("CREATE",), ("CREATE", "OR", "REPLACE"))
    for kind in (
        ("TEMPORARY", "VIEW"),
        ("TEMP", "VIEW"),
        ("GLOBAL", "TEMPORARY", "VIEW"),
        ("GLOBAL", "TEMP", "VIEW"),
    )
)


@dataclass(frozen=True)
class TemporaryView:
    """View that lives as long as the session, or the application."""

    name: str
    query: str
    columns: tuple[str, ...] = ()
    replaces: bool = False
    is_global: bool = False

    def define(self, frame: DataFrame) -> None:
        """Create the view from the frame of its query."""
        rows = frame.toDF(*self.columns) if self.columns else frame
        match self.is_global, self.replaces:
            case True, True:
                rows.createOrReplaceGlobalTempView(quoted(self.name))
            case True, False:
                rows.createGlobalTempView(quoted(self.name))
            case False, True:
                rows.createOrReplaceTempView(quoted(self.name))
            case _:
                rows.createTempView(quoted(self.name))


def temporary_view(statement: str) -> TemporaryView | None:
    """Parse CREATE TEMPORARY VIEW; None for other statements, or if it has more than names and a query."""
    words = words_of(statement)
    how = next((how for how in _HOW if matches(words, 0, *how)), None)
    if how is None:
        return None
    name, place = name_at(words, len(how))
    columns: tuple[str, ...] = ()
    if matches(words, place, "("):
        end = closing(words, place)
        columns, place = tuple(w.name for w in words[place + 1 : end : 2]), end + 1
    if len(name) != 1 or not matches(words, place, "AS") or place + 1 >= len(words):
        return None
    query = statement[words[place + 1].start :].rstrip().rstrip(";")
    return TemporaryView(name[0], query, columns, "REPLACE" in how, "GLOBAL" in how)
