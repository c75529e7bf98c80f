"""Schema changes, collected one by one and applied together."""

from __future__ import annotations

from typing import Self

from anabranch.kernel.actions.alter import alter
from anabranch.kernel.context import TableContext
from anabranch.spec.schema import TableSchema
from anabranch.spec.schema_change import (
    AddColumn,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    WidenColumn,
)
from anabranch.spec.type_grammar import parse_sql_type
from anabranch.spec.types import DataType


class Alter:
    """Changes to a table's schema; nothing happens before `apply`. Each call returns a new value."""

    def __init__(self, context: TableContext, changes: tuple[SchemaChange, ...] = ()) -> None:
        self._context = context
        self._changes = changes

    def add_column(self, name: str, data_type: DataType | str, *, comment: str | None = None) -> Self:
        """Add a nullable column at the end; existing rows read null."""
        return self._with(AddColumn(name, _type(data_type), comment))

    def drop_column(self, name: str) -> Self:
        """Remove a column; its values are no longer read, also if the name is used again."""
        return self._with(DropColumn(name))

    def rename_column(self, name: str, new_name: str) -> Self:
        return self._with(RenameColumn(name, new_name))

    def widen_column(self, name: str, data_type: DataType | str) -> Self:
        """Give a column a type that holds every value of the old one, such as INT to BIGINT."""
        return self._with(WidenColumn(name, _type(data_type)))

    def set_option(self, key: str, value: str) -> Self:
        return self._with(SetOption(key, value))

    def remove_option(self, key: str) -> Self:
        return self._with(RemoveOption(key))

    def apply(self) -> TableSchema:
        """Apply all changes as one new schema version. Raises `SchemaError`; then none is applied."""
        return alter(self._context, self._changes)

    def _with(self, change: SchemaChange) -> Self:
        return type(self)(self._context, (*self._changes, change))


def _type(data_type: DataType | str) -> DataType:
    return parse_sql_type(data_type) if isinstance(data_type, str) else data_type
