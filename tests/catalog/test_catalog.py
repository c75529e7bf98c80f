"""Databases and tables of a warehouse, on every kind of store."""

import itertools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.catalog.connectors import Connectors
from anabranch.catalog.folders import Identifier
from anabranch.lake import Lake
from anabranch.schemas import to_columns
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from tests.storage.conftest import in_memory_bucket
from tests.support.faults import FaultyStorage, fail, run
from tests.support.processes import forking
from tests.support.tables import ids_of, rows

COLUMNS = "id BIGINT NOT NULL, v STRING"
REMOVALS = ("delete", "delete_many", "delete_folder")
FIXTURES = Path(__file__).parent.parent / "data" / "paimon"


@pytest.fixture(params=["local", "memory", "objects"])
def storage(request, tmp_path):
    match request.param:
        case "local":
            (tmp_path / "lake").mkdir()
            return LocalStorage(tmp_path / "lake")
        case "memory":
            return MemoryStorage()
        case _:
            return in_memory_bucket().scoped("some/folder")


@pytest.fixture
def bucket():
    """A warehouse in an object store, which cannot move a folder."""
    return in_memory_bucket().scoped("some/folder")


@pytest.fixture
def lake(storage):
    return Lake(storage)


def _everything(storage):
    return sorted(info.path for info in storage.list(recursive=True, include_temporary=True))


# Databases


def test_a_warehouse_begins_empty(lake):
    assert lake.databases() == []
    with pytest.raises(anabranch.NotFoundError, match="'db' does not exist.*\n.*empty"):
        lake.tables("db")
    with pytest.raises(anabranch.NotFoundError, match="warehouse is empty"):
        lake.table("db.t")


def test_databases_are_created_listed_and_dropped(lake, storage):
    lake.create_database("b")
    lake.create_database("a")
    lake.create_database("a", if_not_exists=True)
    with pytest.raises(anabranch.AlreadyExistsError, match="'a' exists"):
        lake.create_database("a")
    assert lake.databases() == ["a", "b"]
    assert lake.tables("a") == []
    lake.drop_database("a")
    assert lake.databases() == ["b"]
    with pytest.raises(anabranch.NotFoundError, match="databases there are: b"):
        lake.drop_database("a")
    lake.drop_database("b")
    assert _everything(storage) == []


def test_a_database_with_tables_is_dropped_only_on_request(lake, storage):
    lake.create_table("db.t", COLUMNS).append(rows(0, 1))
    lake.create_table("db.u", COLUMNS)
    with pytest.raises(anabranch.InvalidInputError, match="2 tables: t, u"):
        lake.drop_database("db")
    assert ids_of(lake.table("db.t")) == [0]
    lake.drop_database("db", cascade=True)
    assert lake.databases() == []
    assert _everything(storage) == []


def test_a_database_dropped_halfway_has_no_half_tables(bucket):
    for nth in itertools.count(1):
        storage = bucket.scoped(f"run-{nth}")
        lake = Lake(storage)
        for name in ("t", "u"):
            lake.create_table(f"db.{name}", COLUMNS).append(rows(0, 1))
        try:
            Lake(_failing_from_removal(storage, nth)).drop_database("db", cascade=True)
        except anabranch.StorageError:
            for name in lake.tables("db"):
                assert ids_of(lake.table(f"db.{name}")) == [0]
            lake.drop_database("db", cascade=True)
            assert _everything(storage) == []
        else:
            break
    assert nth > 4


def _failing_from_removal(storage, nth):
    """A store that stops removing anything at the nth removal."""
    seen = itertools.count(1)

    def act(path):
        if next(seen) >= nth:
            raise anabranch.StorageError(f"the test made {path} stay")

    return FaultyStorage(storage, [run("before", call, act, times=10**6) for call in REMOVALS])


def test_folders_that_are_no_databases_are_not_shown(lake, storage):
    storage.put("notes/readme", b"")
    storage.put("loose.db", b"")
    lake.create_database("db")
    assert lake.databases() == ["db"]


# Creating tables


def test_a_created_table_is_found_again(lake):
    made = lake.create_table(
        "db.t", COLUMNS, partition_by=["v"], options={"target-file-size": "1 mb"}, comment="of tests"
    )
    found = lake.table("db.t")
    assert lake.databases() == ["db"]
    assert lake.tables("db") == ["t"]
    assert found.table_uuid == made.table_uuid
    assert found.schema == made.schema
    assert (found.schema.partition_keys, found.schema.comment) == (("v",), "of tests")
    assert found.options["target-file-size"] == "1 mb"
    assert found.snapshot is None


