"""The audited branch and the main it is compared with, as scans under the branch's column names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.compare.columns import ComparedColumns
from anabranch.engine import Engine
from anabranch.errors import InvalidInputError
from anabranch.format.types.data_types import Field
from anabranch.kernel.branches.diff import DiffSide, TableDiff, changed_files
from anabranch.lazy import lazy
from anabranch.scan.scan import Scan


@dataclass(frozen=True)
class Sides:
    """A moment of a branch, and of main."""

    branch: DiffSide
    main: DiffSide | None
    """None if main itself is audited."""
    engine: Engine | None = field(default=None, compare=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the branch."""
        return self.branch.schema.fields

    def scan(self, columns: Sequence[str] | None = None, *, of_main: bool = False) -> Scan:
        """Return all rows of the branch, or of main. Renamed columns of main have the branch's names.

        Raises `InvalidInputError` if main itself is audited, but main is asked for.
        """
        side = self._main if of_main else self.branch
        schema = self._compared.schema_for(side) if of_main else side.schema
        chosen = None if columns is None else tuple(columns)
        return Scan(side.context, side.snapshot, schema, columns=chosen, engine=self.engine)

    def key_scans(self, keys: Sequence[str], besides: Sequence[str] = ()) -> tuple[Scan, Scan]:
        """Return main's rows in files that the branch does not have, and all rows of the branch, in the same types.

        Args:
            keys: columns of both scans.
            besides: more columns of main's rows.
        """
        main, compared = self._main, self._compared
        columns = tuple(dict.fromkeys([*keys, *besides]))
        ids = [f.id for f in compared.chosen(columns)]
        gone, _ = changed_files(TableDiff(main, self.branch), ids)
        branch = self.branch
        return (
            Scan(
                main.context,
                main.snapshot,
                compared.schema_for(main),
                columns=columns,
                engine=self.engine,
                only=gone,
            ),
            Scan(
                branch.context,
                branch.snapshot,
                compared.schema_for(branch),
                columns=tuple(keys),
                engine=self.engine,
            ),
        )

    @property
    def fields_of_main(self) -> tuple[Field, ...]:
        """Columns of main under the branch's names."""
        return self._compared.schema_for(self._main).fields

    @property
    def _main(self) -> DiffSide:
        if self.main is None:
            raise InvalidInputError(
                f"a check compares with main, but '{self.branch.context.title}' is main",
                hint="audit a branch, or leave out the checks that compare with main.",
            )
        return self.main

    @lazy
    def _compared(self) -> ComparedColumns:
        return ComparedColumns(self._main, self.branch)
