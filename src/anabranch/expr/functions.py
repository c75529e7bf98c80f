"""Functions, arithmetic and casts in filters: what they give, computed by Arrow.

The result of a call stands in a predicate as if it were a column (`ComputedColumn`), so comparisons, IN, LIKE, nulls and NaN mean
with it what they mean with any other. What is computed is Spark's: integers are whole numbers of 64 bits, ``/`` divides as
doubles, division by zero is null, a cast to a whole number cuts off digits, ``substr`` counts from 1. What cannot be computed
for a row, such as a cast of 'x' to INT, is an error and not a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import PredicateError, SchemaError
from anabranch.expr.bound import BoundColumn
from anabranch.expr.nodes import Call, Column, Literal
from anabranch.expr.values import Timestamp, Value
from anabranch.format.types.arrow_types import from_arrow_type, to_arrow_type
from anabranch.format.types.data_types import Field, is_atomic
from anabranch.format.types.grammar import parse_sql_type

_Data: TypeAlias = Any
"""An Arrow expression, array or scalar."""
_Compute: TypeAlias = Callable[..., _Data]


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call over columns of a schema."""

    call: Call
    arguments: tuple[BoundColumn | BoundCall | Literal, ...]
    types: tuple[pa.DataType, ...]
    """Arrow types of the arguments."""
    arrow_type: pa.DataType
    """What it gives."""

    @property
    def columns(self) -> tuple[BoundColumn, ...]:
        """The columns that it looks at."""
        found: dict[BoundColumn, None] = {}
        for argument in self.arguments:
            match argument:
                case BoundCall():
                    found.update(dict.fromkeys(argument.columns))
                case BoundColumn():
                    found[argument] = None
        return tuple(found)

    def computed(self, data_of: Callable[[BoundColumn], _Data]) -> _Data:
        """The values. Raises `PredicateError` if they cannot be computed for some row."""
        given = [
            argument.computed(data_of)
            if isinstance(argument, BoundCall)
            else data_of(argument)
            if isinstance(argument, BoundColumn)
            else _scalar(argument.value)
            for argument in self.arguments
        ]
        return _run(self.call, self.types, given)


@dataclass(frozen=True, slots=True)
class ComputedColumn(BoundColumn):
    """The values of a call, in the place of a column."""

    call: BoundCall

    def __str__(self) -> str:
        return str(self.call.call)


def bind_call(call: Call, resolve: Callable[[Column], BoundColumn]) -> ComputedColumn | Literal:
    """The call over columns; of one without any, its value.

    Raises:
        PredicateError: there is no such column or function, or it does not take these arguments.
    """
    bound = _bound(call, resolve)
    if not bound.columns:
        value = bound.computed(lambda _: None)
        return Literal(value if isinstance(value, pa.Scalar) else value[0])
    try:
        data_type = from_arrow_type(bound.arrow_type)
    except SchemaError as error:
        raise _refused(call, bound.types) from error
    return ComputedColumn((Field(-1, str(call), data_type),), bound)


def _bound(call: Call, resolve: Callable[[Column], BoundColumn]) -> BoundCall:
    arguments: list[BoundColumn | BoundCall | Literal] = []
    types: list[pa.DataType] = []
    for argument in call.arguments:
        match argument:
            case Call():
                inner = _bound(argument, resolve)
                arguments.append(inner)
                types.append(inner.arrow_type)
            case Column():
                column = resolve(argument)
                if not is_atomic(column.type):
                    raise PredicateError(
                        f"column {column} is of type {column.type.spelling}, and nothing is computed of it",
                        hint="name a field of a ROW as a.b",
                    )
                arguments.append(column)
                types.append(column.arrow_type)
            case Literal(value=value):
                arguments.append(argument)
                types.append(_scalar(value).type)
    none = [
        _scalar(argument.value) if isinstance(argument, Literal) else pa.array([], data_type)
        for argument, data_type in zip(arguments, types, strict=True)
    ]
    given = _run(call, types, none)
    return BoundCall(call, tuple(arguments), tuple(types), given.type)


def _run(call: Call, types: Sequence[pa.DataType], given: Sequence[_Data]) -> _Data:
    least, most, build = _FUNCTIONS.get(call.name, (0, -1, None))
    if build is None:
        raise PredicateError(
            f"there is no function {call.name.lower()} in filters", hint=f"there are {', '.join(KNOWN)}"
        )
    if not least <= len(given) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise PredicateError(f"{call.name.lower()} takes {wanted} arguments, found {len(given)}: {call}")
    try:
        return build(call, types)(*given)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        if isinstance(error, PredicateError):
            raise
        raise PredicateError(
            f"{call} cannot be computed for some row: {error}",
            hint="every condition of a filter is computed for all rows that are read: compute this one after reading.",
        ) from error


