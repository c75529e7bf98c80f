"""Types as text and as JSON, both ways.

Schema files spell atomic types as text and complex ones as objects; column lists in SQL spell complex
types as text too. One grammar reads the text of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.errors import CorruptTableError, SchemaError, UnsupportedFeatureError
from anabranch.format.text.json_object import JsonObject, describe
from anabranch.format.text.tokens import Token, TokenKind, Tokens
from anabranch.format.types import data_types as t

MAX_DEPTH = 100
"""How many types may stand inside each other."""

MAX_FIELD_ID = 2**31 - 1
UNASSIGNED_ID = -1
"""Id of a field that no schema has numbered yet."""


def parse_type(value: Any, *, where: str) -> t.DataType:
    """A type from a schema file.

    Args:
        value: the parsed JSON, text or an object.
        where: path of the file, for errors.

    Raises:
        CorruptTableError: the JSON does not spell a type.
        UnsupportedFeatureError: the type is one this version does not implement.
    """
    return _JsonTypes(where).type(value, "the type", 1)


def parse_fields(values: list[Any], *, where: str) -> tuple[t.Field, ...]:
    """The fields of a schema file's ``fields``; raises as `parse_type` does. Ids and names are not compared."""
    return _JsonTypes(where).fields(values, "", 1)


def type_to_json(data_type: t.DataType) -> str | dict[str, Any]:
    """The type as schema files spell it."""
    suffix = "" if data_type.nullable else " NOT NULL"
    match data_type:
        case t.ArrayType(element=element):
            return {"type": f"ARRAY{suffix}", "element": type_to_json(element)}
        case t.MultisetType(element=element):
            return {"type": f"MULTISET{suffix}", "element": type_to_json(element)}
        case t.MapType(key=key, value=value):
            return {"type": f"MAP{suffix}", "key": type_to_json(key), "value": type_to_json(value)}
        case t.RowType(fields=fields):
            return {"type": f"ROW{suffix}", "fields": [field_to_json(f) for f in fields]}
        case _:
            return str(data_type)


def field_to_json(f: t.Field) -> dict[str, Any]:
    """The field as schema files spell it; what is absent is left out."""
    result: dict[str, Any] = {"id": f.id, "name": f.name, "type": type_to_json(f.type)}
    if f.description is not None:
        result["description"] = f.description
    if f.default is not None:
        result["defaultValue"] = f.default
    return result


def parse_sql_type(text: str) -> t.DataType:
    """A type as SQL spells it, such as ``DECIMAL(10, 2) NOT NULL`` or ``ARRAY<ROW<a INT, b STRING>>``.

    ``STRUCT<a: INT>`` is a ROW, ``TIMESTAMP_NTZ`` a TIMESTAMP. TIMESTAMP has no zone. Fields get the id -1.

    Raises:
        SchemaError: the text does not spell a type; names the position.
        UnsupportedFeatureError: the type is one this version does not implement.
    """
    tokens = Tokens(text)
    result = read_type(tokens)
    tokens.expect_end("the end of the type")
    return result


def read_type(tokens: Tokens, *, depth: int = 1) -> t.DataType:
    """Take a type, with its nullability, from the tokens of a longer text; raises as `parse_sql_type` does."""
    if depth > MAX_DEPTH:
        tokens.fail(f"types are nested more than {MAX_DEPTH} deep")
    return _read_nullability(tokens, _read_nested(tokens, depth))


def check_depth(data_type: t.DataType) -> None:
    """Raise `SchemaError` if more than `MAX_DEPTH` types stand inside each other."""
    level: list[t.DataType] = [data_type]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in inner_types(outer)]
        if not level:
            return
    raise SchemaError(f"types are nested more than {MAX_DEPTH} deep")


def inner_types(data_type: t.DataType) -> tuple[t.DataType, ...]:
    """The types directly inside a type; none for atomic types."""
    match data_type:
        case t.ArrayType(element=element) | t.MultisetType(element=element):
            return (element,)
        case t.MapType(key=key, value=value):
            return (key, value)
        case t.RowType(fields=fields):
            return tuple(f.type for f in fields)
        case _:
            return ()


