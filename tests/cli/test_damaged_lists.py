"""Lists of a table's refs and records in which one cannot be read: the rest is listed, and that one is named."""

import json
import shutil

import pyarrow as pa
import pytest

import anabranch
from anabranch.cli.main import run
from tests.support.lengths import first_short

T, U = "d.t", "d.u"


def circle(file):
    file.unlink()
    file.symlink_to(file.name)


WAYS = {"garbage": lambda file: file.write_bytes(b"\x00{"), "circle": circle}


def rows(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    url = tmp_path_factory.mktemp("lists") / "w"
    lake = anabranch.connect(str(url))
    for name in (T, U):
        table = lake.create_table(name, "id BIGINT")
        for number in range(4):
            table.append(rows(number))
        for number in (1, 2):
            table.create_tag(f"tag{number}", number)
            table.create_branch(f"branch{number}", tag=f"tag{number}")
    for number in (1, 2):
        lake.replace_group({T: f"branch{number}", U: f"branch{number}"}, force=True)
    table = lake.table(T)
    table.create_branch("one", tag="tag1")
    table.create_branch("two", tag="tag1")
    table.branch("two").append(rows(9))
    for number in (1, 2):
        table.create_savepoint()
        table.append(rows(20 + number))
        (url / "d.db/t/branch/branch-branch2/consumer").mkdir(exist_ok=True)
        (url / f"d.db/t/branch/branch-branch2/consumer/consumer-c{number}").write_text('{"nextSnapshot": 2}')
    return url


MAIN = "d.db/t/branch/branch-branch2"
CASES = {
    "groups": ("groups/GROUP-1", ["groups"], None),
    "decision": ("groups/GROUP-2.decided", ["groups"], None),
    "tags": (f"{MAIN}/tag/tag-tag1", ["tags", T], "tags"),
    "savepoints": ("d.db/t/savepoint/savepoint-1", ["savepoints", T], "savepoints"),
    "consumers": (f"{MAIN}/consumer/consumer-c1", ["consumers", T], "consumers"),
    "branch": ("d.db/t/branch/branch-one/FORK", ["branches", T], "branches"),
    "head of a branch": ("d.db/t/branch/branch-two/snapshot/snapshot-2", ["branches", T], "branches"),
    "snapshots": (f"{MAIN}/snapshot/snapshot-2", ["snapshots", T], "snapshots"),
    "newest snapshot": (f"{MAIN}/snapshot/snapshot-5", ["snapshots", T], "snapshots"),
}
KEYS = {
    "tags": ("tag_name", "tag1"),
    "savepoints": ("savepoint_id", 1),
    "consumers": ("consumer_id", "c1"),
    "branches": ("branch_name", None),
    "snapshots": ("snapshot_id", None),
}


@pytest.fixture
def cli(whole, tmp_path, capsys):
    """Return a function that runs a command on a copy of the warehouse; exit code, output, and what was said beside it."""
    shutil.copytree(whole, tmp_path / "w")

    def call(*words):
        code = run(["-w", str(tmp_path / "w"), *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def newest(folder):
    return max(int(file.name.rpartition("-")[2]) for file in (folder / MAIN / "snapshot").glob("snapshot-*"))


@pytest.mark.parametrize("way", first_short(WAYS))
@pytest.mark.parametrize("name", CASES)
def test_the_rest_is_listed_and_the_damaged_one_is_named(cli, whole, tmp_path, name, way):
    file, words, system = CASES[name]
    if name == "newest snapshot":
        file = f"{MAIN}/snapshot/snapshot-{newest(whole)}"
    asked = [*words, "--json"] if name != "groups" else words
    code, before, said = cli(*asked)
    assert (code, said) == (0, "")
    if system:
        code, table, _ = cli("read", f"{T}${system}", "--json")
        known = [json.loads(line) for line in table.splitlines()]
        assert all(row["problem"] is None for row in known)
    WAYS[way](tmp_path / "w" / file)
    code, out, said = cli(*asked)
    assert code == 1, "a list that is not whole"
    assert file.rpartition("/")[2].partition(".")[0] in said
    assert "hint: " in said
    if name == "groups":
        assert "GROUP-1" not in out
        assert "group 2" in out
    else:
        was, now = ([next(iter(one.values())) for one in json.loads(text)] for text in (before, out))
        left = set() if system == "branches" else {*was} - {*now}  # a damaged branch is listed as one
        assert now == [one for one in was if one not in left]
        assert len(left) == (system != "branches")
    if system is None:
        return
    code, table, said = cli("read", f"{T}${system}", "--json")
    assert (code, said) == (0, "")
    found = [json.loads(line) for line in table.splitlines()]
    assert len(found) == len(known)
    (damaged,) = [row for row in found if row["problem"] is not None]
    assert file.rpartition("/")[2] in damaged["problem"]
    key, value = KEYS[system]
    assert value is None or damaged[key] == value
    others = [row for row in found if row is not damaged]
    for row in (*others, *known):
        row.pop("millis_behind", None)  # which goes on
    assert others == [row for row in known if row[key] != damaged[key]]


def test_refs_are_listed_where_the_newest_snapshot_cannot_be_read(cli, whole, tmp_path):
    (tmp_path / "w" / MAIN / f"snapshot/snapshot-{newest(whole)}").write_bytes(b"")
    for system in ("tags", "savepoints", "branches", "schemas", "lineage", "branches_log"):
        code, out, said = cli("read", f"{T}${system}", "--json")
        assert code == 0, (system, said)
        assert out, system
    for words in (["tags", T], ["savepoints", T]):
        assert cli(*words)[0] == 0
    code, out, said = cli("branches", T)
    assert (code, "one" in out, "two" in out) == (1, True, True)
    assert f"snapshot-{newest(whole)}" in said
    code, _, said = cli("read", f"{T}$files")
    assert code == 1
    assert f"snapshot-{newest(whole)}" in said, "which needs it"


FROM_FORK = ("branch_uuid", "created_from_tag", "create_time", "first_snapshot_id", "created_by")
FROM_HEAD = ("latest_snapshot_id", "record_count", "snapshots_ahead", "rows_ahead")


@pytest.mark.parametrize("way", first_short(WAYS))
@pytest.mark.parametrize(
    ("file", "lost", "state"),
    [
        ("branch/branch-two/snapshot/snapshot-2", FROM_HEAD, "ready"),
        (
            "branch/branch-two/FORK",
            (*FROM_FORK, *FROM_HEAD[2:], "snapshots_behind", "rows_behind"),
            "damaged",
        ),
        (None, ("snapshots_behind", "rows_behind"), "ready"),
    ],
)
def test_of_a_damaged_branch_all_is_told_that_can_be_read(cli, whole, tmp_path, file, lost, state, way):
    def told():
        rows = [json.loads(line) for line in cli("read", f"{T}$branches", "--json")[1].splitlines()]
        return next(row for row in rows if row["branch_name"] == "two")

    before = told()
    assert before["only_on_main"] > 0
    damaged = f"d.db/t/{file}" if file else f"{MAIN}/snapshot/snapshot-{newest(whole)}"
    WAYS[way](tmp_path / "w" / damaged)
    now = told()
    assert damaged.rpartition("/")[2] in now.pop("problem")
    unknown = dict.fromkeys((*lost, "only_on_main"))
    expected = {
        key: value for key, value in {**before, **unknown, "state": state}.items() if key != "problem"
    }
    assert now == expected
    code, out, said = cli("branches", T)
    assert code == 1
    assert "without snapshots" not in out
    cannot = ", whose newest snapshot cannot be read"
    drawn = " ".join(word for word in out.split() if word.strip("│├└─"))
    assert (f"replaced by 'branch2'{cannot}" in drawn) == (file is None), out
    assert (f"two{cannot}" in drawn) == (lost == FROM_HEAD), out
    if state == "damaged":
        assert f"`anabranch -w {tmp_path}/w delete-branch {T} --name two`" in " ".join(said.split())
    glance = repr(
        next(
            one for one in anabranch.connect(str(tmp_path / "w")).table(T).branch_infos() if one.name == "two"
        )
    )
    assert ("newest snapshot cannot be read" in glance) == (lost == FROM_HEAD)


def test_what_only_main_has_is_not_known_of_a_branch_of_another_engine(cli, tmp_path):
    branch = tmp_path / "w" / MAIN.rpartition("/")[0] / "branch-theirs"
    (branch / "schema").mkdir(parents=True)
    shutil.copy(tmp_path / "w/d.db/t/schema/schema-0", branch / "schema/schema-0")
    found = [json.loads(line) for line in cli("read", f"{T}$branches", "--json")[1].splitlines()]
    (row,) = [row for row in found if row["branch_name"] == "theirs"]
    assert (row["state"], row["only_on_main"], row["problem"]) == ("ready", None, None)
    assert "theirs: made by another engine, without snapshots" in cli("branches", T)[1]


def test_python_takes_the_error_or_is_told(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "w")
    for file in (
        "d.db/t/savepoint/savepoint-1",
        f"{MAIN}/consumer/consumer-c1",
        "d.db/t/branch/branch-one/FORK",
    ):
        (tmp_path / "w" / file).write_bytes(b"")
    table = anabranch.connect(str(tmp_path / "w")).table(T)
    for ask, name in ((table.savepoints, "savepoint 1"), (table.consumers, "consumer 'c1'")):
        with pytest.raises(anabranch.CorruptTableError):
            ask()
        told = []
        assert len(ask(unread=lambda what, error, told=told: told.append(what))) == 1
        assert told == [name]
    states = {info.name: (info.state.value, info.problem is None) for info in table.branch_infos()}
    assert states["one"] == ("damaged", False)
    assert states["two"] == ("ready", True)


def test_one_call_of_sql_lists_the_groups_with_a_problem(whole, tmp_path):
    from anabranch.verbs.registry import in_order

    shutil.copytree(whole, tmp_path / "w")
    (tmp_path / "w/groups/GROUP-1").write_bytes(b"")
    lake = anabranch.connect(str(tmp_path / "w"))
    (verb,) = [one for one in in_order() if one.name == "groups"]
    found = [*verb.function(lake).rows]
    assert [(row[0], row[-1] is None) for row in found] == [(2, True), (2, True), (1, False)]
    assert "GROUP-1" in found[-1][-1]
