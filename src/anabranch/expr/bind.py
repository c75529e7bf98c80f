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
from anabranch.expr import nodes
from anabranch.expr.bound import (
    ALWAYS,
    NEVER,
    BoundColumn,
    BoundConstant,
    BoundPredicate,
    Compare,
    CompareColumns,
    Computed,
    LikeTest,
    NaNTest,
    NullTest,
    OneOf,
    Physical,
    PrefixTest,
    as_literal_value,
    columns_of,
    conjunction,
    disjunction,
    one_of,
    replace_tests,
)
from anabranch.expr.coerce import Beyond, Spot, common_type, converts_exactly, place
from anabranch.expr.functions import ComputedColumn, bind_call
from anabranch.expr.like import Pattern, Wildcard, split_pattern
from anabranch.expr.nodes import Call, Column, Literal, Operator, Predicate
from anabranch.expr.values import Value, quote_name
from anabranch.format.types.data_types import CharType, DataType, Field, RowType, VarCharType, is_atomic


def bind(predicate: Predicate, fields: Sequence[Field]) -> BoundPredicate:
    """The predicate over the columns of a schema.

    Raises:
        PredicateError: a column does not exist or its name is ambiguous, or a value does not go with the
            type of its column.
    """
    return _bind(predicate, fields, negated=False)


def resolve(column: Column, fields: Sequence[Field]) -> BoundColumn:
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
    return BoundColumn(tuple(path))


def rebind(predicate: BoundPredicate, fields: Sequence[Field]) -> BoundPredicate:
    """Rebind the predicate to rows that were written with other fields, matched by id.

    The result may keep more rows than the predicate, never fewer: a field that is missing is null in every
    row, and of a field whose old type does not convert to the new one exactly nothing is asked.
    """
    return replace_tests(predicate, partial(_rebound, fields=fields))


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


def _bind(predicate: Predicate, fields: Sequence[Field], *, negated: bool) -> BoundPredicate:
    match predicate:
        case nodes.Constant(value=value):
            return BoundConstant(value != negated)
        case nodes.Not(child=child):
            return _bind(child, fields, negated=not negated)
        case nodes.And(children=children) | nodes.Or(children=children):
            # De Morgan's laws hold in three-valued logic too.
            join = conjunction if isinstance(predicate, nodes.And) != negated else disjunction
            return join(_bind(child, fields, negated=negated) for child in children)
        case nodes.Comparison(op=op, left=left, right=right):
            return _comparison(_operand(left, fields), op, _operand(right, fields), negated=negated)
        case nodes.In(column=column, values=values):
            return _computing(
                _membership(_column(column, fields), [v.value for v in values], negated=negated)
            )
        case nodes.IsNull(column=column):
            return _computing(NullTest(_column(column, fields), negated))
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


def _operand(operand: nodes.Expression, fields: Sequence[Field]) -> BoundColumn | Literal:
    """What is compared; a value where something is computed of values alone."""
    match operand:
        case Call():
            return bind_call(operand, partial(resolve, fields=fields))
        case Column():
            return resolve(operand, fields)
        case _:
            return operand


def _column(operand: Column | Call, fields: Sequence[Field]) -> BoundColumn:
    found = _operand(operand, fields)
    if isinstance(found, Literal):
        raise PredicateError(f"{operand} is the same for all rows: {found}", hint="name a column")
    return found


def _comparison(
    left: BoundColumn | Literal, op: Operator, right: BoundColumn | Literal, *, negated: bool
) -> BoundPredicate:
    match left, right:
        case BoundColumn(), BoundColumn():
            return _computing(_compare_columns(left, op, right, negated=negated))
        case BoundColumn(), Literal(value=value):
            return _computing(_compare(left, op, value, negated=negated))
        case Literal(value=value), BoundColumn():
            return _computing(_compare(right, op.flipped, value, negated=negated))
    raise PredicateError(f"{left} {op} {right} compares two values and no column")


def _computing(predicate: BoundPredicate) -> BoundPredicate:
    """The predicate, with tests of computed columns told apart from those of the table's."""
    return replace_tests(predicate, _told_apart)


def _told_apart(test: BoundPredicate) -> BoundPredicate:
    columns = columns_of(test)
    if not any(isinstance(column, ComputedColumn) for column in columns):
        return test
    looked_at: dict[BoundColumn, None] = {}
    for column in columns:
        found = column.call.columns if isinstance(column, ComputedColumn) else (column,)
        looked_at.update(dict.fromkeys(found))
    return Computed(test, tuple(looked_at))


def _compare(column: BoundColumn, op: Operator, value: Value, *, negated: bool = False) -> BoundPredicate:
    if op is Operator.SAME:
        if value is None:
            return NullTest(column, negated)
        equal = _compare(column, Operator.NE if negated else Operator.EQ, value)
        return disjunction([equal, NullTest(column)]) if negated else equal
    if value is None:
        _check_comparable(column)
        return NEVER
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
            return NullTest(column, negated=True) if holds else NEVER
        case Spot(value=floor, exact=False):
            return _compare_between(column, op, floor)
        case Spot(value=exact):
            return Compare(column, op, exact)
    raise AssertionError(value)


