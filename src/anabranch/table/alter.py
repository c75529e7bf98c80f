"""Schema changes, collected one by one and applied together."""

from __future__ import annotations

from typing import Self

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.format.schema import change as c
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.arrow_types import from_arrow_type
from anabranch.format.types.data_types import DataType
from anabranch.format.types.field_tree import After, Before, First, Last, Path, Position
from anabranch.format.types.grammar import parse_sql_type
from anabranch.kernel.actions.alter import alter, preview
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.replacement.follow import on_main
from anabranch.options import CHECK_PREFIX


class Alter:
    """Changes to a table's schema; nothing is written before `apply`. Each call returns a new value.

    A column is named as in ``address.zip`` for a field inside another: ``element`` leads into an array and
    ``value`` into a map (``orders.element.price``). Names that have a dot themselves stand between back-ticks;
    a tuple of names does as well.

    Changes are made for the schema that was the newest when this was begun. If it is not any more when they are
    applied, they are applied to the newer one, unless what others did meanwhile stands against that.
    """

    def __init__(
        self, context: TableContext, begun_on: TableSchema | None, changes: tuple[c.SchemaChange, ...] = ()
    ) -> None:
        self._context = context
        self._begun_on = begun_on
        self._changes = changes

    @property
    def context(self) -> TableContext:
        """Branch whose schema is changed."""
        return self._context

    # Columns

    def add_column(
        self,
        name: Path,
        data_type: DataType | pa.DataType | str,
        *,
        comment: str | None = None,
        first: bool = False,
        after: str | None = None,
        before: str | None = None,
        default: object = None,
    ) -> Self:
        """Add a nullable column, or a field inside one; existing rows read null.

        Args:
            name: what to call it; the name of a dropped column may be used again and is a new column then.
            data_type: as text (``DECIMAL(10, 2)``, ``ROW<a INT, b STRING>``) or as an Arrow type.
            comment: text for people.
            first: put it before all others of its row; it comes last if no place is given.
            after: put it directly after this one.
            before: put it directly before this one.
            default: as in `set_default`, for rows that are written from now on.
        """
        place = _place(first=first, after=after, before=before) or Last()
        return self.with_change(c.AddColumn(name, _type(data_type), comment, place, _default_text(default)))

    def drop_column(self, name: Path) -> Self:
        """Remove a column; its values are not read any more, also if the name is used again."""
        return self.with_change(c.DropColumn(name))

    def rename_column(self, name: Path, new_name: str) -> Self:
        """Give a column another name; its values stay. Options that name it follow."""
        return self.with_change(c.RenameColumn(name, new_name))

    def widen_column(self, name: Path, data_type: DataType | pa.DataType | str) -> Self:
        """Give a column a type that holds every value of the old one, such as INT to BIGINT."""
        return self.with_change(c.WidenColumn(name, _type(data_type)))

    def set_nullable(self, name: Path, nullable: bool = True) -> Self:
        """Allow nulls in a column. Forbidding them is refused: there may be some already."""
        return self.with_change(c.SetNullable(name, nullable))

    def drop_not_null(self, name: Path) -> Self:
        """Allow nulls in a column."""
        return self.set_nullable(name)

    def move_column(
        self,
        name: Path,
        *,
        first: bool = False,
        last: bool = False,
        after: str | None = None,
        before: str | None = None,
    ) -> Self:
        """Move a column within its row; exactly one place is given."""
        place = _place(first=first, last=last, after=after, before=before)
        if place is None:
            raise SchemaError(
                f"column '{name}' is to be moved, but nothing says where",
                hint="give one of first, last, after and before.",
            )
        return self.with_change(c.MoveColumn(name, place))

    # Rules for rows

    def set_default(self, name: Path, value: object) -> Self:
        """Set a column's default for rows written without a value, or with null; None for none.

        Rows that are there stay as they are. Other engines of the format that know column defaults do the same.
        """
        return self.with_change(c.SetDefault(name, _default_text(value)))

    def add_check(self, name: str, condition: str) -> Self:
        """Refuse new rows for which a filter condition is FALSE; replaces a check of the same name.

        Rows that are there are not looked at: ``t.scan(f"NOT ({condition})").count()`` says how many violate it.
        """
        return self.with_change(c.SetOption(f"{CHECK_PREFIX}{name}", condition))

    def drop_check(self, name: str) -> Self:
        """Remove a check. Raises `SchemaError` if there is none of that name."""
        given = [change.key for change in self._changes if isinstance(change, c.SetOption)]
        stored = [] if self._begun_on is None else [*self._begun_on.options]
        known = [key.removeprefix(CHECK_PREFIX) for key in (*stored, *given) if key.startswith(CHECK_PREFIX)]
        if name not in known:
            raise SchemaError(
                f"'{self._context.title}' has no check '{name}'",
                hint=f"checks there are: {', '.join(known)}." if known else "it has no checks.",
            )
        return self.with_change(c.RemoveOption(f"{CHECK_PREFIX}{name}"))

    # Comments and options

    def set_comment(self, comment: str | None, *, column: Path | None = None) -> Self:
        """Set the comment of the table, or of a column; None removes it."""
        return self.with_change(
            c.SetComment(comment) if column is None else c.SetColumnComment(column, comment)
        )

    def set_option(self, key: str, value: str) -> Self:
        """Set a table option. Those that files depend on are fixed once there is a snapshot."""
        return self.with_change(c.SetOption(key, value))

    def remove_option(self, key: str) -> Self:
        """Reset a table option to its default."""
        return self.with_change(c.RemoveOption(key))

    # Applying

    def apply(self) -> TableSchema:
        """Apply all changes as one new version of the schema, or none of them.

        Returns the schema that holds them: the newest one as it is if they change nothing.

        Raises:
            InvalidInputError: a change does not fit the schema, or an option cannot change (`SchemaError`,
                `OptionError`, `InvalidNameError`).
            CommitConflictError: others changed the schema meanwhile so that a change does not fit any more; the
                message says what they did.
            CommitOutcomeUnknownError: the store did not say whether the new version was stored.
            NotFoundError: the table was dropped.
            UnsupportedFeatureError: the table would need what this version does not implement.
        """
        return on_main(self._context, self._apply)

    def preview(self) -> TableSchema:
        """Return the schema that `apply` would make now, checked in full; nothing is written."""
        return preview(self._context, self._changes, begun_on=self._begun_on)

    def _apply(self, context: TableContext) -> TableSchema:
        """Apply the changes; after a replacement of main, recompute them for the new main first."""
        here = context.branch == self._context.branch
        return alter(context, self._changes, begun_on=self._begun_on if here else None)

    def with_change(self, change: c.SchemaChange) -> Self:
        """Return these changes plus one more, given as a value."""
        return type(self)(self._context, self._begun_on, (*self._changes, change))


def _type(data_type: DataType | pa.DataType | str) -> DataType:
    match data_type:
        case str():
            return parse_sql_type(data_type)
        case DataType():
            return data_type
        case pa.DataType():
            return from_arrow_type(data_type)
    raise SchemaError(
        f"cannot read a type from {type(data_type).__name__}",
        hint="pass text such as 'DECIMAL(10, 2)', or a pyarrow type.",
    )


def _default_text(value: object) -> str | None:
    """Format a default as schemas store it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode()
        case _:
            return str(value)


def _place(
    *, first: bool = False, last: bool = False, after: str | None = None, before: str | None = None
) -> Position | None:
    """Return the place that is given, None if there is none. Raises `SchemaError` for several."""
    places: list[Position] = []
    if first:
        places.append(First())
    if last:
        places.append(Last())
    if after is not None:
        places.append(After(after))
    if before is not None:
        places.append(Before(before))
    if len(places) > 1:
        raise SchemaError(
            "a column has one place, but several are given", hint="give one of first, last, after and before."
        )
    return places[0] if places else None
