"""Avro schemas of manifests and manifest lists, as Anabranch writes them.

Readers resolve fields by name and ignore what they do not know, so the fields below are the union of what
the releases of Java Paimon and pypaimon need to find. The text is fixed: manifests of equal text can be
merged without decoding a row.
"""

from __future__ import annotations

import json
from typing import Any

import fastavro

from anabranch.format.avro.files import RecordSchema
from anabranch.format.records.data_file import SimpleStats

FORMAT_VERSION = 2
"""`_VERSION` of every entry and of every manifest in a list; nothing else is read or written."""


def _nullable(avro_type: Any) -> list[Any]:
    return ["null", avro_type]


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _record(name: str, **fields: Any) -> dict[str, Any]:
    members = [
        {"name": field, "type": avro_type, **({"default": None} if isinstance(avro_type, list) else {})}
        for field, avro_type in fields.items()
    ]
    return {"type": "record", "name": name, "fields": members}


def _stats(name: str) -> dict[str, Any]:
    return _record(
        name, _MIN_VALUES="bytes", _MAX_VALUES="bytes", _NULL_COUNTS=_nullable(_array(_nullable("long")))
    )


def _schema(record: dict[str, Any]) -> RecordSchema:
    named = {
        "type": "record",
        "name": record["name"],
        "namespace": "org.apache.paimon.avro.generated",
        **record,
    }
    return RecordSchema(json.dumps(named, separators=(",", ":")).encode(), fastavro.parse_schema(named))


MANIFEST_ENTRY = _schema(
    _record(
        "record",
        _VERSION="int",
        _KIND="int",
        _PARTITION="bytes",
        _BUCKET="int",
        _TOTAL_BUCKETS="int",
        _FILE=_record(
            "record__FILE",
            _FILE_NAME="string",
            _FILE_SIZE="long",
            _ROW_COUNT="long",
            _MIN_KEY="bytes",
            _MAX_KEY="bytes",
            _KEY_STATS=_stats("record__FILE__KEY_STATS"),
            _VALUE_STATS=_stats("record__FILE__VALUE_STATS"),
            _MIN_SEQUENCE_NUMBER="long",
            _MAX_SEQUENCE_NUMBER="long",
            _SCHEMA_ID="long",
            _LEVEL="int",
            _EXTRA_FILES=_array("string"),
            _CREATION_TIME=_nullable({"type": "long", "logicalType": "timestamp-millis"}),
            _DELETE_ROW_COUNT=_nullable("long"),
            _EMBEDDED_FILE_INDEX=_nullable("bytes"),
            _FILE_SOURCE=_nullable("int"),
            _VALUE_STATS_COLS=_nullable(_array("string")),
            _EXTERNAL_PATH=_nullable("string"),
            _FIRST_ROW_ID=_nullable("long"),
            _WRITE_COLS=_nullable(_array("string")),
        ),
    )
)
"""A manifest entry with the data-file record of 20 fields."""

MANIFEST_FILE_META = _schema(
    _record(
        "record",
        _VERSION="int",
        _FILE_NAME="string",
        _FILE_SIZE="long",
        _NUM_ADDED_FILES="long",
        _NUM_DELETED_FILES="long",
        _PARTITION_STATS=_stats("record__PARTITION_STATS"),
        _SCHEMA_ID="long",
        _MIN_BUCKET=_nullable("int"),
        _MAX_BUCKET=_nullable("int"),
        _MIN_LEVEL=_nullable("int"),
        _MAX_LEVEL=_nullable("int"),
        _MIN_ROW_ID=_nullable("long"),
        _MAX_ROW_ID=_nullable("long"),
        _TOTAL_BUCKETS=_nullable("int"),
        _EXTRA_FILES=_nullable(_array("string")),
    )
)
"""A manifest as a manifest list describes it."""


def stats_record(stats: SimpleStats) -> dict[str, Any]:
    """Statistics as the record that fields of both schemas hold."""
    # fastavro takes a tuple for a branch number and a value.
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        "_NULL_COUNTS": list(stats.null_counts),
    }
