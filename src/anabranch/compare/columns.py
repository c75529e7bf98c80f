"""Columns in which two sides are compared, and their types: by field id, under the names of the right side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.errors import SchemaError, did_you_mean
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.names import name_list
from anabranch.format.types.data_types import Field
from anabranch.format.types.widening import common_field
from anabranch.kernel.branches.diff import DiffSide
from anabranch.lazy import lazy
from anabranch.options import BUCKET, BUCKET_KEY

_ABSENT = 1 << 40
"""Added to a column's id, makes one that no file has."""
_ADVICE = "name the columns to compare: diff.rows(columns=[...])."


@dataclass(frozen=True)
class ComparedColumns:
    """Makes the rows of two sides comparable."""

    left: DiffSide
    right: DiffSide

    @lazy
    def fields(self) -> tuple[Field, ...]:
        """Every column that rows can be compared or filtered by.

        First those of the right side, in its order, then those only on the left whose name is not taken.
        A column of both sides has a type that holds the values of both; one that only one side has reads null on
        the other.
        """
        left, right = self.left.schema, self.right.schema
        found = []
        for field in right.fields:
            other = left.field_by_id(field.id)
            common = _nullable(field) if other is None else common_field(other, field)
            if common is not None:
                found.append(common)
        names = {f.name for f in right.fields}
        only_left = [f for f in left.fields if right.field_by_id(f.id) is None and f.name not in names]
        return (*found, *map(_nullable, only_left))

    def chosen(self, names: str | Sequence[str] | None) -> tuple[Field, ...]:
        """Return the columns of these names; if None those that both sides have.

        Raises `SchemaError` for a name that neither has, and for a column without a common type.
        """
        left, right = self.left.schema, self.right.schema
        if names is None:
            names = [f.name for f in right.fields if left.field_by_id(f.id) is not None]
            if not names:
                raise SchemaError(
                    f"'{self.left.name}' and '{self.right.name}' have no column in common", hint=_ADVICE
                )
        names = name_list(names, "columns")
        known = {f.name: f for f in self.fields}
        for name in names:
            if name not in known:
                raise self._unknown(name, known)
        if not names or len({*names}) < len(names):
            raise SchemaError(f"rows cannot be compared by the columns {list(names)}", hint="name each once.")
        return tuple(known[name] for name in names)

    def schema_for(self, side: DiffSide) -> TableSchema:
        """Return the columns of `fields` as the schema of a side, under an id that no file of it was written with."""
        own = {f.id for f in side.schema.fields}
        # A column that the side lacks must not match one that its files might still hold.
        fields = tuple(f if f.id in own else replace(f, id=_ABSENT + f.id) for f in self.fields)
        known = {f.id: f for f in fields}
        keys = []
        for key in side.schema.partition_fields:
            compared = known.get(key.id)
            if compared is None or compared.type.with_nullable(True) != key.type.with_nullable(True):
                raise SchemaError(
                    f"partition column '{key.name}' is not the same in '{self.left.name}' and '{self.right.name}'",
                    hint="rows are compared between branches that are partitioned alike.",
                )
            keys.append(compared.name)
        # Bucket keys may have other names here, and prune little: no bucket is looked up by them.
        options = {k: v for k, v in side.schema.options.items() if k not in (BUCKET.key, BUCKET_KEY.key)}
        number = max(side.context.schemas.ids(), default=0) + 1
        return replace(side.schema, id=number, fields=fields, partition_keys=tuple(keys), options=options)

    def _unknown(self, name: str, known: dict[str, Field]) -> SchemaError:
        types = [(s.name, f.type) for s in (self.left, self.right) for f in s.schema.fields if f.name == name]
        if len(types) == 2:
            (one, one_type), (other, other_type) = types
            return SchemaError(
                f"column '{name}' is {one_type} in '{one}' and {other_type} in '{other}', which cannot be compared",
                hint=_ADVICE,
            )
        if types:
            return SchemaError(f"column '{name}' of '{types[0][0]}' cannot be compared", hint=_ADVICE)
        return SchemaError(
            f"neither '{self.left.name}' nor '{self.right.name}' has a column '{name}'",
            hint=did_you_mean(name, known, f"the columns are {', '.join(known)}."),
        )


def _nullable(field: Field) -> Field:
    return replace(field, type=field.type.with_nullable(True))
