"""The sources of a job: tables of the lake, Kafka topics, files, or whatever Spark reads.

Sources are values that are made without Spark; they become DataFrames when the job is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.catalog import Identifier
from anabranch.errors import InvalidInputError, OptionError
from anabranch.kernel.refs.moments import MOMENT_OPTIONS
from anabranch.options import CONSUMER_ID, SCAN_MODE, SCAN_START_OFFSET

_STARTS = {SCAN_MODE.key, SCAN_START_OFFSET.key, CONSUMER_ID.key, *(option.key for option in MOMENT_OPTIONS)}
"""Options that say where a stream of a table begins."""

SourceKind = Literal["table", "static", "kafka", "files", "function"]
Options = Mapping[str, str | int | bool] | None


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a job."""

    kind: SourceKind
    """``table``: a table as a stream; ``static``: a table as it is when the job starts; the others are what they say."""
    name: str
    """The table, the topics, the folder of the files, or the name of the function."""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Options of the read, by name."""
    format: str | None = None
    """Format of files."""
    schema: Any = field(default=None, hash=False, compare=False)
    """Schema of files: DDL text, or a Spark schema; None to infer it from the folder, which then must have some."""
    function: Callable[[Any], Any] | None = field(default=None, compare=False)
    """Makes the DataFrame from the session."""

    @property
    def is_table(self) -> bool:
        """Whether it is a table of the lake, as a stream or as it is."""
        return self.kind in ("table", "static")

    @property
    def is_stream(self) -> bool | None:
        """Whether it never ends; None if only Spark can tell."""
        return None if self.kind == "function" else self.kind != "static"

    @property
    def begins_anywhere(self) -> bool:
        """Whether it is declared to begin elsewhere than with all rows there are: where that is depends on when it is begun."""
        keys = {key.lower(): value for key, value in self.options.items()}
        if self.kind == "kafka":
            return keys.get("startingoffsets") != "earliest"
        return self.kind == "table" and not _STARTS.isdisjoint(keys)

    @property
    def table(self) -> str | None:
        """The table without its branch; None for other sources."""
        return Identifier.parse(self.name).full_name if self.is_table else None

    @property
    def names_branch(self) -> bool:
        """Whether it names a branch of a table, rather than main."""
        return self.is_table and Identifier.parse(self.name).branch is not None

    def __str__(self) -> str:
        what = {"table": "table", "static": "static table", "kafka": "Kafka", "files": f"{self.format} files"}
        return f"{what.get(self.kind, 'function')} {self.name}"


def stream(table: str, options: Options = None) -> Source:
    """Declare a table as a stream: by default all its rows, then what is added.

    Args:
        table: ``database.table``, also with a branch.
        options: of the read, such as ``{"scan.mode": "latest"}``.

    Example:
        >>> source = anabranch.stream("db.orders", {"scan.mode": "latest"})
        >>> source.kind, source.name
        ('table', 'db.orders')
    """
    return Source("table", _table(table), text_options(options))


def static(table: str, at: str | int | None = None, options: Options = None) -> Source:
    """Declare a table as of the job's start, to look things up in. Each start of the job takes the newest snapshot.

    Args:
        table: ``database.table``, also with a branch.
        at: a moment instead, as `anabranch.Table.at` takes it: a tag, ``snapshot.5``.
        options: of the read, such as ``{"scan.columns": "id, name"}``.

    Example:
        >>> anabranch.static("db.customers", at="good").options
        {'scan.version': 'good'}
    """
    given = text_options(options)
    if at is not None:
        given["scan.version"] = str(at)
    return Source("static", _table(table), given)


def topic(topics: str, servers: str, options: Options = None) -> Source:
    """Declare Kafka topics as a stream, with the columns of Spark's own Kafka source.

    Args:
        topics: their names, separated by commas.
        servers: ``host:port`` of brokers, separated by commas.
        options: of the source ``anabranch-kafka``, such as ``{"startingOffsets": "earliest"}``; with ``subscribePattern``
            or ``assign`` these say what is read, and `topics` is only what people call it.

    Example:
        >>> anabranch.topic("orders", "broker:9092").name
        'orders'
    """
    if not str(topics).strip():
        raise OptionError(
            "the Kafka source was not told what to read", hint='write anabranch.topic("orders", ...).'
        )
    given = text_options(options)
    chosen = {} if {"subscribePattern", "assign"} & given.keys() else {"subscribe": topics}
    return Source("kafka", topics, {"kafka.bootstrap.servers": servers, **chosen, **given})


def files(folder: str, format: str = "parquet", *, schema: Any = None, options: Options = None) -> Source:
    """Declare files that arrive in a folder, as a stream, read by Spark.

    Args:
        folder: path or URL.
        format: ``parquet``, ``csv``, ``json``, or another that Spark streams.
        schema: their columns: DDL text or a ``StructType``; of the files that are there when the job starts if None.
        options: of Spark's reader.

    Example:
        >>> anabranch.files("/data/arriving", "csv", schema="id BIGINT, price DOUBLE").format
        'csv'
    """
    return Source("files", str(folder), text_options(options), format=format, schema=schema)


def source_of(value: Any, name: str) -> Source:
    """Convert a declared source: a `Source`, the name of a table, or a function of the session.

    Raises `InvalidInputError` naming the source.
    """
    match value:
        case Source():
            return value
        case str():
            return stream(value)
    if callable(value):
        return Source("function", getattr(value, "__name__", name), function=value)
    raise InvalidInputError(
        f"source '{name}' is {value!r}, which is no source",
        hint='give the name of a table, such as "db.orders", anabranch.stream(...), static(...), topic(...) or '
        "files(...), or a function of the SparkSession that returns a DataFrame.",
    )


def _table(name: str) -> str:
    identifier = Identifier.parse(name)
    if identifier.system is not None:
        raise InvalidInputError(
            f"'{name}' is a system table, which no job can follow", hint="name the table itself."
        )
    return name


def text_options(given: Options) -> dict[str, str]:
    """Return options as text."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (given or {}).items()
    }
