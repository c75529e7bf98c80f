"""Merging branches whose schemas differ."""

from dataclasses import replace

from anabranch.format.schema.change import (
    AddColumn,
    WidenColumn,
    apply_changes,
)
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.table_schema import TableSchema
from anabranch.format.types.grammar import parse_sql_type
from anabranch.kernel.log.field_ids import last_id_before

COLUMNS = "a INT NOT NULL, b STRING, c INT, ts TIMESTAMP(3), s ROW<x INT, y INT>, l ARRAY<ROW<p INT>>, m MAP<STRING, ROW<q INT>>"


def schema(columns=COLUMNS, **how):
    options = {key.replace("_", "-"): value for key, value in how.pop("options", {}).items()}
    return TableSchema.create(parse_columns(columns), options=options, time_millis=0, **how)


def changed(base, *changes):
    return apply_changes(base, changes, time_millis=1, has_snapshots=True) if changes else base


def on_branch(base, *changes):
    """As a branch changes it, whose ids begin in a block of its own."""
    return changed(replace(base, id=base.id + 1, highest_field_id=last_id_before(1)), *changes)


def add(name, spelled="INT", *place):
    return AddColumn(name, parse_sql_type(spelled), None, *place)


def widen(name, spelled):
    return WidenColumn(name, parse_sql_type(spelled))
