"""A model of a table whose schema changes."""

import itertools
import random
from decimal import Decimal

import pyarrow as pa

import anabranch
from anabranch.errors import CommitConflictError
from anabranch.format.types.data_types import (
    ArrayType,
    BigIntType,
    DecimalType,
    DoubleType,
    IntType,
    MapType,
    RowType,
    VarCharType,
    is_atomic,
)
from anabranch.kernel.actions.append import Append
from anabranch.kernel.actions.overwrite import Overwrite
from tests.support.tables import make_table

COLUMNS = """
    k BIGINT NOT NULL, p STRING NOT NULL, n INT, d DECIMAL(4, 2), s VARCHAR(3) NOT NULL,
    r ROW<x INT, y STRING NOT NULL>, a ARRAY<ROW<x INT, z DECIMAL(4, 2)>>, m MAP<STRING NOT NULL, ROW<x INT>>
"""


LAYOUTS = [
    {"partition_by": ["p"]},
    {"options": {"bucket": "3", "bucket-key": "k"}},
    {"partition_by": ["p"], "options": {"bucket": "2", "bucket-key": "s,k", "metadata.stats-mode": "full"}},
    {"options": {"bucket": "1"}},
]


NEW_TYPES = ["INT", "STRING", "DECIMAL(4, 2)", "ROW<x INT, y STRING>", "ARRAY<ROW<x INT>>", "ARRAY<INT>"]


WIDER = {IntType: ["BIGINT", "DOUBLE"], DecimalType: ["DECIMAL(8, 4)"], VarCharType: ["VARCHAR(9)", "STRING"]}


NAMES = "abcdefgh"


_numbers = itertools.count()


