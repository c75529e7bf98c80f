"""Measuring rows in this process: one pass over the branch for all checks, and one over main if they need it.

Memory is bounded: a measure keeps a number and a few rows, or a `RowCounter`, which puts keys on local disk
when there are many. Keys that main has and the branch lacks are searched separately, and only if main has files that
the branch does not have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.audit import measures as m
from anabranch.audit.sides import Sides
from anabranch.compare.row_counter import RowCounter
from anabranch.expr.bind import bind, resolve
from anabranch.expr.bound import BoundColumn, BoundPredicate
from anabranch.expr.bound import columns as ids_of
from anabranch.expr.evaluate import filter_mask
from anabranch.expr.nodes import col
from anabranch.expr.parse import parse
from anabranch.format.types.arrow_types import to_arrow_schema
from anabranch.format.types.data_types import Field
from anabranch.format.types.python_rows import rows_of

_EXACT = Context(prec=100)


def measure(measures: Sequence[m.Measure], sides: Sides) -> dict[m.Measure, m.Found]:
    """Return the result of each measure. Raises what reading the table raises, `StorageError` if the disk is full."""
    found: dict[m.Measure, m.Found] = {}
    for of_main in (False, True):
        of_side = [
            one
            for one in dict.fromkeys(measures)
            if one.of_main is of_main and not isinstance(one, m.MissingKeys)
        ]
        if of_side:
            found |= _one_pass(of_side, sides, of_main=of_main)
    for wanted in dict.fromkeys(measures):
        if isinstance(wanted, m.MissingKeys):
            found[wanted] = _missing_keys(wanted, sides)
    return found


def _one_pass(measures: Sequence[m.Measure], sides: Sides, *, of_main: bool) -> dict[m.Measure, m.Found]:
    fields = sides.fields_of_main if of_main else sides.fields
    plan = sides.scan(of_main=of_main).plan()
    with ExitStack() as open_gauges:
        gauges = {one: open_gauges.enter_context(_gauge(one, fields, plan.row_count)) for one in measures}
        ids = set().union(*(gauge.ids for gauge in gauges.values()))
        columns = [f.name for f in fields if f.id in ids]
        if not columns and all(isinstance(one, m.RowCount) and one.where is None for one in measures):
            return dict.fromkeys(measures, plan.row_count)  # metadata gives the count
        columns = columns or [fields[0].name]  # constant conditions use no columns
        for batch in sides.scan(columns, of_main=of_main).to_batches():
            rows = _Rows(batch)
            for gauge in gauges.values():
                gauge.see(rows)
        return {one: gauge.found for one, gauge in gauges.items()}


class _Rows:
    """A batch, with the conditions that were evaluated on it."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._masks: dict[BoundPredicate, pa.BooleanArray] = {}

    def mask(self, condition: BoundPredicate) -> pa.BooleanArray:
        """Return for each row whether the condition is TRUE."""
        if condition not in self._masks:
            self._masks[condition] = filter_mask(condition, self.batch)
        return self._masks[condition]

    def values(self, column: BoundColumn, where: BoundPredicate | None) -> Any:
        """Return the non-null values of a column in the selected rows."""
        top, *inner = (f.name for f in column.path)
        values = self.batch.column(top)
        values = pc.struct_field(values, inner) if inner else values
        return (values if where is None else values.filter(self.mask(where))).drop_null()


class _Gauge(ABC):
    """Consumes all rows, batch by batch, and computes one measure."""

    def __init__(self, wanted: m.Measure, fields: Sequence[Field]) -> None:
        self.fields = fields
        self.where = _bound(wanted.where, fields)
        self.ids = set() if self.where is None else ids_of(self.where)
        """Ids of the top-level columns it uses."""

    def __enter__(self) -> _Gauge:
        return self

    def __exit__(self, *_: object) -> None:
        """Release its resources, if any."""
        return

    @abstractmethod
    def see(self, rows: _Rows) -> None:
        """Consume a batch."""

    @property
    @abstractmethod
    def found(self) -> m.Found:
        """The result after all batches."""

    def column(self, name: str) -> BoundColumn:
        """Return a column it uses."""
        found = resolve(col(name).column, self.fields)
        self.ids = {*self.ids, found.root_id}
        return found


class _RowCountGauge(_Gauge):
    _count = 0

    def see(self, rows: _Rows) -> None:
        self._count += rows.batch.num_rows if self.where is None else rows.mask(self.where).true_count

    @property
    def found(self) -> int:
        return self._count


class _OffendingGauge(_Gauge):
    def __init__(self, wanted: m.Offending, fields: Sequence[Field]) -> None:
        super().__init__(wanted, fields)
        condition = _bound(wanted.condition, fields)
        assert condition is not None
        self._condition = condition
        self._shown = list(wanted.columns)
        self.ids = {*self.ids, *ids_of(condition), *(f.id for f in fields if f.name in wanted.columns)}
        self._count = 0
        self._sample: list[Mapping[str, Any]] = []

    def see(self, rows: _Rows) -> None:
        is_wrong = pc.invert(rows.mask(self._condition))
        if self.where is not None:
            is_wrong = pc.and_(is_wrong, rows.mask(self.where))
        self._count += is_wrong.true_count
        if is_wrong.true_count and len(self._sample) < m.SAMPLE_SIZE:
            wrong = rows.batch.select(self._shown).filter(is_wrong)
            self._sample += rows_of(wrong.slice(0, m.SAMPLE_SIZE - len(self._sample)))

    @property
    def found(self) -> m.Findings:
        return m.Findings(self._count, m.sample_rows(self._sample))


