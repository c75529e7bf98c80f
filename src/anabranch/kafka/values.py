"""Record values as rows: JSON by column names, CSV by position; and the handling of unreadable ones.

A record that cannot be read is an error that names topic, partition, offset and its first bytes; or it is left out and
counted; or it goes to a table of dead letters (`anabranch.spark.source.dead_letters`).
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from anabranch.errors import InvalidInputError, OptionError
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.types.data_types import DecimalType, Field
from anabranch.kafka.converters import BadValueError, Convert, row_of, row_of_texts, struct_of
from anabranch.kafka.registry import Registry
from anabranch.option_kinds import Option

if TYPE_CHECKING:
    from confluent_kafka import Message

    from anabranch.kafka.offsets import TopicPartition

_LOG = logging.getLogger(__name__)
ROW = "row"
"""Name of the additional column of decoded values; NULL for a record without a value."""
FAIL, SKIP, DEAD_LETTER = "fail", "skip", "dead-letter"
_SHOWN: Final = 60
"""Number of first bytes of a record that an error shows."""


def _one_of(*known: str) -> Any:
    def parse(text: str) -> str:
        if text.strip().lower() not in known:
            raise ValueError(text)
        return text.strip().lower()

    return parse


FORMAT: Final[Option[str | None]] = Option(
    "value.format",
    _one_of("json", "csv", "avro"),
    None,
    "Read the values of records: json and avro by the exact names of the columns, csv by their places. Adds the column row.",
    "json, csv or avro",
)
SCHEMA: Final[Option[str | None]] = Option(
    "value.schema",
    str,
    None,
    "The columns of the values, such as 'id BIGINT NOT NULL, v STRING'.",
    "DDL text",
)
ON_ERROR: Final = Option(
    "value.on-error",
    _one_of(FAIL, SKIP, DEAD_LETTER),
    FAIL,
    "What becomes of records that cannot be read: fail (default), skip, which counts them in the log, or dead-letter, "
    "which writes them to the table that 'dead-letter.table' names.",
    "fail, skip or dead-letter",
)
TABLE: Final[Option[str | None]] = Option(
    "dead-letter.table",
    str,
    None,
    "Table of the warehouse for records that cannot be read; it is made if it is not there.",
    "database.table",
)
WAREHOUSE: Final[Option[str | None]] = Option(
    "warehouse", str, None, "The warehouse of 'dead-letter.table'.", "path or URL"
)
ZONE: Final = Option(
    "value.time-zone",
    str,
    "UTC",
    "Zone of times in values that have none, for columns that are instants.",
    "zone",
)
REGISTRY: Final = "value.schema-registry."
"""Prefix of settings of the schema registry's client; with a url, values have its serializers' format."""
OPTIONS: Final[tuple[Option[Any], ...]] = (FORMAT, SCHEMA, ON_ERROR, TABLE, WAREHOUSE, ZONE)


@dataclass(frozen=True)
class ValueSettings:
    """Settings for decoding values. Picklable."""

    format: str
    fields: tuple[Field, ...]
    on_error: str = FAIL
    zone: str = "UTC"
    table: str | None = None
    """Table of dead letters."""
    warehouse: str | None = None
    """Warehouse of the table of dead letters."""
    registry: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of the schema registry's client, with credentials; empty without a registry."""

    @property
    def column(self) -> pa.Field:
        """Additional column of a read, with the decoded values."""
        return pa.field(ROW, struct_of(self.fields))


def value_settings(named: Mapping[str, str]) -> ValueSettings | None:
    """Parse the options; None if values stay as they are. Raises `OptionError`, `SchemaError`."""
    format, schema = FORMAT.of(named), SCHEMA.of(named)
    if format is None:
        unused = [option.key for option in OPTIONS if option.key in named and option is not WAREHOUSE]
        unused += [key for key in named if key.startswith(REGISTRY)]
        if unused:
            raise OptionError(
                f"'{unused[0]}' is given without '{FORMAT.key}'", hint="say what values are: json or csv."
            )
        return None
    if schema is None:
        raise OptionError(
            f"'{FORMAT.key}' is given without '{SCHEMA.key}'", hint="name the columns: 'id BIGINT, v STRING'."
        )
    zone, table, on_error = ZONE.of(named), TABLE.of(named), ON_ERROR.of(named)
    if (on_error == DEAD_LETTER) != (table is not None):
        raise OptionError(
            f"'{ON_ERROR.key}' is '{on_error}', and '{TABLE.key}' is {'not set' if table is None else repr(table)}",
            hint=f"dead letters need both: '{ON_ERROR.key}' = '{DEAD_LETTER}' and '{TABLE.key}' = 'db.rejected'.",
        )
    registry = {key.removeprefix(REGISTRY): value for key, value in named.items() if key.startswith(REGISTRY)}
    if ("url" in registry) != (bool(registry) or format == "avro") or (registry and format == "csv"):
        raise OptionError(
            f"'{FORMAT.key}' is '{format}', and '{REGISTRY}url' is {registry.get('url', 'not set')}",
            hint="avro needs a schema registry, and json may have one.",
        )
    settings = ValueSettings(
        format,
        parse_columns(schema),
        on_error,
        zone,
        table,
        WAREHOUSE.of(named),
        tuple(sorted(registry.items())),
    )
    ValueReader(settings)  # that it can be made
    return settings