class _JsonTypes:
    """Reads the types of one file; `name` in its methods is what a message calls the thing being read."""

    def __init__(self, where: str) -> None:
        self._where = where

    def type(self, value: Any, name: str, depth: int) -> t.DataType:
        if depth > MAX_DEPTH:
            raise self._corrupt(f"types are nested more than {MAX_DEPTH} deep")
        if isinstance(value, str):
            return self._from_text(value, name, _read_atomic)
        if not isinstance(value, dict):
            raise self._corrupt(f"{name} has the type {describe(value)}, expected text or an object")
        content = JsonObject(value, self._where)
        outer = self._from_text(content.text("type"), name, _read_outer)
        match outer:
            case t.ArrayType() | t.MultisetType():
                element = self.type(value.get("element"), f"{name}.element", depth + 1)
                return type(outer)(element, nullable=outer.nullable)
            case t.MapType():
                key = self.type(value.get("key"), f"{name}.key", depth + 1)
                item = self.type(value.get("value"), f"{name}.value", depth + 1)
                return t.MapType(key, item, nullable=outer.nullable)
            case _:
                fields = self.fields(content.items("fields"), f"{name}.", depth + 1)
                return t.RowType(fields, nullable=outer.nullable)

    def fields(self, values: list[Any], prefix: str, depth: int) -> tuple[t.Field, ...]:
        return tuple(self._field(value, prefix, depth) for value in values)

    def _field(self, value: Any, prefix: str, depth: int) -> t.Field:
        if not isinstance(value, dict):
            raise self._corrupt(f"a field is {describe(value)}, expected an object")
        content = JsonObject(value, self._where)
        name = content.text("name")
        if not name:
            raise self._corrupt("a field has an empty name")
        return t.Field(
            content.integer("id", minimum=0, maximum=MAX_FIELD_ID),
            name,
            self.type(value.get("type"), f"{prefix}{name}", depth),
            content.optional_text("description"),
            content.optional_text("defaultValue"),
        )

    def _from_text(self, text: str, name: str, read: Callable[[Tokens], t.DataType]) -> t.DataType:
        try:
            tokens = Tokens(text)
            result = _read_nullability(tokens, read(tokens))
            tokens.expect_end("the end of the type")
            return result
        except SchemaError as error:
            raise self._corrupt(f"{name}: {error.message}") from error
        except UnsupportedFeatureError as error:
            raise UnsupportedFeatureError(
                f"{name}: {error.message}", feature=error.feature, path=self._where, hint=error.hint
            ) from error

    def _corrupt(self, message: str) -> CorruptTableError:
        return CorruptTableError(message, path=self._where)


# The grammar. Readers take tokens up to the end of what they read, nullability excepted.

_PLAIN: dict[str, t.DataType] = {
    "BOOLEAN": t.BooleanType(),
    "TINYINT": t.TinyIntType(),
    "SMALLINT": t.SmallIntType(),
    "INT": t.IntType(),
    "INTEGER": t.IntType(),
    "BIGINT": t.BigIntType(),
    "FLOAT": t.FloatType(),
    "DATE": t.DateType(),
    "STRING": t.VarCharType(),
    "BYTES": t.VarBinaryType(),
}
_WITH_LENGTH: dict[str, Callable[[int], t.DataType]] = {
    "CHAR": t.CharType,
    "VARCHAR": t.VarCharType,
    "BINARY": t.BinaryType,
    "VARBINARY": t.VarBinaryType,
}
_DECIMAL = ("DECIMAL", "NUMERIC", "DEC")
_UNSUPPORTED = ("VARIANT", "BLOB", "VECTOR", "GEOMETRY", "GEOGRAPHY")
_OUTER_TYPES: dict[str, t.DataType] = {
    "ARRAY": t.ArrayType(t.BooleanType()),
    "MULTISET": t.MultisetType(t.BooleanType()),
    "MAP": t.MapType(t.BooleanType(), t.BooleanType()),
    "ROW": t.RowType(()),
}
"""What a complex type's name alone stands for, until its inner types are read."""


def _read_nullability(tokens: Tokens, data_type: t.DataType) -> t.DataType:
    if tokens.accept("NOT", "NULL"):
        return data_type.with_nullable(False)
    tokens.accept("NULL")
    return data_type


def _read_atomic(tokens: Tokens) -> t.DataType:
    token = tokens.take()
    word = _keyword(tokens, token)
    if word in _PLAIN:
        return _PLAIN[word]
    if word == "DOUBLE":
        tokens.accept("PRECISION")
        return t.DoubleType()
    if word in _WITH_LENGTH:
        return _WITH_LENGTH[word](_read_argument(tokens, "the length", 1, t.MAX_LENGTH, default=1))
    if word in _DECIMAL:
        return _read_decimal(tokens)
    if word == "TIME":
        precision = _read_argument(tokens, "the precision", 0, 9, default=0)
        tokens.accept("WITHOUT", "TIME", "ZONE")
        return t.TimeType(precision)
    if word not in ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"):
        tokens.fail(f"there is no type {token.shown}", at=token, hint="types are named as in Paimon's SQL.")
    return _read_timestamp(tokens, word)