class Model:
    """A table, what is in it, and some who opened it earlier."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        layout = self.random.choice(LAYOUTS)
        self.table = make_table(f"memory://evolution{next(_numbers)}", schema=COLUMNS, **layout)
        self.rows = []
        self.stale = []
        self.refused = 0
        self.filters = 2
        self.most_schemas = 0

    # Changing the schema

    def alter(self):
        """Change what can be changed of some changes at random, as one version."""
        changes = self.table.alter()
        made = None
        for _ in range(self.random.randint(1, 3)):
            path, data_type = self.random.choice([*_paths((), (made or self.table.schema).row_type)])
            kind = self.random.choice(["add", "drop", "rename", "widen", "nullable", "move", "add", "again"])
            more = self._changed(changes, kind, path, data_type)
            try:
                made = more.preview()
            except anabranch.SchemaError:
                self.refused += 1  # such as the last field, a partition key, a name that is taken
            else:
                changes = more
        if made is not None:
            assert changes.apply().fields == made.fields

    def _changed(self, change, kind, path, data_type):
        name = self.random.choice(NAMES)
        match kind:
            case "add":
                inside = isinstance(data_type, RowType) and self.random.random() < 0.7
                target = (*path, name) if inside else (*path[:-1], name)
                return change.add_column(
                    target, self.random.choice(NEW_TYPES), first=self.random.random() < 0.3
                )
            case "drop":
                return change.drop_column(path)
            case "again":  # the name means another column afterwards
                return change.drop_column(path).add_column(path, self.random.choice(NEW_TYPES))
            case "rename":
                return change.rename_column(path, name)
            case "nullable":
                return change.drop_not_null(path)
            case "move":
                return change.move_column(path, last=True)
        return change.widen_column(path, self.random.choice(WIDER.get(type(data_type), ["BIGINT"])))

    def more_buckets(self):
        if self.table.schema.bucket > 1:
            self.table.alter().set_option("bucket", str(self.random.randint(2, 5))).apply()
            self.stale.clear()
            if not self.table.schema.partition_keys:
                self.write(replace=True)  # nothing else is taken until all rows are spread anew

    def compact(self):
        """Rewrite files of several schemas in the newest."""
        self.table.with_options({"compaction.min.file-num": "2"}).compact(full=self.random.random() < 0.2)

    # Writing

    def open_writer(self):
        """Somebody opens the table now and writes later; rows in the columns of now."""
        self.stale = [*self.stale[-3:], self.table.writer()]

    def write(self, replace=False):
        late = self.stale and self.random.random() < 0.6
        writer = self.random.choice(self.stale) if late else self.table.writer()
        schema = writer.table_schema
        rows = [self._row(schema.row_type) for _ in range(self.random.randint(1, 5))]
        arrow = pa.Table.from_pylist([_named(row, schema.row_type) for row in rows], writer.schema)
        messages = writer.write(arrow.to_batches())
        action, kept = (Overwrite(messages), []) if replace else self._action(messages, schema, rows)
        try:
            self.table.commit(action)
        except CommitConflictError as error:
            assert "BUCKET_COUNT_CHANGED" in str(error)
            return
        self.rows = [*kept, *rows]

    def _action(self, messages, schema, rows):
        if self.random.random() > (0.3 if schema.partition_keys else 0.05):
            return Append(messages), self.rows
        if not schema.partition_keys or self.random.random() < 0.1:
            return Overwrite(messages), []
        p = schema.field("p").id
        replaced = {row[p] for row in rows}
        if len(replaced) == 1 and self.random.random() < 0.5:
            action = self.table.overwriting(messages, {"p": next(iter(replaced))})
        else:
            action = Overwrite(messages, dynamic=True)
        return action, [row for row in self.rows if row[p] not in replaced]

    def _row(self, data_type):
        return {f.id: self._value(f.type) for f in data_type.fields}

    def _value(self, data_type):
        pick = self.random
        if data_type.nullable and pick.random() < 0.25:
            return None
        match data_type:
            case RowType():
                return self._row(data_type)
            case ArrayType(element=element):
                return [self._value(element) for _ in range(pick.randint(0, 2))]
            case MapType(value=value):
                return {key: self._value(value) for key in pick.sample("uvw", pick.randint(0, 2))}
            case VarCharType():
                return pick.choice(["", "a", "b", "abc"])
            case DecimalType():
                return Decimal(pick.randint(-300, 300)).scaleb(-2)
            case IntType() | BigIntType():
                return pick.randint(-3, 3)
            case DoubleType():
                return float(pick.randint(-3, 3))
        raise AssertionError(data_type)

    # Reading

    def check(self):
        table = self.table
        schema = table.schema
        wanted = [_read(row, schema.row_type) for row in self.rows]
        everything = table.scan()
        _same(everything.to_arrow(), wanted)
        self.most_schemas = max(self.most_schemas, everything.plan().files["schema_id"].n_unique())
        leaves = [*_leaves((), schema.row_type)]
        for path in self.random.sample(leaves, min(self.filters, len(leaves))):
            column = anabranch.col(*path)
            held = [(row, _inside(row, path)) for row in wanted]
            _same(table.scan(column.is_null()).to_arrow(), [row for row, v in held if v is None])
            present = [v for _, v in held if v is not None]
            if not present:
                continue
            value = self.random.choice(present)
            equal = [row for row, v in held if v == value]
            _same(table.scan(column == value).to_arrow(), equal)
            _same(table.scan(column.is_in([value])).to_arrow(), equal)
            less = [row for row, v in held if v is not None and v < value]
            _same(table.scan(column < value).to_arrow(), less)
            other = [row for row, v in held if v is not None and v != value]
            _same(table.scan(column != value).to_arrow(), other)


def _leaves(path, data_type):
    """Paths to atomic columns, also inside of rows, which filters may be about."""
    for f in data_type.fields:
        if isinstance(f.type, RowType):
            yield from _leaves((*path, f.name), f.type)
        elif is_atomic(f.type):
            yield (*path, f.name)


def _inside(row, path):
    for name in path:
        row = None if row is None else row[name]
    return row


def _paths(path, data_type):
    """Paths to fields and elements, and their types."""
    match data_type:
        case RowType(fields=fields):
            for f in fields:
                yield (*path, f.name), f.type
                yield from _paths((*path, f.name), f.type)
        case ArrayType(element=inner):
            yield (*path, "element"), inner
            yield from _paths((*path, "element"), inner)
        case MapType(value=inner):
            yield (*path, "value"), inner
            yield from _paths((*path, "value"), inner)


def _named(value, data_type):
    """A value with its rows by name, to be written."""
    if value is None:
        return None
    match data_type:
        case RowType(fields=fields):
            return {f.name: _named(value[f.id], f.type) for f in fields}
        case ArrayType(element=element):
            return [_named(item, element) for item in value]
        case MapType(value=inner):
            return [(key, _named(item, inner)) for key, item in value.items()]
    return value


def _read(value, data_type):
    """What a value written at some time is in a type of another time."""
    if value is None:
        return None
    match data_type:
        case RowType(fields=fields):
            return {f.name: _read(value.get(f.id), f.type) for f in fields}
        case ArrayType(element=element):
            return [_read(item, element) for item in value]
        case MapType(value=inner):
            return [(key, _read(item, inner)) for key, item in value.items()]
        case DoubleType():
            return float(value)
        case DecimalType(scale=scale):
            return value.quantize(Decimal(1).scaleb(-scale))
    return value


def _same(found, wanted):
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted))