@dataclass
class Unreadable:
    """A record that cannot be read."""

    message: Message
    reason: str


@dataclass
class ValueReader:
    """Decoder of values. It collects unreadable ones, if these are not errors."""

    settings: ValueSettings
    unreadable: list[Unreadable] = field(default_factory=list)
    """Unreadable records since they were last taken."""

    def __post_init__(self) -> None:
        try:
            zone = ZoneInfo(self.settings.zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise OptionError(
                f"'{self.settings.zone}' is no time zone", hint="write for example Europe/Berlin."
            ) from None
        fields = self.settings.fields
        self._struct = struct_of(fields)
        self._exact = any(isinstance(f.type, DecimalType) for f in fields)
        is_csv = self.settings.format == "csv"
        self._convert: Convert = (row_of_texts if is_csv else row_of)(fields, zone)
        self._read: Callable[[bytes], Any] = self._csv if is_csv else self._json
        if self.settings.registry:
            self._read = Registry(dict(self.settings.registry)).decoded

    def read(self, messages: Sequence[Message], where: TopicPartition) -> tuple[list[Message], pa.Array]:
        """Return the readable records, and their column `row`. Raises `InvalidInputError`."""
        rows: list[Any] = []
        kept: list[Message] = []
        for message in messages:
            value = message.value()
            try:
                rows.append(None if value is None else self._convert(self._read(_bytes(value))))
                kept.append(message)
            except BadValueError as error:
                if self.settings.on_error == FAIL:
                    self._fail(message, where, str(error))
                self.unreadable.append(Unreadable(message, str(error)))
        return kept, pa.array(rows, self._struct)

    def told(self, unreadable: Unreadable, where: TopicPartition) -> str:
        """Return a one-line message about an unreadable record."""
        value = _bytes(unreadable.message.value() or b"")
        shown = repr(value[:_SHOWN])[1:] + (f" ... ({len(value)} bytes)" if len(value) > _SHOWN else "")
        return (
            f"the record of topic '{where.topic}', partition {where.partition}, at offset {unreadable.message.offset()} "
            f"cannot be read as {self.settings.format}: it {unreadable.reason}; it begins with {shown}"
        )

    def count(self, where: TopicPartition) -> None:
        """Report skipped records in the log."""
        if self.unreadable:
            first = self.told(self.unreadable[0], where)
            _LOG.warning("%d records of %s were left out; the first: %s", len(self.unreadable), where, first)
            self.unreadable.clear()

    def _fail(self, message: Message, where: TopicPartition, reason: str) -> NoReturn:
        raise InvalidInputError(
            self.told(Unreadable(message, reason), where),
            hint=f"mend the producer; or set '{ON_ERROR.key}' to '{SKIP}', or to '{DEAD_LETTER}' with '{TABLE.key}'.",
        )

    def _json(self, value: bytes) -> Any:
        try:
            text = value.decode()
            found = json.loads(text, parse_constant=_refuse, parse_float=Decimal if self._exact else None)
        except UnicodeDecodeError:
            raise BadValueError("is no text in UTF-8") from None
        except RecursionError:
            raise BadValueError("is nested too deep") from None
        except ValueError as error:
            raise BadValueError(f"is no JSON ({str(error)[:100]})") from None
        return found

    def _csv(self, value: bytes) -> list[str]:
        try:
            lines = list(csv.reader(value.decode().removesuffix("\n").splitlines(keepends=True), strict=True))
        except UnicodeDecodeError:
            raise BadValueError("is no text in UTF-8") from None
        except csv.Error as error:
            raise BadValueError(f"is no CSV ({error})") from None
        if len(lines) != 1:
            raise BadValueError(f"is {len(lines)} lines" if lines else "is empty")
        return lines[0]


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