def _keyword(tokens: Tokens, token: Token) -> str:
    if token.kind is not TokenKind.WORD:
        tokens.fail(f"expected a type, found {token.shown}", at=token)
    word = token.value.upper()
    if word in _UNSUPPORTED:
        raise UnsupportedFeatureError(
            f"the type {word} is not implemented",
            feature=f"type-{word.lower()}",
            hint="read the table with an engine that knows the type, or leave the column out.",
        )
    return word


def _read_argument(tokens: Tokens, meaning: str, minimum: int, maximum: int, *, default: int) -> int:
    """``(n)`` with n between the bounds, or nothing."""
    if not tokens.accept("("):
        return default
    value = _read_bounded(tokens, meaning, minimum, maximum)
    tokens.expect(")")
    return value


def _read_bounded(tokens: Tokens, meaning: str, minimum: int, maximum: int) -> int:
    token = tokens.here
    value = tokens.number(meaning)
    if not minimum <= value <= maximum:
        tokens.fail(f"{meaning} must be {minimum} to {maximum}, found {value}", at=token)
    return value


def _read_decimal(tokens: Tokens) -> t.DataType:
    if not tokens.accept("("):
        return t.DecimalType()
    precision = _read_bounded(tokens, "the precision", 1, 38)
    scale = _read_bounded(tokens, "the scale", 0, precision) if tokens.accept(",") else 0
    tokens.expect(")")
    return t.DecimalType(precision, scale)


def _read_timestamp(tokens: Tokens, word: str) -> t.DataType:
    precision = _read_argument(tokens, "the precision", 0, 9, default=6)
    if word == "TIMESTAMP" and tokens.accept("WITH", "LOCAL", "TIME", "ZONE"):
        return t.LocalZonedTimestampType(precision)
    if word == "TIMESTAMP_LTZ":
        return t.LocalZonedTimestampType(precision)
    tokens.accept("WITHOUT", "TIME", "ZONE")
    return t.TimestampType(precision)


def _read_outer(tokens: Tokens) -> t.DataType:
    """The name of a complex type as schema files have it; what is inside stands in the JSON around it."""
    token = tokens.take()
    word = _keyword(tokens, token)
    if word not in _OUTER_TYPES:
        tokens.fail(f"there is no complex type {token.shown}", at=token)
    return _OUTER_TYPES[word]


def _read_nested(tokens: Tokens, depth: int) -> t.DataType:
    """A type of a column list, complex ones spelled out."""
    word = tokens.here.value.upper()
    if tokens.here.kind is not TokenKind.WORD or word not in (*_OUTER_TYPES, "STRUCT"):
        return _read_atomic(tokens)
    tokens.take()
    if word in ("ROW", "STRUCT"):
        return _read_row(tokens, depth)
    tokens.expect("<")
    first = read_type(tokens, depth=depth + 1)
    if word == "MAP":
        tokens.expect(",")
        result: t.DataType = t.MapType(first, read_type(tokens, depth=depth + 1))
    else:
        result = t.ArrayType(first) if word == "ARRAY" else t.MultisetType(first)
    tokens.expect(">")
    return result


def _read_row(tokens: Tokens, depth: int) -> t.DataType:
    closing = ">" if tokens.accept("<") else ")"
    if closing == ")":
        tokens.expect("(")
    fields: list[t.Field] = []
    while not tokens.accept(closing):
        if fields and not tokens.accept(","):
            tokens.fail(f"expected , or {closing}, found {tokens.here.shown}")
        name = tokens.name("the name of a field")
        tokens.accept(":")
        data_type = read_type(tokens, depth=depth + 1)
        fields.append(t.Field(UNASSIGNED_ID, name, data_type, read_comment(tokens)))
    return t.RowType(tuple(fields))


def read_comment(tokens: Tokens) -> str | None:
    """Take ``COMMENT 'text'``, or the bare text that schema files of Flink have, if it comes next."""
    if tokens.accept("COMMENT") or tokens.here.kind is TokenKind.TEXT:
        return tokens.literal("a comment")
    return None
