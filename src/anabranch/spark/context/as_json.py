"""Tables and scans as JSON, for other processes.

Whoever reads this cannot know who wrote it: an option can come from any SQL statement, and a file from whoever can write
to its folder. So it is JSON, each value of which is checked when it is read, and never a pickle, which is a program.

Credentials are not in the JSON; `settings_of` of the storage has them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import polars as pl

from anabranch.expr.bind import bind
from anabranch.expr.parse import parse
from anabranch.format.records.layout import Part
from anabranch.format.records.snapshot import NO_LIST, Snapshot
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.text.json_object import JsonObject
from anabranch.kernel.log.context import TableContext
from anabranch.scan.scan import Scan, check_columns
from anabranch.storage.open import open_storage
from anabranch.streaming.between import Between

_NO_LIST_NAME: Final = "none"
_LISTS: Final = ("baseManifestList", "deltaManifestList")
_FILES: Final = {"partition": pl.Binary, "bucket": pl.Int32, "file_name": pl.String}


def context_values(context: TableContext) -> dict[str, Any]:
    """Return a branch of a table and its location as JSON. Raises `NotFoundError` if there is no such table."""
    return {
        "url": context.storage.url,
        "name": context.name,
        "branch": context.branch,
        "mainGeneration": context.main_generation,
        "knownAs": context.known_as,
        "past": [part.to_dict() for part in context.past],
        "uuid": context.table_uuid,
        "groups": None if context.groups is None else context.groups.url,
    }


def context_from(content: JsonObject, settings: Mapping[str, str]) -> TableContext:
    """Rebuild the branch from JSON.

    Args:
        content: what `context_values` gave.
        settings: what opens the storage beside its URL.

    Raises `CorruptTableError`, `OptionError`.
    """
    groups = content.optional_text("groups")
    return TableContext(
        open_storage(content.text("url"), settings),
        content.text("name"),
        content.optional_text("branch"),
        main_generation=content.optional_integer("mainGeneration", minimum=0),
        known_as=content.optional_text("knownAs"),
        past=tuple(Part.from_dict(part, where=content.path) for part in content.items("past")),
        known_uuid=content.text("uuid"),
        groups=None if groups is None else open_storage(groups, settings),
    )


def scan_values(scan: Scan) -> dict[str, Any]:
    """Return a scan without its limit as JSON. Raises `NotFoundError` if its table is gone."""
    return {
        "table": context_values(scan.context),
        "snapshot": None if scan.snapshot is None else _snapshot_values(scan.snapshot),
        "schema": scan.schema.to_json().decode(),
        "filter": None if scan.predicate is None else str(scan.predicate),
        "columns": None if scan.columns is None else list(scan.columns),
        "options": dict(scan.options),
        "only": None if scan.only is None else _file_values(scan.only),
        "between": None if scan.between is None else [scan.between.start, scan.between.end],
    }


def scan_from(content: JsonObject, settings: Mapping[str, str]) -> Scan:
    """Rebuild the scan from JSON; raises as `context_from` does, and `PredicateError`, `SchemaError`."""
    schema = TableSchema.from_json(content.text("schema").encode(), path=f"{content.path}.schema")
    filter_text = content.optional_text("filter")
    columns = None if content.values.get("columns") is None else content.texts("columns")
    return Scan(
        context_from(content.part("table"), settings),
        None if content.values.get("snapshot") is None else _snapshot_from(content.part("snapshot")),
        schema,
        None if filter_text is None else bind(parse(filter_text), schema.fields),
        check_columns(columns, schema, metadata=True),
        options=content.optional_text_map("options"),
        only=None if content.values.get("only") is None else _files_from(content),
        between=None if content.values.get("between") is None else _between_from(content),
    )


def _between_from(content: JsonObject) -> Between:
    found = content.items("between")
    if len(found) != 2 or not all(type(number) is int and number >= 0 for number in found):
        content.fail("'between' is not two numbers of snapshots")
    return Between(*found)


def _snapshot_values(snapshot: Snapshot) -> dict[str, Any]:
    """Return the snapshot as in its file; the stand-in for a savepoint's expired snapshot has null lists."""
    named = _with_lists(snapshot, NO_LIST, _NO_LIST_NAME)
    found = {
        "baseManifestList": snapshot.base_manifest_list,
        "deltaManifestList": snapshot.delta_manifest_list,
    }
    return {**named.to_dict(), **{key: None for key, name in found.items() if name == NO_LIST}}


def _snapshot_from(content: JsonObject) -> Snapshot:
    lacking = [key for key in _LISTS if content.values.get(key) is None]
    named = JsonObject({**content.values, **dict.fromkeys(lacking, _NO_LIST_NAME)}, content.path)
    return _with_lists(Snapshot.from_object(named), _NO_LIST_NAME, NO_LIST)


def _with_lists(snapshot: Snapshot, old: str, new: str) -> Snapshot:
    """Return the snapshot with the placeholder for a missing list replaced."""
    base, delta = snapshot.base_manifest_list, snapshot.delta_manifest_list
    return replace(
        snapshot,
        base_manifest_list=new if base == old else base,
        delta_manifest_list=new if delta == old else delta,
    )


def _file_values(files: pl.DataFrame) -> list[list[Any]]:
    rows = files.select(*_FILES).iter_rows()
    return [[base64.b64encode(partition).decode(), bucket, name] for partition, bucket, name in rows]


def _files_from(content: JsonObject) -> pl.DataFrame:
    rows = []
    for item in content.items("only"):
        match item:
            case [str() as partition, int() as bucket, str() as name]:
                try:
                    rows.append((base64.b64decode(partition, validate=True), bucket, name))
                except binascii.Error:
                    content.fail("'only' holds a partition that is no base64")
            case _:
                content.fail("'only' holds what is no file")
    return pl.DataFrame(rows, schema=_FILES, orient="row")