class _TotalGauge(_Gauge):
    def __init__(self, wanted: m.Total, fields: Sequence[Field]) -> None:
        super().__init__(wanted, fields)
        self._column = self.column(wanted.column)
        self._exact = Fraction(0)
        self._floating = 0.0

    def see(self, rows: _Rows) -> None:
        values = rows.values(self._column, self.where)
        if self._column.is_floating:
            self._floating += pc.sum(values.cast(pa.float64())).as_py() or 0.0
            return
        scale = values.type.scale if pa.types.is_decimal(values.type) else 0
        wide = values if pa.types.is_decimal(values.type) else values.cast(pa.decimal128(20, 0))
        self._exact += Fraction(pc.sum(wide.cast(pa.decimal256(76, scale))).as_py() or 0)

    @property
    def found(self) -> int | Decimal | float:
        if self._column.is_floating:
            return self._floating
        if pa.types.is_decimal(self._column.arrow_type):
            return _EXACT.divide(Decimal(self._exact.numerator), Decimal(self._exact.denominator))
        return int(self._exact)


class _NewestGauge(_Gauge):
    def __init__(self, wanted: m.NewestValue, fields: Sequence[Field]) -> None:
        super().__init__(wanted, fields)
        self._column = self.column(wanted.column)
        self._newest: int | None = None

    def see(self, rows: _Rows) -> None:
        newest = pc.max(rows.values(self._column, self.where))
        if newest.is_valid:
            millis = newest.cast(pa.timestamp("ms", getattr(newest.type, "tz", None)), safe=False).value
            self._newest = millis if self._newest is None else max(self._newest, millis)

    @property
    def found(self) -> int | None:
        return self._newest


class _DuplicatesGauge(_Gauge):
    def __init__(self, wanted: m.Duplicates, fields: Sequence[Field], row_count: int) -> None:
        super().__init__(wanted, fields)
        self._keys = list(wanted.columns)
        keys = _fields(self._keys, fields)
        self.ids = {*self.ids, *(f.id for f in keys)}
        self._counter = RowCounter(to_arrow_schema(keys), row_count)

    def __exit__(self, *_: object) -> None:
        self._counter.__exit__(None, None, None)

    def see(self, rows: _Rows) -> None:
        self._counter.add(_key_rows(rows, self._keys, self.where), "left")

    @property
    def found(self) -> m.Findings:
        count, sample = 0, list[Mapping[str, Any]]()
        for part in self._counter.counted():
            is_repeated = part.left > 1
            count += int((part.left[is_repeated] - 1).sum())
            sample += rows_of(part.rows.filter(pa.array(is_repeated)).slice(0, m.SAMPLE_SIZE))
            del sample[m.SAMPLE_SIZE :]
        return m.Findings(count, m.sample_rows(sample))


def _missing_keys(wanted: m.MissingKeys, sides: Sides) -> m.Findings:
    fields = sides.fields_of_main
    where = _bound(wanted.where, fields)
    looked_at = set() if where is None else ids_of(where)
    keys = list(wanted.columns)
    main, branch = sides.key_scans(keys, [f.name for f in fields if f.id in looked_at])
    if not main.plan().splits:
        return m.Findings(0)
    count, sample = 0, list[Mapping[str, Any]]()
    schema = to_arrow_schema(_fields(keys, fields))
    with RowCounter(schema, main.plan().row_count + branch.plan().row_count) as counter:
        for batch in main.to_batches():
            counter.add(_key_rows(_Rows(batch), keys, where), "left")
        for batch in branch.to_batches():
            counter.add(_key_rows(_Rows(batch), keys, None), "right")
        for part in counter.counted():
            is_missing = (part.left > 0) & (part.right == 0)
            count += int(is_missing.sum())
            sample += rows_of(part.rows.filter(pa.array(is_missing)).slice(0, m.SAMPLE_SIZE))
            del sample[m.SAMPLE_SIZE :]
    return m.Findings(count, m.sample_rows(sample))


def _key_rows(rows: _Rows, keys: Sequence[str], where: BoundPredicate | None) -> pa.RecordBatch:
    """Return the key columns of the selected rows without nulls in them."""
    chosen = rows.batch.select(keys)
    kept = None if where is None else rows.mask(where)
    for column in chosen.columns:
        if column.null_count:
            kept = column.is_valid() if kept is None else pc.and_(kept, column.is_valid())
    return chosen if kept is None else chosen.filter(kept)


def _gauge(wanted: m.Measure, fields: Sequence[Field], row_count: int) -> _Gauge:
    match wanted:
        case m.RowCount():
            return _RowCountGauge(wanted, fields)
        case m.Offending():
            return _OffendingGauge(wanted, fields)
        case m.Total():
            return _TotalGauge(wanted, fields)
        case m.NewestValue():
            return _NewestGauge(wanted, fields)
        case m.Duplicates():
            return _DuplicatesGauge(wanted, fields, row_count)
        case _:
            raise AssertionError(wanted)


def _bound(condition: m.Condition | None, fields: Sequence[Field]) -> BoundPredicate | None:
    if condition is None:
        return None
    return bind(parse(condition) if isinstance(condition, str) else condition, fields)


def _fields(names: Sequence[str], fields: Sequence[Field]) -> list[Field]:
    known = {f.name: f for f in fields}
    return [known[name] for name in names]