def _compare_between(column: BoundColumn, op: Operator, floor: Physical) -> BoundPredicate:
    """Compare with a value that lies between `floor` and the next value that the column can hold."""
    match op:
        case Operator.EQ:
            return NEVER
        case Operator.NE:
            return NullTest(column, negated=True)
        case Operator.LT | Operator.LE:
            return Compare(column, Operator.LE, floor)
        case _:
            return Compare(column, Operator.GT, floor)


def _compare_nan(column: BoundColumn, op: Operator) -> BoundPredicate:
    """NaN equals itself and is greater than everything else."""
    match op:
        case Operator.EQ | Operator.GE:
            return NaNTest(column)
        case Operator.NE | Operator.LT:
            return NaNTest(column, negated=True)
        case Operator.LE:
            return NullTest(column, negated=True)
        case _:
            return NEVER


def _compare_columns(
    left: BoundColumn, op: Operator, right: BoundColumn, *, negated: bool = False
) -> BoundPredicate:
    domain = common_type(left.type, right.type)
    if domain is None:
        raise PredicateError(
            f"column {left} of type {left.type.spelling} cannot be compared with column {right} of type "
            f"{right.type.spelling}"
        )
    if op is Operator.SAME:
        compared = CompareColumns(left, Operator.NE if negated else Operator.EQ, right, domain)
        left_null = conjunction([NullTest(left), NullTest(right, negated)])
        right_null = conjunction([NullTest(left, negated), NullTest(right)])
        return disjunction([compared, left_null, right_null])
    if negated:
        op = op.negated
    if op in {Operator.GT, Operator.GE}:
        left, op, right = right, op.flipped, left
    return CompareColumns(left, op, right, domain)


def _membership(column: BoundColumn, values: Sequence[Value], *, negated: bool) -> BoundPredicate:
    _check_comparable(column)
    places = [place(column, value) for value in values if value is not None]
    if negated and len(places) < len(values):
        return NEVER
    members = one_of(column, [p.value for p in places if isinstance(p, Spot) and p.exact], negated=negated)
    if Beyond.NAN in places and column.is_floating:
        nan = NaNTest(column, negated)
        return conjunction([members, nan]) if negated else disjunction([members, nan])
    return members


def _like(column: BoundColumn, pattern: Pattern, *, negated: bool) -> BoundPredicate:
    match pattern:
        case ():
            return one_of(column, [""], negated=negated)
        case (str() as text,):
            return one_of(column, [text], negated=negated)
        case (Wildcard.MANY,) | ("", Wildcard.MANY):
            return NEVER if negated else NullTest(column, negated=True)
        case (str() as prefix, Wildcard.MANY):
            return PrefixTest(column, prefix, negated)
        case _:
            return LikeTest(column, pattern, negated)


def _text_column(column: Column | Call, fields: Sequence[Field]) -> BoundColumn:
    resolved = _column(column, fields)
    if not isinstance(resolved.type, CharType | VarCharType):
        raise PredicateError(
            f"column {column} is of type {resolved.type.spelling}; LIKE and startswith are for text",
        )
    return resolved


def _check_comparable(column: BoundColumn) -> None:
    """Comparisons with NULL are never TRUE, but those that make no sense are errors all the same."""
    if not is_atomic(column.type):
        place(column, 0)


class _Fate(Enum):
    """State of a column in older files that do not simply have it."""

    MISSING = "null in every row"
    UNCLEAR = "of a type that does not convert exactly"


def _rebound(test: BoundPredicate, fields: Sequence[Field]) -> BoundPredicate:
    if isinstance(test, Computed):
        return ALWAYS
    older = [_older(column, fields) for column in columns_of(test)]
    if _Fate.UNCLEAR in older:
        return ALWAYS
    if _Fate.MISSING in older:
        return BoundConstant(isinstance(test, NullTest) and not test.negated)
    match test, older:
        case CompareColumns(op=op), [BoundColumn() as left, BoundColumn() as right]:
            comparable = common_type(left.type, right.type) is not None
            return _compare_columns(left, op, right) if comparable else ALWAYS
        case Compare(column=column, op=op, value=value), [BoundColumn() as old]:
            return _compare(old, op, as_literal_value(value, column.type))
        case OneOf(column=column, values=values, negated=negated), [BoundColumn() as old]:
            return _membership(old, [as_literal_value(v, column.type) for v in values], negated=negated)
        case NaNTest(negated=negated), [BoundColumn() as old] if not old.is_floating:
            return NullTest(old, negated=True) if negated else NEVER
        case ((NaNTest() | NullTest() | PrefixTest() | LikeTest()), [BoundColumn() as old]):
            return replace(test, column=old)
    raise AssertionError(test)


def _older(column: BoundColumn, fields: Sequence[Field]) -> BoundColumn | _Fate:
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
    return BoundColumn(tuple(path)) if _reads_alike(path[-1].type, column.type) else _Fate.UNCLEAR


def _reads_alike(old: DataType, new: DataType) -> bool:
    # Of nested types only nulls are asked, and changes inside of them make none.
    return converts_exactly(old, new) or (type(old) is type(new) and not is_atomic(old))
