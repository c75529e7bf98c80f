"""What was changed between two versions of a schema, in words."""

import pytest

from anabranch.format.schema.change import apply_changes
from anabranch.format.schema.change_text import parse_change
from anabranch.format.schema.ddl import parse_columns
from anabranch.format.schema.diff import changes_between
from anabranch.format.schema.table_schema import TableSchema

OLD = TableSchema.create(
    parse_columns("id BIGINT NOT NULL, n INT, r ROW<x INT, y INT>, a ARRAY<ROW<z INT>>, m MAP<STRING, INT>"),
    options={"owner": "me"},
    time_millis=0,
)


def changed(*changes, old=OLD):
    made = [parse_change(kind, text) for kind, text in changes]
    return apply_changes(old, made, time_millis=1, has_snapshots=True)


@pytest.mark.parametrize(
    ("kind", "text", "phrase"),
    [
        ("add", "new INT FIRST", "added 'new'"),
        ("add", "a.element.new ROW<p INT>", "added 'a.element.new', added 'a.element.new.p'"),
        ("drop", "n", "dropped 'n'"),
        ("drop", "r", "dropped 'r', dropped 'r.x', dropped 'r.y'"),
        ("rename", "n=m2", "renamed 'n' to 'm2'"),
        ("rename", "a.element.z=w", "renamed 'a.element.z' to 'a.element.w'"),
        ("widen", "r.x=BIGINT", "changed 'r.x' from INT to BIGINT"),
        ("widen", "m.value=BIGINT", "changed 'm' from MAP<STRING, INT> to MAP<STRING, BIGINT>"),
        ("nullable", "id", "changed 'id' from BIGINT NOT NULL to BIGINT"),
        ("move", "n LAST", "changed the order of columns"),
        ("comment", "all of it", "changed the table's comment"),
        ("column-comment", "n=why", "changed the comment of 'n'"),
        ("set", "owner=you", "set option 'owner' to 'you'"),
        ("unset", "owner", "removed option 'owner'"),
    ],
)
def test_each_change_in_words(kind, text, phrase):
    assert ", ".join(changes_between(OLD, changed((kind, text)))) == phrase


def test_a_column_that_came_back_was_dropped_and_added():
    phrases = changes_between(OLD, changed(("drop", "n"), ("add", "n INT AFTER id")))
    assert phrases == ["dropped 'n'", "added 'n'"]


def test_what_was_undone_is_not_told():
    there = changed(("rename", "n=m2"), ("set", "owner=you"))
    assert changes_between(OLD, changed(("rename", "m2=n"), ("set", "owner=me"), old=there)) == []
