"""Schema changes as people type them on a command line.

| kind             | text                                                                  |
|------------------|-----------------------------------------------------------------------|
| `add`            | ``address.zip STRING COMMENT 'of the house' AFTER city``              |
| `drop`           | ``address.zip``                                                       |
| `rename`         | ``address.zip=code``                                                  |
| `widen`          | ``orders.element.count=BIGINT``                                       |
| `nullable`       | ``address.zip``                                                       |
| `move`           | ``zip FIRST``, ``zip LAST``, ``zip AFTER city``, ``zip BEFORE city``  |
| `comment`        | text for the table; empty for none                                    |
| `column-comment` | ``address.zip=text``; empty for none                                  |
| `default`        | ``city=Bonn``; ``city`` alone for none                                |
| `set`            | ``option=value``                                                      |
| `unset`          | ``option``                                                            |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anabranch.errors import OptionError, SchemaError
from anabranch.format.schema import change as c
from anabranch.format.text.tokens import Tokens
from anabranch.format.types.field_tree import After, Before, First, Last, Position
from anabranch.format.types.grammar import parse_sql_type, read_comment, read_type


def parse_change(kind: str, text: str) -> c.SchemaChange:
    """The change that a text of that kind means. Raises `SchemaError`, `OptionError`."""
    return _KINDS[kind](text)


def _add(text: str) -> c.AddColumn:
    tokens = Tokens(text)
    path = _path(tokens)
    data_type = read_type(tokens)
    comment = read_comment(tokens)
    position = _position(tokens) or Last()
    tokens.expect_end("COMMENT, FIRST, LAST, AFTER, BEFORE or the end")
    return c.AddColumn(path, data_type, comment, position)


def _move(text: str) -> c.MoveColumn:
    tokens = Tokens(text)
    path = _path(tokens)
    position = _position(tokens)
    if position is None:
        tokens.fail(f"expected FIRST, LAST, AFTER or BEFORE, found {tokens.here.shown}")
    tokens.expect_end("the end")
    return c.MoveColumn(path, position)


def _path(tokens: Tokens) -> tuple[str, ...]:
    steps = [tokens.name("the name of a column")]
    while tokens.accept("."):
        steps.append(tokens.name("the name of a field"))
    return tuple(steps)


def _position(tokens: Tokens) -> Position | None:
    if tokens.accept("FIRST"):
        return First()
    if tokens.accept("LAST"):
        return Last()
    if tokens.accept("AFTER"):
        return After(tokens.name("the name of a column"))
    if tokens.accept("BEFORE"):
        return Before(tokens.name("the name of a column"))
    return None


def _rename(text: str) -> c.RenameColumn:
    name, new_name = _sides(text, "old=new")
    return c.RenameColumn(name, new_name)


def _widen(text: str) -> c.WidenColumn:
    name, data_type = _sides(text, "column=TYPE")
    return c.WidenColumn(name, parse_sql_type(data_type))


def _describe(text: str) -> c.SetColumnComment:
    name, comment = _sides(text, "column=text")
    return c.SetColumnComment(name, comment or None)


def _default(text: str) -> c.SetDefault:
    name, equals, value = text.partition("=")
    return c.SetDefault(name.strip(), value.strip() if equals else None)


def _set(text: str) -> c.SetOption:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"'{text}' sets no option", hint="write key=value.")
    return c.SetOption(key.strip(), value.strip())


def _sides(text: str, form: str) -> tuple[str, str]:
    left, equals, right = text.partition("=")
    if not equals or not left.strip():
        raise SchemaError(f"'{text}' is not of the form {form}", hint=f"write {form}.")
    return left.strip(), right.strip()


_KINDS: Mapping[str, Callable[[str], c.SchemaChange]] = {
    "add": _add,
    "drop": lambda text: c.DropColumn(text.strip()),
    "rename": _rename,
    "widen": _widen,
    "nullable": lambda text: c.SetNullable(text.strip()),
    "move": _move,
    "comment": lambda text: c.SetComment(text or None),
    "column-comment": _describe,
    "default": _default,
    "set": _set,
    "unset": lambda text: c.RemoveOption(text.strip()),
}