def test_a_table_is_created_once(lake):
    lake.create_table("db.t", COLUMNS).append(rows(0, 1))
    with pytest.raises(anabranch.AlreadyExistsError, match="'db.t' exists"):
        lake.create_table("db.t", "other INT")
    again = lake.create_table("db.t", "other INT", if_not_exists=True)
    assert [f.name for f in again.schema.fields] == ["id", "v"]
    assert ids_of(again) == [0]


def test_of_many_creators_one_creates(lake):
    def create(i):
        try:
            return lake.create_table("db.t", f"id BIGINT NOT NULL, v{i} STRING").table_uuid
        except anabranch.AlreadyExistsError:
            return None

    with ThreadPoolExecutor(8) as pool:
        made = [uuid for uuid in pool.map(create, range(16)) if uuid is not None]
    assert made == [lake.table("db.t").table_uuid]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda i: lake.create_table("db.t", COLUMNS, if_not_exists=True), range(8))
        assert {table.table_uuid for table in found} == set(made)


def _create(url, number):
    try:
        return anabranch.connect(url).create_table("db.t", f"id INT, c{number} INT").table_uuid
    except anabranch.AlreadyExistsError:
        return None


def test_of_many_processes_one_creates(tmp_path):
    with forking(__name__).Pool(3) as pool:
        made = [u for u in pool.starmap(_create, [(str(tmp_path), i) for i in range(6)]) if u is not None]
    assert made == [anabranch.connect(str(tmp_path)).table("db.t").table_uuid]


@pytest.mark.parametrize(
    "name", ["t", "", ".t", "db.", "db.t$branch_x", "db.t$snapshots", "db.t$a$b", "sys.t"]
)
def test_names_that_no_table_can_have(lake, storage, name):
    with pytest.raises(anabranch.InvalidInputError):
        lake.create_table(name, COLUMNS)
    assert _everything(storage) == []


def test_a_schema_that_is_refused_leaves_nothing(lake, storage):
    for schema, how in (("id INT, id INT", {}), (COLUMNS, {"partition_by": ["x"]}), (3, {})):
        with pytest.raises(anabranch.SchemaError):
            lake.create_table("db.t", schema, **how)
    assert _everything(storage) == []


def test_a_table_that_does_not_exist_names_those_that_do(lake):
    lake.create_table("db.orders", COLUMNS)
    with pytest.raises(
        anabranch.NotFoundError, match=r"'db.order' does not exist(.|\n)*tables there are: orders"
    ):
        lake.table("db.order")
    with pytest.raises(anabranch.NotFoundError, match="databases there are: db"):
        lake.table("other.orders")


def test_a_system_table_is_no_table_to_open(lake):
    lake.create_table("db.t", COLUMNS)
    with pytest.raises(anabranch.InvalidInputError, match="system table"):
        lake.table("db.t$snapshots")
    with pytest.raises(anabranch.NotFoundError, match="branch 'x' does not exist"):
        lake.table("db.t$branch_x")
    assert lake.table("db.t$branch_main").name == "db.t"


def test_other_folders_of_a_database_are_no_tables(lake, storage):
    lake.create_table("db.t", COLUMNS)
    storage.put("db.db/notes/readme", b"")
    storage.put("db.db/half/schema/readme", b"")
    assert lake.tables("db") == ["t"]
    with pytest.raises(anabranch.NotFoundError):
        lake.table("db.notes")
    with pytest.raises(anabranch.NotFoundError):
        lake.drop_table("db.notes")
    assert storage.exists("db.db/notes/readme")


# Dropping tables


def test_a_dropped_table_is_gone_with_all_it_had(lake, storage):
    table = lake.create_table("db.t", COLUMNS)
    table.append(rows(0, 3))
    _tag(table, "good")
    lake.create_table("db.u", COLUMNS)
    lake.drop_table("db.t")
    assert lake.tables("db") == ["u"]
    assert [p for p in _everything(storage) if not p.startswith("db.db/u/")] == ["db.db/.database"]
    with pytest.raises(anabranch.NotFoundError, match="'db.t' does not exist"):
        lake.drop_table("db.t")
    lake.drop_table("db.t", if_exists=True)
    lake.drop_table("nowhere.t", if_exists=True)


def test_a_name_can_be_used_again(lake):
    old = lake.create_table("db.t", COLUMNS)
    old.append(rows(0, 3))
    lake.drop_table("db.t")
    new = lake.create_table("db.t", "a STRING")
    new.append(pa.table({"a": ["x"]}))
    assert new.table_uuid != old.table_uuid
    assert new.scan().to_arrow().to_pylist() == [{"a": "x"}]
    assert [s.id for s in new.snapshots()] == [1]


