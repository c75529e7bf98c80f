"""Binding predicates to a schema: names become fields, values become values of the columns' types.

`bind` also brings a predicate into the normal form that `bound` describes, and `rebind` carries a bound
predicate over to the fields of an older schema.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial

from anabranch.errors import PredicateError, shortened
from anabranch.expr import bound as b
from anabranch.expr import nodes
from anabranch.expr.coerce import Beyond, Spot, common_type, converts_exactly, place
from anabranch.expr.functions import ComputedColumn, bind_call
from anabranch.expr.like import Pattern, Wildcard, split_pattern
from anabranch.expr.nodes import Call, Column, Literal, Operator, Predicate
from anabranch.expr.values import Value, quote_name
from anabranch.format.types.data_types import CharType, DataType, Field, RowType, VarCharType, is_atomic


def bind(predicate: Predicate, fields: Sequence[Field]) -> b.BoundPredicate:
    """The predicate over the columns of a schema.

    Raises:
        PredicateError: a column does not exist or its name is ambiguous, or a value does not go with the
            type of its column.
    """
    return _bind(predicate, fields, negated=False)


def resolve(column: Column, fields: Sequence[Field]) -> b.BoundColumn:
    """The field that a column names: by its exact name, else by its only name when case is ignored.

    Raises:
        PredicateError: there is no such field, or more than one.
    """
    path: list[Field] = []
    for i, name in enumerate(column.path):
        if i > 0:
            parent = path[-1].type
            if not isinstance(parent, RowType):
                raise PredicateError(
                    f"{Column(column.path[:i])} is of type {parent.spelling} and has no field '{name}'",
                    hint="if the column's name has a dot in it, put the name in back-ticks",
                )
            fields = parent.fields
        path.append(_field_of(name, fields, column))
    return b.BoundColumn(tuple(path))


def rebind(predicate: b.BoundPredicate, fields: Sequence[Field]) -> b.BoundPredicate:
    """Rebind the predicate to rows that were written with other fields, matched by id.

    The result may keep more rows than the predicate, never fewer: a field that is missing is null in every
    row, and of a field whose old type does not convert to the new one exactly nothing is asked.
    """
    return b.replace_tests(predicate, partial(_rebound, fields=fields))


def _field_of(name: str, fields: Sequence[Field], column: Column) -> Field:
    exact = [f for f in fields if f.name == name]
    matches = exact or [f for f in fields if f.name.lower() == name.lower()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise PredicateError(
            f"column {column} is ambiguous: it matches {_listed(f.name for f in matches)}",
            hint="write the name in the case of the column you mean",
        )
    known = {f.name.lower(): f.name for f in fields}
    near = [known[n] for n in difflib.get_close_matches(name.lower(), list(known), n=3)]
    if near:
        hint = f"did you mean {_listed(near)}?"
    else:
        hint = (
            f"the columns are: {_listed([f.name for f in fields][:20])}{', ...' if len(fields) > 20 else ''}"
        )
    raise PredicateError(f"there is no column {column}", hint=hint)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quote_name, names))


def _bind(predicate: Predicate, fields: Sequence[Field], *, negated: bool) -> b.BoundPredicate:
    match predicate:
        case nodes.Constant(value=value):
            return b.BoundConstant(value != negated)
        case nodes.Not(child=child):
            return _bind(child, fields, negated=not negated)
        case nodes.And(children=children) | nodes.Or(children=children):
            # De Morgan's laws hold in three-valued logic too.
            join = b.conjunction if isinstance(predicate, nodes.And) != negated else b.disjunction
            return join(_bind(child, fields, negated=negated) for child in children)
        case nodes.Comparison(op=op, left=left, right=right):
            return _comparison(_operand(left, fields), op, _operand(right, fields), negated=negated)
        case nodes.In(column=column, values=values):
            return _computing(
                _membership(_column(column, fields), [v.value for v in values], negated=negated)
            )
        case nodes.IsNull(column=column):
            return _computing(b.NullTest(_column(column, fields), negated))
        case nodes.StartsWith(column=column, prefix=prefix):
            return _computing(_like(_text_column(column, fields), (prefix, Wildcard.MANY), negated=negated))
        case nodes.Like(column=column, pattern=pattern, escape=escape):
            return _computing(
                _like(_text_column(column, fields), split_pattern(pattern, escape), negated=negated)
            )
    raise PredicateError(
        f"a filter cannot be made of {shortened(repr(predicate), 200)}, which is of {type(predicate).__name__}",
        hint="give SQL text such as \"id > 5\", or an expression of anabranch.col, such as anabranch.col('id') > 5.",
    )


def _operand(operand: nodes.Expression, fields: Sequence[Field]) -> b.BoundColumn | Literal:
    """What is compared; a value where something is computed of values alone."""
    match operand:
        case Call():
            return bind_call(operand, partial(resolve, fields=fields))
        case Column():
            return resolve(operand, fields)
        case _:
            return operand


def _column(operand: Column | Call, fields: Sequence[Field]) -> b.BoundColumn:
    found = _operand(operand, fields)
    if isinstance(found, Literal):
        raise PredicateError(f"{operand} is the same for all rows: {found}", hint="name a column")
    return found


def _comparison(
    left: b.BoundColumn | Literal, op: Operator, right: b.BoundColumn | Literal, *, negated: bool
) -> b.BoundPredicate:
    match left, right:
        case b.BoundColumn(), b.BoundColumn():
            return _computing(_compare_columns(left, op, right, negated=negated))
        case b.BoundColumn(), Literal(value=value):
            return _computing(_compare(left, op, value, negated=negated))
        case Literal(value=value), b.BoundColumn():
            return _computing(_compare(right, op.flipped, value, negated=negated))
    raise PredicateError(f"{left} {op} {right} compares two values and no column")


def _computing(predicate: b.BoundPredicate) -> b.BoundPredicate:
    """The predicate, with tests of computed columns told apart from those of the table's."""
    return b.replace_tests(predicate, _told_apart)


