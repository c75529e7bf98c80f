"""``CALL lake.sys.<verb>(...)`` where Spark's SQL does not know the procedures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidInputError, NotFoundError, SqlError
from anabranch.format.text.names import SYSTEM_DATABASE
from anabranch.spark.catalog.called import TABLE, CalledIn, Parameter, Verb, arguments, called, procedure
from anabranch.spark.context.attached import known_options
from anabranch.spark.sql.names import Names
from anabranch.spark.sql.reader import WordReader
from anabranch.spark.sql.scanner import Word, matches
from anabranch.spark.sql.tables import TableStatements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def call(spark: SparkSession, names: Names, tables: TableStatements, reader: WordReader) -> DataFrame:
    """Execute the rest of a CALL statement. Raises `NotFoundError`, `InvalidInputError`, and what the verb does."""
    parts = reader.name("a procedure")
    own = f"{names.catalog}.{SYSTEM_DATABASE}"
    if ".".join(parts[:-1]) not in (own, SYSTEM_DATABASE):
        raise NotFoundError(
            f"there is no procedure '{'.'.join(parts)}'",
            hint=f"procedures are in {own}: CALL {own}.{parts[-1]}(...).",
        )
    found = procedure(parts[-1])
    words = reader.inside("( ... )")
    reader.end()
    given = _values(spark, _texts(reader, words, found), found)
    table = None
    if TABLE in arguments(found):
        name = given.get(TABLE.name)
        if name is None:
            raise NotFoundError("no table is named", hint="write table => 'db.t'.")
        table = tables.open(name.removeprefix(f"{names.catalog}.") if name.count(".") > 1 else name)
    rows = called(found, table, CalledIn(spark, names.files, known_options(spark)), given)
    return spark.createDataFrame(rows, str(found.columns))


def _texts(reader: WordReader, words: list[Word], found: Verb) -> dict[str, str]:
    """Return the texts of the arguments, by parameter name."""
    parameters = _parameters(found)
    given: dict[str, str] = {}
    for place, argument in enumerate(_split(words)):
        named = matches(argument, 1, "=>")
        if not named and place >= len(parameters):
            raise InvalidInputError(
                f"procedure '{found.sql_name}' takes {len(parameters)} arguments",
                hint=f"they are: {', '.join(parameters)}.",
            )
        name = argument[0].name.lower() if named else list(parameters)[place]
        if name not in parameters:
            raise InvalidInputError(
                f"procedure '{found.sql_name}' has no argument '{name}'",
                hint=f"they are: {', '.join(parameters)}.",
            )
        if name in given:
            raise SqlError(f"argument '{name}' is given twice", hint="leave one out.")
        given[name] = reader.span(argument[2:] if named else argument)
    return given


def _parameters(found: Verb) -> dict[str, Parameter]:
    return {parameter.sql_name: parameter for parameter in arguments(found)}


def _split(words: list[Word]) -> list[list[Word]]:
    found: list[list[Word]] = [[]] if words else []
    depth = 0
    for word in words:
        depth += word.is_("(") - word.is_(")")
        if word.is_(",") and depth == 0:
            found.append([])
        else:
            found[-1].append(word)
    return found


def _values(spark: SparkSession, texts: dict[str, str], found: Verb) -> dict[str, Any]:
    """Return the values of the arguments, as computed by Spark."""
    types = {name: p.sql_type for name, p in _parameters(found).items()}
    if not texts:
        return {}
    row = spark.sql(
        "SELECT " + ", ".join(f"CAST(({text}) AS {types[name]})" for name, text in texts.items())
    ).first()
    assert row is not None, "a query without FROM has one row"
    return dict(zip(texts, row, strict=True))