@pytest.mark.parametrize("name", ["db.t$branch_fix", "db.t$snapshots", "db.t$branch_fix$snapshots"])
def test_the_name_of_a_part_does_not_drop_or_rename_the_whole(lake, name):
    lake.create_table("db.t", COLUMNS).append(rows(0, 1))
    with pytest.raises(anabranch.InvalidInputError, match="not the name of a table"):
        lake.drop_table(name)
    with pytest.raises(anabranch.InvalidInputError, match="not the name of a table"):
        lake.drop_table(name, if_exists=True)
    with pytest.raises(anabranch.InvalidInputError, match="not the name of a table"):
        lake.rename_table(name, "db.u")
    with pytest.raises(anabranch.InvalidInputError, match="not the name of a table"):
        lake.rename_table("db.t", name.replace("db.t", "db.u"))
    assert lake.tables("db") == ["t"]
    assert ids_of(lake.table("db.t")) == [0]


def _tag(table, name):
    """As another engine makes one; only so much of tags exists here yet."""
    storage, layout = table.context.storage, table.context.layout
    storage.put(layout.tag_path(name), storage.get(layout.snapshot_path(table.snapshot.id)))


def _with_table(storage):
    table = Lake(storage).create_table("db.t", COLUMNS)
    table.append(rows(0, 3))
    _tag(table, "good")
    return table


def test_an_interrupted_drop_in_an_object_store_leaves_no_half_table(bucket):
    for nth in itertools.count(1):
        storage = bucket.scoped(f"run-{nth}")
        _with_table(storage)
        lake = Lake(storage)
        try:
            Lake(_failing_from_removal(storage, nth)).drop_table("db.t")
        except anabranch.StorageError:
            _check_no_half_table(lake, untouched=nth == 1)
            lake.drop_table("db.t")
        else:
            break
        new = lake.create_table("db.t", COLUMNS)
        assert (new.snapshot, new.tags()) == (None, [])
        assert new.append(rows(7, 1)).id == 1
        assert ids_of(new) == [7]
    assert nth > 4


def _check_no_half_table(lake, *, untouched):
    if untouched:
        assert ids_of(lake.table("db.t")) == [0, 1, 2]
        return
    assert lake.tables("db") == []
    with pytest.raises(anabranch.NotFoundError):
        lake.table("db.t")
    with pytest.raises(anabranch.AlreadyExistsError, match="drop was interrupted"):
        lake.create_table("db.t", COLUMNS, if_not_exists=True)


def test_an_interrupted_drop_in_a_folder_frees_the_name_and_is_finished_by_the_next(tmp_path):
    storage = LocalStorage(tmp_path)
    _with_table(storage)
    with pytest.raises(anabranch.StorageError):
        Lake(FaultyStorage(storage, [fail("delete_folder")])).drop_table("db.t")
    lake = Lake(storage)
    assert lake.tables("db") == []
    assert any("data-" in path for path in _everything(storage))
    lake.create_table("db.t", COLUMNS)
    lake.drop_table("db.t")
    assert _everything(storage) == ["db.db/.database"]


def test_a_drop_does_not_reach_a_table_created_in_its_place(bucket):
    """In an object store a drop takes its time; who creates the table again has to wait for it."""
    _with_table(bucket)
    refused = []

    def create(path):
        try:
            Lake(bucket).create_table("db.t", COLUMNS)
        except anabranch.AlreadyExistsError as error:
            refused.append(error)

    everywhere = [run("before", call, create, times=10**6) for call in REMOVALS]
    Lake(FaultyStorage(bucket, everywhere)).drop_table("db.t")
    assert refused
    assert Lake(bucket).tables("db") == []
    assert Lake(bucket).create_table("db.t", COLUMNS).append(rows(0, 1)).id == 1


# Renaming tables


