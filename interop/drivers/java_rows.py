"""Canonical rows to and from rows inside the JVM."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from interop import canonical

TEXT = ("CHAR", "VARCHAR")
BINARY = ("BINARY", "VARBINARY")
TIMESTAMPS = ("TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE")
GETTERS = {
    "BOOLEAN": "getBoolean",
    "TINYINT": "getByte",
    "SMALLINT": "getShort",
    "INTEGER": "getInt",
    "BIGINT": "getLong",
    "DATE": "getInt",
    "TIME_WITHOUT_TIME_ZONE": "getInt",
    "FLOAT": "getFloat",
    "DOUBLE": "getDouble",
}
WRITERS = {root: name.replace("get", "write") for root, name in GETTERS.items()}


class Type:
    """A Java DataType, taken apart once."""

    def __init__(self, java_type: Any) -> None:
        self.java = java_type
        self.root = java_type.getTypeRoot().toString()
        self.names: list[str] = []
        self.inner: list[Type] = []
        if self.root == "ROW":
            self.names = [str(name) for name in java_type.getFieldNames()]
            self.inner = [Type(t) for t in java_type.getFieldTypes()]
        elif self.root in ("ARRAY", "MULTISET"):
            self.inner = [Type(java_type.getElementType())]
        elif self.root == "MAP":
            self.inner = [Type(java_type.getKeyType()), Type(java_type.getValueType())]
        if self.root in (*TIMESTAMPS, "DECIMAL"):
            self.precision = int(java_type.getPrecision())
        if self.root == "DECIMAL":
            self.scale = int(java_type.getScale())


class Rows:
    """Reads and builds rows of one JVM."""

    def __init__(self, gateway: Any) -> None:
        self.gateway = gateway
        self.data = gateway.jvm.org.apache.paimon.data
        self.serializers = self.data.serializer
        self.int_type = Type(gateway.jvm.org.apache.paimon.types.DataTypes.INT())

    def read(self, row_type: Any, rows: Any) -> Iterator[list[Any]]:
        """Canonical rows of a closeable iterator of InternalRow."""
        types = Type(row_type).inner
        try:
            while rows.hasNext():
                row = rows.next()
                yield [self._get(row, at, t) for at, t in enumerate(types)]
        finally:
            rows.close()

    def build(self, row_type: Any, rows: Iterable[list[Any]]) -> Iterator[Any]:
        """BinaryRows of canonical rows."""
        row = Type(row_type)
        for values in rows:
            yield self._row(row, values)

    def literal(self, java_type: Any, value: Any) -> Any:
        """A canonical value as a predicate's literal."""
        t = Type(java_type)
        if t.root == "DECIMAL":
            return self._decimal(t, value)
        if t.root in TIMESTAMPS:
            return self._timestamp(value)
        if t.root in BINARY:
            return bytes.fromhex(value)
        return _number(t.root, value)

    def _get(self, row: Any, at: int, t: Type) -> Any:
        if row.isNullAt(at):
            return None
        root = t.root
        if root in TEXT:
            return row.getString(at).toString()
        if root in BINARY:
            return bytes(row.getBinary(at)).hex()
        if root == "DECIMAL":
            return canonical.decimal(Decimal(row.getDecimal(at, t.precision, t.scale).toString()), t.scale)
        if root in TIMESTAMPS:
            found = row.getTimestamp(at, t.precision)
            nanos = found.getMillisecond() * 10**6 + found.getNanoOfMillisecond()
            return canonical.timestamp(nanos) + ("Z" if root == TIMESTAMPS[1] else "")
        if root == "ROW":
            inner = row.getRow(at, len(t.inner))
            return {n: self._get(inner, i, x) for i, (n, x) in enumerate(zip(t.names, t.inner, strict=True))}
        if root == "ARRAY":
            array = row.getArray(at)
            return self._elements(array, t.inner[0])
        if root in ("MAP", "MULTISET"):
            return self._map(row.getMap(at), t)
        return _canonical_number(root, getattr(row, GETTERS[root])(at))

    def _elements(self, array: Any, t: Type) -> list[Any]:
        return [self._get(array, i, t) for i in range(array.size())]

    def _map(self, found: Any, t: Type) -> list[Any]:
        key, value = t.inner if t.root == "MAP" else (t.inner[0], self.int_type)
        keys, values = self._elements(found.keyArray(), key), self._elements(found.valueArray(), value)
        return sorted(([k, v] for k, v in zip(keys, values, strict=True)), key=canonical.text)

    def _row(self, t: Type, values: Iterable[Any]) -> Any:
        row = self.data.BinaryRow(len(t.inner))
        writer = self.data.BinaryRowWriter(row)
        for at, (inner, value) in enumerate(zip(t.inner, values, strict=True)):
            self._put(writer, at, inner, value)
        writer.complete()
        return row

    def _array(self, t: Type, values: list[Any]) -> Any:
        array = self.data.BinaryArray()
        width = self.data.BinaryArray.calculateFixLengthPartSize(t.java)
        writer = self.data.BinaryArrayWriter(array, len(values), width)
        for at, value in enumerate(values):
            self._put(writer, at, t, value)
        writer.complete()
        return array

    def _put(self, writer: Any, at: int, t: Type, value: Any) -> None:
        root = t.root
        if value is None:
            self._put_null(writer, at, t)
        elif root in TEXT:
            writer.writeString(at, self.data.BinaryString.fromString(value))
        elif root in BINARY:
            writer.writeBinary(at, bytes.fromhex(value))
        elif root == "DECIMAL":
            writer.writeDecimal(at, self._decimal(t, value), t.precision)
        elif root in TIMESTAMPS:
            writer.writeTimestamp(at, self._timestamp(value), t.precision)
        elif root == "ROW":
            row = self._row(t, [value[name] for name in t.names])
            writer.writeRow(at, row, self.serializers.InternalSerializers.create(t.java))
        elif root == "ARRAY":
            array = self._array(t.inner[0], value)
            writer.writeArray(at, array, self.serializers.InternalSerializers.create(t.java))
        elif root in ("MAP", "MULTISET"):
            value_type = t.inner[1] if root == "MAP" else self.int_type
            keys = self._array(t.inner[0], [k for k, _ in value])
            values = self._array(value_type, [v for _, v in value])
            found = self.data.BinaryMap.valueOf(keys, values)
            writer.writeMap(at, found, self.serializers.InternalSerializers.create(t.java))
        else:
            getattr(writer, WRITERS[root])(at, _number(root, value))

    def _put_null(self, writer: Any, at: int, t: Type) -> None:
        # A row writer clears the slot for any type; an array writer must know how wide the slot is.
        if writer.getClass().getSimpleName() == "BinaryRowWriter":
            writer.setNullAt(at)
        else:
            writer.setNullAt(at, t.java)

    def _decimal(self, t: Type, value: str) -> Any:
        exact = self.gateway.jvm.java.math.BigDecimal(value)
        return self.data.Decimal.fromBigDecimal(exact, t.precision, t.scale)

    def _timestamp(self, value: str) -> Any:
        millis, nanos = divmod(canonical.timestamp_nanos(value), 10**6)
        return self.data.Timestamp.fromEpochMillis(millis, nanos)


def _number(root: str, value: Any) -> Any:
    """What py4j passes for a value of a fixed-width type; other values as they are."""
    if root == "DATE":
        return canonical.day_number(value)
    if root == "TIME_WITHOUT_TIME_ZONE":
        return canonical.time_nanos(value) // 10**6
    return float(value) if root in ("FLOAT", "DOUBLE") else value


def _canonical_number(root: str, value: Any) -> Any:
    if root == "DATE":
        return canonical.day(value)
    if root == "TIME_WITHOUT_TIME_ZONE":
        return canonical.time(value * 10**6)
    if root == "FLOAT":  # py4j passes the shortest text of the float: widen what it meant
        return canonical.number(struct.unpack("f", struct.pack("f", value))[0])
    return canonical.number(value) if root == "DOUBLE" else value
