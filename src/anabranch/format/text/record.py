"""Records that are declared by their fields: what a class says of a field is how it is read from JSON and written to it.

A record is a frozen dataclass. The key of a field is its name in camel case, its type says what the key must hold, and
`Stored` says what is otherwise. So the declaration is the documentation of the file.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from functools import partial
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from anabranch.errors import CorruptTableError, NotFoundError, UnreadableFileError
from anabranch.format.text.json_object import MAX_LONG, MIN_LONG, JsonObject, describe, to_bytes

Read = Callable[[JsonObject, str], Any]
"""Reads the value of a key; what is missing or null is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How a field is stored, where its name and type do not say it: ``Annotated[int, Stored(key="schemaId", minimum=0)]``."""

    key: str | None = None
    minimum: int = MIN_LONG
    maximum: int = MAX_LONG
    seldom: bool = False
    """Whether it is left out of the file while it is None, false or empty."""
    always: bool = False
    """Whether its key has to be there even if null is a value of it."""
    apart: bool = False
    """Whether it is not in the file, such as a number in the file's name; whoever reads the record gives it."""
    others: bool = False
    """Whether it takes the fields that this release does not know, which are written again with the file."""


@runtime_checkable
class HasJson(Protocol):
    """A value that knows its JSON, such as a record or a snapshot."""

    def to_dict(self) -> dict[str, Any]: ...


class JsonRecord:
    """An object in a file of ours."""

    __slots__ = ()

    WHAT: ClassVar[str] = "object"
    """What it is, for messages."""
    SNAKE: ClassVar[bool] = False
    """Whether keys are the names of the fields as they are, not in camel case."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        values: dict[str, Any] = {}
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            if field.stored.others:
                values.update(value)
            elif not field.stored.apart and (value or not field.stored.seldom):
                values[field.key] = to_json_value(value)
        return values

    @classmethod
    def from_object(cls, content: JsonObject, **apart: Any) -> Self:
        """Read the record. Raises `CorruptTableError` naming the file."""
        return cls(**cls.fields_of(content), **apart)

    @classmethod
    def fields_of(cls, content: JsonObject) -> dict[str, Any]:
        """Read the fields that are in the file. Raises `CorruptTableError` naming it."""
        return {f.name: f.of(content, cls) for f in _fields(cls) if not f.stored.apart}

    @classmethod
    def from_dict(cls, value: Any, *, where: str) -> Self:
        """Read the record from a JSON value. Raises `CorruptTableError` naming `where`."""
        if not isinstance(value, dict):
            keys = ", ".join(keys_of(cls))
            raise CorruptTableError(f"holds {describe(value)}, which is no {cls.WHAT} ({keys})", path=where)
        return cls.from_object(JsonObject(value, where))


class Files(Protocol):
    """Reader of files by path, such as a table's storage."""

    @property
    def url(self) -> str: ...

    def get(self, path: str) -> bytes: ...


class JsonFile(JsonRecord):
    """A file of ours that holds one record."""

    __slots__ = ()

    VERSION: ClassVar[int] = 1
    """Newest version of the file that this release reads, and the one that it writes."""
    HINT: ClassVar[str | None] = None
    """What to do about a file that is damaged; None for what is said of every file of a table."""

    def to_json(self) -> bytes:
        """The content of the file."""
        return to_bytes({"version": self.VERSION, **self.to_dict()})

    @classmethod
    def find(cls, files: Files, path: str, *, whole: bool = False, **apart: Any) -> Self | None:
        """Read the file at a path; None if there is none. Raises as `from_json`, `StorageError`.

        Args:
            files: where it lies.
            path: of the file.
            whole: whether messages say in which store it lies.
        """
        try:
            data = files.get(path)
        except NotFoundError as error:
            if error.is_folder:  # nothing of the format has folders where records are: somebody put it there
                raise UnreadableFileError(
                    f"cannot read {files.url}/{path}: a folder is in its place",
                    hint="Move the folder away, and put the file back from a copy; `verify` tells what depends on it.",
                ) from error
            return None
        return cls.from_json(data, path=f"{files.url}/{path}" if whole else path, **apart)

    @classmethod
    def from_json(cls, data: bytes, *, path: str, **apart: Any) -> Self:
        """Read the file. Raises `CorruptTableError` naming `path`; `UnsupportedFeatureError` if it is newer."""
        try:
            content = JsonObject.parse(data, path=path)
            content.version(cls.VERSION)
            return cls.from_object(content, **apart)
        except CorruptTableError as error:
            if cls.HINT is None:
                raise
            reason = error.message.removeprefix(f"{path}: ")
            raise CorruptTableError(f"is no {cls.WHAT}: {reason}", path=path, hint=cls.HINT) from error


