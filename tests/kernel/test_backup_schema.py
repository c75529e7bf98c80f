"""A backup from before a schema change, put back under a process that knows of the change."""

from dataclasses import replace

import pyarrow as pa
import pytest

import anabranch
from anabranch.errors import CommitConflictError
from anabranch.kernel.actions.append import Append
from anabranch.kernel.log.cache import MetadataCache
from tests.support.tables import ids_of, make_table, rows


def _again(table):
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def _put_back(url):
    """A table whose second version of the schema is gone again, with all that was done since; the handle saw it."""
    table = make_table(url)
    table.append(rows(1, 1))
    table.append(rows(2, 1))
    storage = table.context.storage
    saved = {info.path: storage.get(info.path) for info in storage.list("", recursive=True)}
    table.alter().add_column("c", "INT").apply()
    table.append([{"id": 3, "v": "a", "c": 5}])
    table.scan().to_arrow()
    for info in storage.list("", recursive=True):
        storage.delete(info.path)
    storage.put_many(saved)
    return table


@pytest.mark.parametrize("is_other", [False, True], ids=["gone", "another"])
def test_rows_in_a_schema_that_is_not_stored_are_refused(is_other):
    table = _put_back(f"memory://backup-{is_other}")
    if is_other:
        other = _again(table)
        other.alter().add_column("d", "STRING").apply()
        other.append([{"id": 9, "v": "z", "d": "text"}])
    with pytest.raises(CommitConflictError, match=r"SCHEMA_CHANGED: version 1 .* a backup"):
        table.append([{"id": 4, "v": "c", "c": 77}])
    assert _again(table).verify(deep=True).ok
    table.append([{"id": 5, "v": "c"}])
    assert ids_of(_again(table)) == ([1, 2, 5, 9] if is_other else [1, 2, 5])


def test_rows_in_an_older_version_that_is_another_now_are_refused():
    table = _put_back("memory://backup-older")
    writer = table.writer()
    data = [{"id": 4, "v": "c", "c": 77}]
    messages = writer.write([batch.cast(writer.schema) for batch in pa.Table.from_pylist(data).to_batches()])
    other = _again(table)
    other.alter().add_column("d", "STRING").apply()
    other.alter().add_column("e", "STRING").apply()
    with pytest.raises(CommitConflictError, match="SCHEMA_CHANGED: version 1 "):
        table.commit(Append(messages))
    assert ids_of(_again(table)) == [1, 2]


def test_a_column_is_added_to_the_schema_that_is_there():
    table = _put_back("memory://backup-alter")
    table.alter().add_column("e", "INT").apply()
    assert [(s.id, [f.name for f in s.fields]) for s in _again(table).schemas()] == [
        (0, ["id", "v"]),
        (1, ["id", "v", "e"]),
    ]
    assert _again(table).verify(deep=True).ok


def test_a_compaction_with_a_schema_that_is_not_stored_is_refused():
    table = _put_back("memory://backup-compact")
    with pytest.raises(CommitConflictError, match="SCHEMA_CHANGED"):
        table.compact(full=True)
    table.compact(full=True)
    assert ids_of(_again(table)) == [1, 2]
    assert _again(table).verify(deep=True).ok
