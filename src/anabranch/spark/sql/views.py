"""Temporary views: made from frames, since Spark keeps only their text, which cannot contain frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.spark.sql.references import name_at, quoted
from anabranch.spark.sql.scanner import closing, matches, words_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