def _told_apart(test: b.BoundPredicate) -> b.BoundPredicate:
    columns = b.columns_of(test)
    if not any(isinstance(column, ComputedColumn) for column in columns):
        return test
    looked_at: dict[b.BoundColumn, None] = {}
    for column in columns:
        found = column.call.columns if isinstance(column, ComputedColumn) else (column,)
        looked_at.update(dict.fromkeys(found))
    return b.Computed(test, tuple(looked_at))


def _compare(column: b.BoundColumn, op: Operator, value: Value, *, negated: bool = False) -> b.BoundPredicate:
    if op is Operator.SAME:
        if value is None:
            return b.NullTest(column, negated)
        equal = _compare(column, Operator.NE if negated else Operator.EQ, value)
        return b.disjunction([equal, b.NullTest(column)]) if negated else equal
    if value is None:
        _check_comparable(column)
        return b.NEVER
    if negated:
        op = op.negated
    match place(column, value):
        case Beyond.NAN if column.is_floating:
            return _compare_nan(column, op)
        case Beyond() as beyond:
            above = beyond is not Beyond.BELOW
            smaller = op in {Operator.LT, Operator.LE}
            larger = op in {Operator.GT, Operator.GE}
            holds = op is Operator.NE or (smaller if above else larger)
            return b.NullTest(column, negated=True) if holds else b.NEVER
        case Spot(value=floor, exact=False):
            return _compare_between(column, op, floor)
        case Spot(value=exact):
            return b.Compare(column, op, exact)
    raise AssertionError(value)


def _compare_between(column: b.BoundColumn, op: Operator, floor: b.Physical) -> b.BoundPredicate:
    """Compare with a value that lies between `floor` and the next value that the column can hold."""
    match op:
        case Operator.EQ:
            return b.NEVER
        case Operator.NE:
            return b.NullTest(column, negated=True)
        case Operator.LT | Operator.LE:
            return b.Compare(column, Operator.LE, floor)
        case _:
            return b.Compare(column, Operator.GT, floor)


def _compare_nan(column: b.BoundColumn, op: Operator) -> b.BoundPredicate:
    """NaN equals itself and is greater than everything else."""
    match op:
        case Operator.EQ | Operator.GE:
            return b.NaNTest(column)
        case Operator.NE | Operator.LT:
            return b.NaNTest(column, negated=True)
        case Operator.LE:
            return b.NullTest(column, negated=True)
        case _:
            return b.NEVER


def _compare_columns(
    left: b.BoundColumn, op: Operator, right: b.BoundColumn, *, negated: bool = False
) -> b.BoundPredicate:
    domain = common_type(left.type, right.type)
    if domain is None:
        raise PredicateError(
            f"column {left} of type {left.type.spelling} cannot be compared with column {right} of type "
            f"{right.type.spelling}"
        )
    if op is Operator.SAME:
        compared = b.CompareColumns(left, Operator.NE if negated else Operator.EQ, right, domain)
        left_null = b.conjunction([b.NullTest(left), b.NullTest(right, negated)])
        right_null = b.conjunction([b.NullTest(left, negated), b.NullTest(right)])
        return b.disjunction([compared, left_null, right_null])
    if negated:
        op = op.negated
    if op in {Operator.GT, Operator.GE}:
        left, op, right = right, op.flipped, left
    return b.CompareColumns(left, op, right, domain)


