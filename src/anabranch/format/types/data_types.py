"""Column types of a table, as immutable values.

Complex types carry their element types; a `RowType` carries fields with ids. Nullability is part of the
type. `str(type)` is the spelling of Paimon's schema files for atomic types and a readable one for complex
types. Parsing and JSON are in `grammar.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

MAX_LENGTH = 2_147_483_647
"""Length of STRING and BYTES."""


@dataclass(frozen=True, slots=True)
class DataType:
    """Base of all types."""

    nullable: bool = field(default=True, kw_only=True)

    @property
    def spelling(self) -> str:
        """The type without its nullability."""
        raise AssertionError(type(self))

    def __str__(self) -> str:
        return self.spelling if self.nullable else f"{self.spelling} NOT NULL"

    def with_nullable(self, nullable: bool) -> DataType:
        """The same type with another nullability."""
        return self if nullable == self.nullable else replace(self, nullable=nullable)


@dataclass(frozen=True, slots=True)
class BooleanType(DataType):
    @property
    def spelling(self) -> str:
        return "BOOLEAN"


@dataclass(frozen=True, slots=True)
class TinyIntType(DataType):
    @property
    def spelling(self) -> str:
        return "TINYINT"


@dataclass(frozen=True, slots=True)
class SmallIntType(DataType):
    @property
    def spelling(self) -> str:
        return "SMALLINT"


@dataclass(frozen=True, slots=True)
class IntType(DataType):
    @property
    def spelling(self) -> str:
        return "INT"


@dataclass(frozen=True, slots=True)
class BigIntType(DataType):
    @property
    def spelling(self) -> str:
        return "BIGINT"


@dataclass(frozen=True, slots=True)
class FloatType(DataType):
    @property
    def spelling(self) -> str:
        return "FLOAT"


@dataclass(frozen=True, slots=True)
class DoubleType(DataType):
    @property
    def spelling(self) -> str:
        return "DOUBLE"


@dataclass(frozen=True, slots=True)
class DateType(DataType):
    @property
    def spelling(self) -> str:
        return "DATE"


@dataclass(frozen=True, slots=True)
class TimeType(DataType):
    """Time of day; values are milliseconds whatever the precision."""

    precision: int = 0

    @property
    def spelling(self) -> str:
        return f"TIME({self.precision})"


@dataclass(frozen=True, slots=True)
class TimestampType(DataType):
    """Date and time without a zone; `precision` digits of a second, 0 to 9."""

    precision: int = 6

    @property
    def spelling(self) -> str:
        return f"TIMESTAMP({self.precision})"


@dataclass(frozen=True, slots=True)
class LocalZonedTimestampType(DataType):
    """An instant; `precision` digits of a second, 0 to 9."""

    precision: int = 6

    @property
    def spelling(self) -> str:
        return f"TIMESTAMP({self.precision}) WITH LOCAL TIME ZONE"


@dataclass(frozen=True, slots=True)
class DecimalType(DataType):
    precision: int = 10
    scale: int = 0

    @property
    def spelling(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class CharType(DataType):
    length: int = 1

    @property
    def spelling(self) -> str:
        return f"CHAR({self.length})"


@dataclass(frozen=True, slots=True)
class VarCharType(DataType):
    """Text; the default length is STRING."""

    length: int = MAX_LENGTH

    @property
    def spelling(self) -> str:
        return "STRING" if self.length == MAX_LENGTH else f"VARCHAR({self.length})"


@dataclass(frozen=True, slots=True)
class BinaryType(DataType):
    length: int = 1

    @property
    def spelling(self) -> str:
        return f"BINARY({self.length})"


@dataclass(frozen=True, slots=True)
class VarBinaryType(DataType):
    """Bytes; the default length is BYTES."""

    length: int = MAX_LENGTH

    @property
    def spelling(self) -> str:
        return "BYTES" if self.length == MAX_LENGTH else f"VARBINARY({self.length})"


@dataclass(frozen=True, slots=True)
class ArrayType(DataType):
    element: DataType

    @property
    def spelling(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class MultisetType(DataType):
    """A bag; stored as a map from element to INT NOT NULL."""

    element: DataType

    @property
    def spelling(self) -> str:
        return f"MULTISET<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    key: DataType
    value: DataType

    @property
    def spelling(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column or member of a row type; `id` never changes and is never reused."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class RowType(DataType):
    fields: tuple[Field, ...]

    @property
    def spelling(self) -> str:
        return f"ROW<{', '.join(f'{f.name} {f.type}' for f in self.fields)}>"


_NESTED = (
    ArrayType,
    MultisetType,
    MapType,
    RowType,
)  # a union would be made anew for each column of each file


def is_atomic(data_type: DataType) -> bool:
    """Whether the type has no inner types."""
    return not isinstance(data_type, _NESTED)


def walk_fields(fields: tuple[Field, ...]) -> Iterator[Field]:
    """All fields, nested ones included, in the order of their declaration."""
    for f in fields:
        yield f
        if not is_atomic(f.type):
            yield from _walk_type(f.type)


def _walk_type(data_type: DataType) -> Iterator[Field]:
    match data_type:
        case RowType(fields=fields):
            yield from walk_fields(fields)
        case ArrayType(element=element) | MultisetType(element=element):
            yield from _walk_type(element)
        case MapType(key=key, value=value):
            yield from _walk_type(key)
            yield from _walk_type(value)
        case _:
            return
