"""A handle of a table or branch that was dropped changes nothing in the one that was created under its name."""

from itertools import count

import pytest

import anabranch
from anabranch.format.records.refs import Consumer
from anabranch.kernel.log.consumers import forget_consumer, move_consumer, record_consumer
from anabranch.streaming.consumers import consumed_position
from tests.support.lengths import first_short
from tests.support.tables import ids_of, rows

_NAMES = count()

ACTS = {
    "tag": lambda t: t.create_tag("new"),
    "tag by number": lambda t: t.create_tag("new", snapshot=1),
    "untag": lambda t: t.delete_tag("good"),
    "rename tag": lambda t: t.rename_tag("good", "better"),
    "replace tag": lambda t: t.replace_tag("good", snapshot=2),
    "savepoint": lambda t: t.create_savepoint(),
    "no savepoint": lambda t: t.delete_savepoint(1),
    "savepoint manager": lambda t: t.savepoint_manager.create(),
    "savepoint manager delete": lambda t: t.savepoint_manager.delete(1),
    "branch": lambda t: t.create_branch("new", tag="good"),
    "no branch": lambda t: t.delete_branch("fix"),
    "merge": lambda t: t.merge_branch("fix"),
    "replace main": lambda t: t.replace_main_branch("fix", force=True),
    "undo": lambda t: t.undo_replace(),
    "expire": lambda t: t.expire_snapshots(retain_max=2, retain_min=1, older_than=2**62),
    "orphans": lambda t: t.remove_orphan_files(older_than=2**62),
    "maintain": lambda t: t.maintain(),
    "compact": lambda t: t.compact(full=True),
    "roll back": lambda t: t.rollback(2),
    "roll back for good": lambda t: t.rollback(1, destructive=True, force=True),
    "forget consumer": lambda t: forget_consumer(t.context, "reader"),
    "move consumer": lambda t: move_consumer(t.context, "reader"),
    "record consumer": lambda t: record_consumer(t.context, "reader", Consumer(4)),
    "begin a stream": lambda t: consumed_position(t.context, "new", {}),
    "alter": lambda t: t.alter().add_column("w", "INT").apply(),
    "append": lambda t: t.append(rows(50, 1)),
}


def _make(lake, first):
    table = lake.create_table("db.t", "id BIGINT NOT NULL, v STRING", options={"write-only": "true"})
    for number in range(4):
        table.append(rows(first + number, 1))
    table.create_tag("good", snapshot=3)
    table.create_savepoint()
    table.create_branch("fix", tag="good")
    table.branch("fix").append(rows(first + 20, 1))
    record_consumer(table.context, "reader", Consumer(2))
    return table


def _files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("LATEST", "EARLIEST")
    }


READS = {
    "scan": lambda t: t.scan().to_arrow(),
    "snapshot": lambda t: t.snapshot,
    "snapshots": lambda t: list(t.snapshots()),
    "files": lambda t: t.system("files"),
    "verify": lambda t: t.verify(),
    "branch": lambda t: t.branch("fix"),
    "branch main": lambda t: t.branch("main"),
    "branch by option": lambda t: t.with_options({"branch": "fix"}),
    "diff": lambda t: t.diff("main", "fix"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_nothing_is_read(read):
    lake = anabranch.connect(f"memory://recreated-reads{next(_NAMES)}")
    old = _make(lake, 0)
    lake.drop_table("db.t")
    _make(lake, 100)
    with pytest.raises(
        anabranch.NotFoundError, match=r"'db\.t' was dropped and created again since it was opened"
    ):
        read(old)


def test_nothing_is_compared_of_a_table_that_is_gone():
    lake = anabranch.connect(f"memory://recreated-reads{next(_NAMES)}")
    old = _make(lake, 0)
    lake.drop_table("db.t")
    for sides in (("main", "main"), ("main", "fix")):
        with pytest.raises(anabranch.NotFoundError, match="is not there any more|does not exist"):
            old.diff(*sides)


@pytest.mark.parametrize("act", first_short(ACTS.values(), 6), ids=ACTS)
def test_nothing_is_changed(tmp_path, act):
    lake = anabranch.connect(str(tmp_path))
    old = _make(lake, 0)
    lake.drop_table("db.t")
    new = _make(lake, 100)
    before = _files(tmp_path / "db.db" / "t")
    with pytest.raises(anabranch.AnabranchError, match="created again"):
        act(old)
    assert _files(tmp_path / "db.db" / "t") == before
    assert ids_of(new) == [100, 101, 102, 103]


OF_BRANCHES = {
    "tag": lambda b: b.create_tag("new"),
    "tag by number": lambda b: b.create_tag("new", snapshot=4),
    "untag": lambda b: b.delete_tag("own"),
    "rename tag": lambda b: b.rename_tag("own", "better"),
    "replace tag": lambda b: b.replace_tag("own"),
    "savepoint": lambda b: b.create_savepoint(),
    "no savepoint": lambda b: b.delete_savepoint(b.savepoints()[-1].id),
    "savepoint manager": lambda b: b.savepoint_manager.create(),
    "savepoint manager delete": lambda b: b.savepoint_manager.delete(b.savepoints()[-1].id),
    "forget consumer": lambda b: b.delete_consumer("reader"),
    "move consumer": lambda b: b.reset_consumer("reader"),
    "alter": lambda b: b.alter().add_column("w", "INT").apply(),
    "append": lambda b: b.append(rows(50, 1)),
    "compact": lambda b: b.compact(full=True),
    "roll back": lambda b: b.rollback(4),
}


def _make_branch(table, first):
    table.create_branch("held", tag="good")
    branch = table.branch("held")
    branch.append(rows(first, 1))
    branch.append(rows(first + 1, 1))
    branch.create_tag("own")
    branch.create_savepoint()
    record_consumer(branch.context, "reader", Consumer(4))
    return branch


@pytest.mark.parametrize("act", first_short(OF_BRANCHES.values(), 11), ids=OF_BRANCHES)
def test_nothing_is_changed_in_a_branch_that_was_made_again(act):
    table = _make(anabranch.connect(f"memory://held{next(_NAMES)}"), 0)
    old = _make_branch(table, 200)
    table.delete_branch("held")
    new = _make_branch(table, 300)
    before = _objects(table)
    with pytest.raises(anabranch.AnabranchError, match="created again"):
        act(old)
    assert _objects(table) == before
    assert ids_of(new) == [0, 1, 2, 300, 301]


READS = {
    "snapshot": lambda b: b.snapshot,
    "snapshots": lambda b: [*b.snapshots()],
    "files": lambda b: b.system("files"),
    "partitions": lambda b: b.system("partitions"),
    "history": lambda b: b.system("snapshots"),
    "scan": ids_of,
}


@pytest.mark.parametrize("written", [True, False], ids=["written", "as it began"])
@pytest.mark.parametrize("act", READS.values(), ids=READS)
def test_nothing_is_read_of_a_branch_that_was_made_again(act, written):
    table = _make(anabranch.connect(f"memory://held{next(_NAMES)}"), 0)
    table.create_branch("held", tag="good")
    old = table.branch("held")
    table.delete_branch("held")
    table.create_branch("held", tag="good")
    if written:
        table.branch("held").append(rows(300, 1))
    with pytest.raises(anabranch.NotFoundError, match="created again"):
        act(old)


def _objects(table):
    storage = table.context.storage
    paths = [info.path for info in storage.list(recursive=True)]
    return {path: storage.get(path) for path in paths if not path.endswith(("LATEST", "EARLIEST"))}