def _membership(column: b.BoundColumn, values: Sequence[Value], *, negated: bool) -> b.BoundPredicate:
    _check_comparable(column)
    places = [place(column, value) for value in values if value is not None]
    if negated and len(places) < len(values):
        return b.NEVER
    members = b.one_of(column, [p.value for p in places if isinstance(p, Spot) and p.exact], negated=negated)
    if Beyond.NAN in places and column.is_floating:
        nan = b.NaNTest(column, negated)
        return b.conjunction([members, nan]) if negated else b.disjunction([members, nan])
    return members


def _like(column: b.BoundColumn, pattern: Pattern, *, negated: bool) -> b.BoundPredicate:
    match pattern:
        case ():
            return b.one_of(column, [""], negated=negated)
        case (str() as text,):
            return b.one_of(column, [text], negated=negated)
        case (Wildcard.MANY,) | ("", Wildcard.MANY):
            return b.NEVER if negated else b.NullTest(column, negated=True)
        case (str() as prefix, Wildcard.MANY):
            return b.PrefixTest(column, prefix, negated)
        case _:
            return b.LikeTest(column, pattern, negated)


def _text_column(column: Column | Call, fields: Sequence[Field]) -> b.BoundColumn:
    resolved = _column(column, fields)
    if not isinstance(resolved.type, CharType | VarCharType):
        raise PredicateError(
            f"column {column} is of type {resolved.type.spelling}; LIKE and startswith are for text",
        )
    return resolved


def _check_comparable(column: b.BoundColumn) -> None:
    """Comparisons with NULL are never TRUE, but those that make no sense are errors all the same."""
    if not is_atomic(column.type):
        place(column, 0)


class _Fate(Enum):
    """State of a column in older files that do not simply have it."""

    MISSING = "null in every row"
    UNCLEAR = "of a type that does not convert exactly"


def _rebound(test: b.BoundPredicate, fields: Sequence[Field]) -> b.BoundPredicate:
    if isinstance(test, b.Computed):
        return b.ALWAYS
    older = [_older(column, fields) for column in b.columns_of(test)]
    if _Fate.UNCLEAR in older:
        return b.ALWAYS
    if _Fate.MISSING in older:
        return b.BoundConstant(isinstance(test, b.NullTest) and not test.negated)
    match test, older:
        case b.CompareColumns(op=op), [b.BoundColumn() as left, b.BoundColumn() as right]:
            comparable = common_type(left.type, right.type) is not None
            return _compare_columns(left, op, right) if comparable else b.ALWAYS
        case b.Compare(column=column, op=op, value=value), [b.BoundColumn() as old]:
            return _compare(old, op, b.as_literal_value(value, column.type))
        case b.OneOf(column=column, values=values, negated=negated), [b.BoundColumn() as old]:
            return _membership(old, [b.as_literal_value(v, column.type) for v in values], negated=negated)
        case b.NaNTest(negated=negated), [b.BoundColumn() as old] if not old.is_floating:
            return b.NullTest(old, negated=True) if negated else b.NEVER
        case ((b.NaNTest() | b.NullTest() | b.PrefixTest() | b.LikeTest()), [b.BoundColumn() as old]):
            return replace(test, column=old)
    raise AssertionError(test)


def _older(column: b.BoundColumn, fields: Sequence[Field]) -> b.BoundColumn | _Fate:
    path: list[Field] = []
    for field in column.path:
        if path:
            parent = path[-1].type
            if not isinstance(parent, RowType):
                return _Fate.UNCLEAR
            fields = parent.fields
        found = next((f for f in fields if f.id == field.id), None)
        if found is None:
            return _Fate.MISSING
        path.append(found)
    return b.BoundColumn(tuple(path)) if _reads_alike(path[-1].type, column.type) else _Fate.UNCLEAR


def _reads_alike(old: DataType, new: DataType) -> bool:
    # Of nested types only nulls are asked, and changes inside of them make none.
    return converts_exactly(old, new) or (type(old) is type(new) and not is_atomic(old))
