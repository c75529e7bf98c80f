"""Types, columns and schema files to try codecs with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from anabranch.errors import AnabranchError
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types import data_types as t
from anabranch.format.types.field_tree import assign_field_ids

FIXTURES = Path(__file__).parents[1] / "data" / "paimon"


def fixture_files(prefix):
    """Every file of tables written by others whose name begins so."""
    files = sorted(p for p in FIXTURES.glob(f"*/*/warehouse/**/{prefix}*") if p.is_file())
    assert files, prefix
    return files


ATOMIC_TYPES = st.one_of(
    st.sampled_from([
        t.BooleanType(), t.TinyIntType(), t.SmallIntType(), t.IntType(), t.BigIntType(), t.FloatType(),
        t.DoubleType(), t.DateType(), t.VarCharType(), t.VarBinaryType(),
    ]),
    st.integers(1, t.MAX_LENGTH).flatmap(
        lambda n: st.sampled_from([t.CharType(n), t.VarCharType(n), t.BinaryType(n), t.VarBinaryType(n)])
    ),
    st.integers(0, 9).flatmap(
        lambda p: st.sampled_from([t.TimeType(p), t.TimestampType(p), t.LocalZonedTimestampType(p)])
    ),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: t.DecimalType(p, s))),
)  # fmt: skip

NAMES = st.from_regex(r"[a-zA-ZäöüÄß名_][a-zA-Z0-9 äß名_.-]{0,6}[a-z]", fullmatch=True).filter(
    lambda name: not name.startswith("_") and name != "rowkind" and ".." not in name
)


def _nullable_or_not(types):
    return st.tuples(types, st.booleans()).map(lambda pair: pair[0].with_nullable(pair[1]))


def _complex(inner):
    return st.one_of(
        inner.map(t.ArrayType),
        inner.map(t.MultisetType),
        st.tuples(inner, inner).map(lambda pair: t.MapType(*pair)),
        fields(inner, 4).map(t.RowType),
    )


def fields(types, most):
    """Fields of distinct names, not yet numbered."""
    described = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    columns = st.tuples(NAMES, types, described).map(lambda args: t.Field(-1, *args))
    return st.lists(columns, min_size=1, max_size=most, unique_by=lambda f: f.name).map(tuple)


TYPES = st.recursive(
    _nullable_or_not(ATOMIC_TYPES), lambda inner: _nullable_or_not(_complex(inner)), max_leaves=8
)

SCHEMAS = st.builds(
    lambda columns, comment, time, spare: replace(
        TableSchema.create(columns, comment=comment, time_millis=time),
        highest_field_id=assign_field_ids(columns)[1] + spare,
    ),
    fields(TYPES, 5),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.integers(0, 2**62),
    st.integers(0, 5),
)

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["INT", "ARRAY", "ROW NOT NULL", "DECIMAL(39, 0)", "../x", "VARIANT", "", "APPEND"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutated_documents(draw, documents):
    """Bytes of a JSON document in which one value was replaced, removed or repeated, or bytes were damaged."""
    document = json.loads(json.dumps(draw(st.sampled_from(documents))))
    if draw(st.booleans()):
        data = bytearray(json.dumps(document).encode())
        for _ in range(draw(st.integers(1, 3))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)
    container, key = draw(st.sampled_from(list(_places(document))))
    action = draw(st.sampled_from(["replace", "remove", "repeat"]))
    if action == "replace":
        container[key] = draw(JSON_VALUES)
    elif action == "remove":
        del container[key]
    elif isinstance(container, list):
        container.append(container[key])
    else:
        container[draw(st.sampled_from([*container, "other"]))] = container[key]
    return json.dumps(document).encode()


def _places(value):
    """Every container and key in a document that hold a value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def attempt(call):
    """What a call gives, or the error of this program that it raises instead."""
    try:
        return call(), None
    except AnabranchError as error:
        return None, error


def deep_json(levels, opening, closing, innermost="1"):
    return (opening * levels + innermost + closing * levels).encode()