def test_a_table_is_renamed_with_all_it_has(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    table = lake.create_table("db.t", COLUMNS)
    table.append(rows(0, 3))
    lake.rename_table("db.t", "other.u")
    assert (lake.tables("db"), lake.tables("other")) == ([], ["u"])
    moved = lake.table("other.u")
    assert moved.table_uuid == table.table_uuid
    assert ids_of(moved) == [0, 1, 2]
    assert moved.append(rows(3, 1)).id == 2
    with pytest.raises(anabranch.NotFoundError):
        lake.table("db.t")


def test_a_rename_never_replaces(tmp_path):
    lake = anabranch.connect(str(tmp_path))
    for name in ("t", "u"):
        lake.create_table(f"db.{name}", COLUMNS)
    lake.table("db.u").append(rows(0, 1))
    for target in ("db.u", "db.t"):
        with pytest.raises(anabranch.AlreadyExistsError):
            lake.rename_table("db.t", target)
    with pytest.raises(anabranch.NotFoundError, match="'db.x' does not exist"):
        lake.rename_table("db.x", "db.y")
    with pytest.raises(anabranch.InvalidNameError):
        lake.rename_table("db.t", "db.../x")
    assert lake.tables("db") == ["t", "u"]
    assert ids_of(lake.table("db.u")) == [0]


def test_object_stores_do_not_rename(bucket):
    lake = Lake(bucket)
    lake.create_table("db.t", COLUMNS).append(rows(0, 1))
    before = _everything(bucket)
    with pytest.raises(anabranch.UnsupportedFeatureError, match="cannot move a folder at once") as caught:
        lake.rename_table("db.t", "other.u")
    assert caught.value.feature == "rename-folder"
    assert _everything(bucket) == before


# Tables of others


def _foreign(tmp_path, writer):
    case = next(iter(sorted((FIXTURES / writer).glob("*/warehouse"))))
    shutil.copytree(case, tmp_path / "lake")
    lake = anabranch.connect(str(tmp_path / "lake"))
    database = lake.databases()[0]
    return lake, f"{database}.{lake.tables(database)[0]}"


@pytest.mark.parametrize("writer", sorted(p.name for p in FIXTURES.iterdir() if p.is_dir()))
def test_a_table_without_our_uuid_has_an_identity_all_the_same(tmp_path, writer):
    lake, name = _foreign(tmp_path, writer)
    table = lake.table(name)
    assert "anabranch.table-uuid" not in table.schema.options
    assert table.table_uuid == lake.table(name).table_uuid
    before = table.scan().to_arrow()
    if table.schema.bucket == -1 and not table.branches():
        table.append(before)
        assert table.snapshot.properties["anabranch.branch"] == table.table_uuid
        assert table.scan().to_arrow().num_rows == 2 * before.num_rows
    lake.drop_table(name)
    assert lake.tables(name.partition(".")[0]) == []


def test_a_pointer_to_another_main_branch_is_refused(tmp_path):
    """Unreleased versions of Paimon once had it; ignoring it would read the wrong branch."""
    lake = anabranch.connect(str(tmp_path))
    lake.create_table("db.t", COLUMNS)
    (tmp_path / "db.db" / "t" / "MAIN-BRANCH").write_text("fix")
    with pytest.raises(anabranch.UnsupportedFeatureError) as caught:
        lake.table("db.t")
    assert caught.value.feature == "main-branch-pointer"


# Names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db.t", ("db", "t", None, None)),
        ("db.t$branch_fix", ("db", "t", "fix", None)),
        ("db.t$branch_main", ("db", "t", None, None)),
        ("db.t$snapshots", ("db", "t", None, "snapshots")),
        ("db.t$branch_fix$files", ("db", "t", "fix", "files")),
        ("db.a.b", ("db", "a.b", None, None)),
    ],
)
def test_names_are_taken_apart(text, expected):
    found = Identifier.parse(text)
    assert (found.database, found.table, found.branch, found.system) == expected


@pytest.mark.parametrize(
    "text",
    ["t", "", "db.t$", "db.t$branch_", "db.t$files$branch_x", "db.t$a$b", "db.t$branch_1", "db.t$branch_a/b"],
)
def test_names_that_cannot_be_taken_apart(text):
    with pytest.raises(anabranch.InvalidNameError):
        Identifier.parse(text)


def test_a_topic_and_a_table_do_not_share_a_name(lake, storage):
    lake.create_database("db")
    topic = Identifier("db", "orders")
    fields = to_columns("id BIGINT").fields
    connectors = Connectors(storage)
    connectors.create(topic, fields, options={"connector": "kafka", "topic": "orders"})
    with pytest.raises(anabranch.AlreadyExistsError, match="'db.orders' is defined as a topic"):
        lake.create_table("db.orders", COLUMNS)
    with pytest.raises(anabranch.AlreadyExistsError, match="'db.orders' is defined as a topic"):
        lake.create_table("db.orders", COLUMNS, if_not_exists=True)
    assert connectors.drop(topic)
    lake.create_table("db.orders", COLUMNS)
