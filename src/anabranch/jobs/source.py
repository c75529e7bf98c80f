"""The sources of a job: tables of the lake, Kafka topics, files, or whatever Spark reads.

Sources are values that are made without Spark; they become DataFrames when the job is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.catalog import Identifier
from anabranch.errors import InvalidInputError, NotFoundError, OptionError
from anabranch.kafka.cluster import Cluster
from anabranch.kafka.offsets import EARLIEST, TopicPartition, from_json, ids_from_json, to_json
from anabranch.kafka.options import KafkaSettings, settings_of
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


# Checks whether topics still have the records that follow a recorded position.
#
# A job that begins at a position of another one reads what that one read, or its table lacks rows. So records that are gone
# are an error here whatever `failOnDataLoss` says, which is about what a running query may skip.

STARTING_OFFSETS = "startingOffsets"
FILES_READ = "anabranch.files-read"
"""Where a source of files begins, as Spark's log of them says: no option of Spark's, but found in a former checkpoint."""
_HINT = "choose a tag whose records the topic still has, and give the topic a longer retention than tags are kept."


def check_kept(source: Source, options: Mapping[str, str]) -> None:
    """Raise `NotFoundError` if a topic has lost records that follow the position at which a job is to begin.

    Args:
        source: the topics.
        options: those that say where the source begins.
    """
    text = options.get(STARTING_OFFSETS)
    if text is None:
        return
    with _cluster(source, options) as (_, cluster):
        _check(cluster, json.loads(text), source)


def check_rereadable(source: Source, begin: str) -> None:
    """Raise `NotFoundError` if topics cannot be read again from where a query began, with every record it read.

    Args:
        source: the topics.
        begin: the offsets as JSON, or ``earliest`` where only that is known: then all records must be there.
    """
    with _cluster(source, {STARTING_OFFSETS: begin}) as (settings, cluster):
        for topic in sorted({where.topic for where in cluster.partitions(settings.topics)}):
            if cluster.is_compacted(topic):
                raise NotFoundError(
                    f"{source}: topic '{topic}' is compacted: of records with the same key that were read only the newest "
                    "may be left",
                    hint=_HINT,
                )
        if begin != "earliest":
            _check(cluster, json.loads(begin), source)
            return
        there = cluster.partitions(settings.topics)
        cluster.check_exist(settings.topics, there)
        _check(cluster, to_json(dict.fromkeys(there, 0)), source)


def with_new_partitions(source: Source, options: Mapping[str, str]) -> str:
    """Return starting offsets, adding new partitions of the topics from their first record, as a stream does."""
    with _cluster(source, options) as (settings, cluster):
        there = cluster.partitions(settings.topics)
    value = json.loads(options[STARTING_OFFSETS])
    start = from_json(value)
    return json.dumps(
        to_json({**dict.fromkeys(there - start.keys(), EARLIEST), **start}, ids_from_json(value))
    )


def _check(cluster: Cluster, value: Any, source: Source) -> None:
    begin, ids = from_json(value), ids_from_json(value)
    for topic, found in sorted(cluster.ids(ids).items()):
        if found != ids[topic]:
            raise NotFoundError(
                f"{source}: topic '{topic}' was deleted and made anew since (its id was {ids[topic]}, and is {found}): the "
                "records that are to be read are gone",
                hint=_HINT,
            )
    earliest, latest = cluster.earliest(begin), cluster.latest(begin)
    for where, asked in sorted(begin.items()):
        wrong = _lost(where, asked, earliest.get(where), latest.get(where))
        if wrong is not None:
            raise NotFoundError(f"{source}: {wrong}", hint=_HINT)


def _lost(where: TopicPartition, asked: int, earliest: int | None, latest: int | None) -> str | None:
    if earliest is None or latest is None:
        return f"{where}: offset {asked} is to be read next, but the partition does not exist any more"
    if 0 <= asked < earliest:
        return (
            f"{where}: offset {asked} is to be read next, but the earliest record the brokers still have is at offset "
            f"{earliest}: {earliest - asked} offsets were removed since"
        )
    if asked > latest:
        return (
            f"{where}: offset {asked} is to be read next, but the partition ends at offset {latest}: the brokers lost "
            "records they had acknowledged, or the topic was made anew"
        )
    return None


@contextmanager
def _cluster(source: Source, options: Mapping[str, str]) -> Iterator[tuple[KafkaSettings, Cluster]]:
    kept = {key: value for key, value in source.options.items() if not key.lower().startswith("starting")}
    settings = settings_of({**kept, **options}, streaming=True)
    cluster = Cluster(settings.client, settings.patience_millis / 1000)
    try:
        yield settings, cluster
    finally:
        cluster.close()