def _scalar(value: Value) -> Any:
    """A literal as Arrow has it."""
    match value:
        case Timestamp(nanos=nanos, zoned=zoned):
            unit, count = ("us", nanos // 1000) if nanos % 1000 == 0 else ("ns", nanos)
            return pa.scalar(count, pa.timestamp(unit, "UTC" if zoned else None))
        case bool() | None:
            return pa.scalar(value)
        case int() if not -(2**63) <= value < 2**63:
            raise PredicateError(f"{value} has more digits than can be computed with")
        case _:
            return pa.scalar(value)


def _refused(call: Call, types: Sequence[pa.DataType]) -> PredicateError:
    return PredicateError(
        f"{call.name.lower()} does not take {', '.join(map(str, types)) or 'nothing'}: {call}",
        hint="cast the arguments, for example CAST(x AS DOUBLE)",
    )


# Text


def _is_text(found: pa.DataType) -> bool:
    return found in (pa.string(), pa.null())


def _of_text(compute: Callable[[_Data], _Data]) -> Callable[[Call, Sequence[pa.DataType]], _Compute]:
    def build(call: Call, types: Sequence[pa.DataType]) -> _Compute:
        if not _is_text(types[0]):
            raise _refused(call, types)
        return lambda values: compute(values.cast(pa.string()))

    return build


def _length(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    if types[0] == pa.binary():
        compute: _Compute = pc.binary_length
        return compute
    if not _is_text(types[0]):
        raise _refused(call, types)
    return lambda values: pc.utf8_length(values.cast(pa.string()))


def _substr(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    start, count = (_whole(call, place) for place in (1, 2))
    if not _is_text(types[0]):
        raise _refused(call, types)
    if not start:
        raise PredicateError(f"substr counts from 1, or from -1 at the end: {call}")
    if count is not None and count < 0:
        raise PredicateError(f"substr takes a length of 0 or more: {call}")
    begin = start - 1 if start > 0 else start
    stop = None if count is None else begin + count
    if begin < 0 and stop is not None and stop >= 0:
        stop = None  # to the end
    if count == 0:
        begin = stop = 0
    return lambda values, *_: pc.utf8_slice_codeunits(values.cast(pa.string()), begin, stop)


def _whole(call: Call, place: int) -> int | None:
    """An argument that must be a whole number, the same for all rows."""
    if place >= len(call.arguments):
        return None
    match call.arguments[place]:
        case Literal(value=int() as value) if not isinstance(value, bool):
            return value
        case Call(name="-", arguments=(Literal(value=int() as value),)):
            return -value
    raise PredicateError(f"substr takes whole numbers as they are, not columns: {call}")


# Days and times


def _clock(values: _Data, found: pa.DataType) -> _Data:
    """Times without their zone, which is UTC."""
    return values.cast(pa.timestamp(found.unit)) if found.tz is not None else values


def _part(compute: Callable[[_Data], _Data], *, of_times: bool = False) -> Any:
    def build(call: Call, types: Sequence[pa.DataType]) -> _Compute:
        (found,) = types
        if pa.types.is_timestamp(found):
            return lambda values: compute(_clock(values, found))
        if found == pa.date32() and not of_times:
            return compute
        if found == pa.null():
            return lambda values: values.cast(pa.int64())
        if found == pa.string():
            as_time = _cast_to(pa.timestamp("us") if of_times else pa.date32(), call, found)
            return lambda values: compute(as_time(values))
        raise _refused(call, types)

    return build


def _date(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    return _cast_to(pa.date32(), call, types[0])


# Numbers


def _is_number(found: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_integer(found) or kinds.is_floating(found) or kinds.is_decimal(found) or kinds.is_null(found)
    )


def _domain(call: Call, types: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type to compute in; None for decimals, which each have their own."""
    if not all(map(_is_number, types)):
        raise _refused(call, types)
    if any(map(pa.types.is_floating, types)):
        return pa.float64()
    return None if any(map(pa.types.is_decimal, types)) else pa.int64()


def _in(values: _Data, found: pa.DataType, domain: pa.DataType | None) -> _Data:
    if domain is None:
        return values if pa.types.is_decimal(found) else values.cast(pa.decimal128(19, 0))
    if domain == pa.float64():
        return _as_double(values, found)
    return values.cast(domain)


def _as_double(values: _Data, found: pa.DataType) -> _Data:
    """Numbers as doubles; large ones are rounded."""
    if found == pa.float64():
        return values
    return (
        values.cast(pa.float64()) if isinstance(values, pa.Scalar) else values.cast(pa.float64(), safe=False)
    )


def _arithmetic(compute: Callable[..., _Data]) -> Callable[[Call, Sequence[pa.DataType]], _Compute]:
    def build(call: Call, types: Sequence[pa.DataType]) -> _Compute:
        domain = _domain(call, types)
        return lambda *given: compute(*(_in(v, t, domain) for v, t in zip(given, types, strict=True)))

    return build


def _minus(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    if len(types) == 1:
        return _arithmetic(pc.negate_checked)(call, types)
    return _arithmetic(pc.subtract_checked)(call, types)


def _divided(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    _domain(call, types)

    def compute(dividend: _Data, divisor: _Data) -> _Data:
        by = _as_double(divisor, types[1])
        return pc.divide(_as_double(dividend, types[0]), _without_zero(by, pa.float64()))

    return compute


def _remainder(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    if _domain(call, types) != pa.int64():
        raise PredicateError(f"% is for whole numbers: {call}", hint="cast them: CAST(x AS BIGINT)")

    def compute(dividend: _Data, divisor: _Data) -> _Data:
        value, by = dividend.cast(pa.int64()), _without_zero(divisor.cast(pa.int64()), pa.int64())
        return pc.subtract(value, pc.multiply(pc.divide(value, by), by))

    return compute


def _without_zero(values: _Data, found: pa.DataType) -> _Data:
    return pc.if_else(pc.equal(values, pa.scalar(0, found)), pa.scalar(None, found), values)


def _coalesce(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    known = [found for found in types if found != pa.null()]
    if not known:
        raise _refused(call, types)
    if all(map(_is_number, known)) and len({*known}) > 1:
        domain = pa.float64() if any(not pa.types.is_integer(found) for found in known) else pa.int64()
        return lambda *given: pc.coalesce(
            *(
                v.cast(domain) if t == pa.null() else _in(v, t, domain)
                for v, t in zip(given, types, strict=True)
            )
        )
    if len({*known}) > 1:
        raise _refused(call, types)
    return lambda *given: pc.coalesce(*(v.cast(known[0]) for v in given))


# Casts


def _cast(call: Call, types: Sequence[pa.DataType]) -> _Compute:
    try:
        target = to_arrow_type(parse_sql_type(call.target))
    except SchemaError as error:
        raise PredicateError(f"CAST to {call.target}: {error.message}", hint=error.hint) from error
    return _cast_to(target, call, types[0])


def _cast_to(target: pa.DataType, call: Call, found: pa.DataType) -> _Compute:
    kinds = pa.types
    if found == target:
        return lambda values: values
    if found == pa.null():
        return lambda values: values.cast(target)
    if kinds.is_integer(target) and (kinds.is_floating(found) or kinds.is_decimal(found)):
        return lambda values: pc.trunc(values).cast(target)
    if kinds.is_floating(target) and _is_number(found):
        return lambda values: (
            values.cast(target) if isinstance(values, pa.Scalar) else values.cast(target, safe=False)
        )
    if kinds.is_timestamp(found) and target == pa.date32():
        return lambda values: pc.floor_temporal(_clock(values, found), unit="day").cast(target)
    if found == pa.string() and not kinds.is_binary(target):
        return lambda values: pc.utf8_trim_whitespace(values).cast(target)
    is_allowed = (
        (kinds.is_integer(found) and (kinds.is_integer(target) or kinds.is_boolean(target)))
        or (kinds.is_integer(found) and target == pa.string())
        or (kinds.is_boolean(found) and (kinds.is_integer(target) or target == pa.string()))
        or (kinds.is_decimal(target) and (kinds.is_integer(found) or kinds.is_decimal(found)))
        or (found == pa.date32() and (kinds.is_timestamp(target) or target == pa.string()))
        or (kinds.is_timestamp(found) and kinds.is_timestamp(target))
    )
    if not is_allowed:
        raise PredicateError(
            f"{found} cannot be cast to {target} in a filter: {call}", hint="compute it after reading"
        )
    if kinds.is_integer(found) and kinds.is_decimal(target):
        return lambda values: values.cast(pa.decimal128(19, 0)).cast(target)
    return lambda values: values.cast(target)


_FUNCTIONS: dict[str, tuple[int, int, Callable[[Call, Sequence[pa.DataType]], _Compute] | None]] = {
    "UPPER": (1, 1, _of_text(pc.utf8_upper)),
    "LOWER": (1, 1, _of_text(pc.utf8_lower)),
    "TRIM": (1, 1, _of_text(lambda values: pc.utf8_trim(values, characters=" "))),
    "LENGTH": (1, 1, _length),
    "SUBSTR": (2, 3, _substr),
    "YEAR": (1, 1, _part(pc.year)),
    "MONTH": (1, 1, _part(pc.month)),
    "DAY": (1, 1, _part(pc.day)),
    "HOUR": (1, 1, _part(pc.hour, of_times=True)),
    "MINUTE": (1, 1, _part(pc.minute, of_times=True)),
    "DATE": (1, 1, _date),
    "ABS": (1, 1, _arithmetic(pc.abs_checked)),
    "COALESCE": (1, 100, _coalesce),
    "+": (2, 2, _arithmetic(pc.add_checked)),
    "-": (1, 2, _minus),
    "*": (2, 2, _arithmetic(pc.multiply_checked)),
    "/": (2, 2, _divided),
    "%": (2, 2, _remainder),
    "CAST": (1, 1, _cast),
}
KNOWN = tuple(name.lower() for name in _FUNCTIONS)
"""Names of the functions and signs there are."""