def keys_of(record: type[JsonRecord]) -> tuple[str, ...]:
    """Return the keys of a record that this release knows, without the version of a file."""
    return tuple(f.key for f in _fields(record) if not f.stored.others and not f.stored.apart)


def to_json_value(value: Any) -> Any:
    """Return what stands for a value of a field in JSON."""
    match value:
        case StrEnum():
            return value.value
        case None | str() | int() | float():
            return value
        case bytes():
            return value.hex()
        case Mapping():
            return {key: to_json_value(inner) for key, inner in value.items()}
        case frozenset():
            return sorted(map(to_json_value, value))
        case list() | tuple():
            return [to_json_value(item) for item in value]
        case HasJson():
            return value.to_dict()
        case _:
            return value


class _Field(NamedTuple):
    name: str
    key: str
    stored: Stored
    read: Read
    is_optional: bool
    """Whether null is a value of it."""
    default: Callable[[], Any] | None
    """Makes the value where the file has none; None if that is an error."""

    def of(self, content: JsonObject, record: type[JsonRecord]) -> Any:
        if self.stored.others:
            return content.others({"version", *keys_of(record)})
        if content.values.get(self.key) is not None:
            return self.read(content, self.key)
        if self.stored.always and self.key not in content.values:
            content.fail(f"'{self.key}' is missing")
        if self.is_optional and (self.default is None or self.key in content.values):
            return None
        return self.read(content, self.key) if self.default is None else self.default()


_DECLARED: dict[type[Any], tuple[_Field, ...]] = {}


def _fields(record: type[Any]) -> tuple[_Field, ...]:
    if record not in _DECLARED:
        hints = get_type_hints(record, include_extras=True)
        _DECLARED[record] = tuple(_field(record, f, hints[f.name]) for f in fields(record))
    return _DECLARED[record]


def _field(record: type[JsonRecord], field: Field[Any], hint: Any) -> _Field:
    stored = Stored()
    if get_origin(hint) is Annotated:
        hint, stored = get_args(hint)
    make: Callable[[], Any] | None = None if field.default_factory is MISSING else field.default_factory
    if field.default is not MISSING:
        make = partial(_given, field.default)
    is_optional = get_origin(hint) in (Union, types.UnionType)
    if is_optional:
        hint = next(one for one in get_args(hint) if one is not types.NoneType)
    first, *rest = field.name.split("_")
    key = field.name if record.SNAKE else first + "".join(part.capitalize() for part in rest)
    return _Field(field.name, stored.key or key, stored, _reader(hint, stored), is_optional, make)


def _given(value: Any) -> Any:
    return value


def _reader(hint: Any, stored: Stored) -> Read:
    """Return what reads the values of a type."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is int:
        return partial(JsonObject.integer, minimum=stored.minimum, maximum=stored.maximum)
    if origin is Literal:
        return partial(_one_of, known=parts)
    if origin in (tuple, frozenset):
        return partial(_collection, kind=origin, read=_reader(parts[0], stored))
    if origin is Mapping:
        return partial(_mapping, read=_reader(parts[1], stored))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda content, key: hint(_one_of(content, key, tuple(hint)))
    if hasattr(hint, "from_object"):
        return partial(_record, kind=hint)
    return {str: JsonObject.text, bool: JsonObject.flag, float: _number, bytes: _bytes}.get(hint, _anything)


def _number(content: JsonObject, key: str) -> float:
    value = content.values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        content.fail(f"'{key}' is {describe(value)}, expected a number")
    return value


def _one_of(content: JsonObject, key: str, known: tuple[str, ...]) -> str:
    text = content.text(key)
    if text not in known:
        content.fail(f"'{key}' is '{text}', expected {' or '.join(map(repr, map(str, known)))}")
    return text


def _collection(content: JsonObject, key: str, kind: type, read: Read) -> Any:
    return kind([read(JsonObject({key: item}, content.path), key) for item in content.items(key)])


def _mapping(content: JsonObject, key: str, read: Read) -> dict[str, Any]:
    part = _part(content, key)
    return {name: read(part, name) for name in part.values}


def _record(content: JsonObject, key: str, kind: Any) -> Any:
    if not isinstance(value := content.values.get(key), dict):
        content.fail(f"'{key}' is {describe(value)}, which is no {getattr(kind, 'WHAT', 'object')}")
    return kind.from_object(JsonObject(value, content.path))


def _part(content: JsonObject, key: str) -> JsonObject:
    """Return an object within one; messages name the file alone."""
    return JsonObject(content.part(key).values, content.path)


def _bytes(content: JsonObject, key: str) -> bytes:
    try:
        return bytes.fromhex(content.text(key))
    except ValueError:
        content.fail(f"'{key}' is no bytes in hex digits")


def _anything(content: JsonObject, key: str) -> Any:
    return content.values.get(key)
