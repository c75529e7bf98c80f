"""Main inherits the tags of its past: none is copied, and what becomes of one on main is nothing to what was main."""

import itertools
import json
import time
from dataclasses import replace
from functools import partial

import pytest

import anabranch
from anabranch.errors import AlreadyExistsError, CommitConflictError, CorruptTableError, NotFoundError
from anabranch.kernel.expiry.expire import expire
from anabranch.kernel.expiry.retention import Retention
from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.main_branch import as_main, main_of
from anabranch.kernel.replacement.release import release_due
from tests.branches.creating import again
from tests.branches.replacing import files
from tests.support.dying import deaths, through
from tests.support.faults import FaultyStorage
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows

_names = itertools.count()
ALL = {"begin1": [0], "begin2": [0, 1], "old0": [0], "old1": [0, 1]}


def replaced(*, times=2, **options):
    """Main is the last of branches `b1`, `b2`, each of one row more; snapshot n + 1 holds the rows 0 to n.

    Each main was tagged before it was replaced: `old0`, `old1`. The branches began with `begin1`, `begin2`.
    """
    table = make_table(f"memory://inherited{next(_names)}", **options)
    table.append(rows(0, 1))
    for number in range(1, times + 1):
        table.create_tag(f"old{number - 1}")
        table.create_branch(f"b{number}", f"begin{number}", snapshot=table.snapshot.id)
        table.branch(f"b{number}").append(rows(number, 1))
        table.replace_main_branch(f"b{number}")
        table = again(table)
    return table


def opened(table):
    """Main as a process has it that opens the table now."""
    return anabranch.Table(main_of(as_main(replace(table.context, cache=MetadataCache()), None, 0)))


def tags(table):
    return {name: ids_of(opened(table).at(name)) for name in opened(table).tags()}


def expire_to(table, at_most):
    return expire(opened(table).context, Retention(at_least=1, at_most=at_most, replaced_before=0))


def dropped(table):
    expire_to(table, 1)
    return release_due(opened(table).context, 0).dropped


def replaced_by_another(table, name, *, snapshot=None):
    """Put a branch of one more row in the place of main."""
    table.create_branch(name, f"begin-{name}", snapshot=f"main.snapshot.{snapshot or table.snapshot.id}")
    table.branch(name).append(rows(100, 1))
    table.replace_main_branch(name, force=snapshot is not None)


def test_main_has_them_and_none_is_copied():
    table = replaced()
    assert tags(table) == ALL
    assert [row["tag_name"] for row in table.system("tags").to_pylist()] == sorted(ALL)
    assert [name for name in files(table, "branch/branch-b2/tag") if "anabranch-fork" not in name] == [
        "branch/branch-b2/tag/tag-begin2"  # with which the branch began
    ]
    assert json.loads(table.context.storage.get("branch/MAIN-2"))["version"] == 4
    assert table.verify(deep=True).problems == ()
    assert sorted(opened(table).branch("main@2").tags()) == ["begin1", "begin2", "old0", "old1"]
    assert sorted(opened(table).branch("main@1").tags()) == ["begin1", "old0"]
    with pytest.raises(NotFoundError, match="tag 'nothing' does not exist"):
        table.at("nothing")
    for name in ("old0", "begin2"):
        with pytest.raises(AlreadyExistsError, match=f"'{name}' exists already"):
            table.create_tag(name)
    with pytest.raises(AlreadyExistsError, match="'old0' exists already"):
        table.rename_tag("old1", "old0")


def test_what_was_made_above_a_fork_is_of_what_was_main_alone():
    table = replaced(times=1)
    table.create_branch("fix", "here", snapshot=2)
    table.append(rows(9, 1))
    table.create_tag("above")
    table.replace_main_branch("fix", force=True)
    assert tags(table) == {"begin1": [0], "old0": [0], "here": [0, 1]}
    assert ids_of(opened(table).branch("main@2").at("above")) == [0, 1, 9]


def changed(table, how):
    """Change the tags of main; return what it has then."""
    match how:
        case "deleted":
            table.delete_tag("old0")
            table.delete_tag("begin2")  # of which it has a file of its own, since the branch began with it
            return {"begin1": [0], "old1": [0, 1]}
        case "renamed":
            table.rename_tag("old0", "new")
            table.rename_tag("begin2", "newer")
            return {"begin1": [0], "new": [0], "newer": [0, 1], "old1": [0, 1]}
        case "moved":
            table.replace_tag("old0", 3)
            table.replace_tag("begin2", 3)
            return {**ALL, "old0": [0, 1, 2], "begin2": [0, 1, 2]}
        case "moved and deleted":
            table.replace_tag("old0", 3)
            table.delete_tag("old0")
            return {name: held for name, held in ALL.items() if name != "old0"}
        case "moved and renamed":
            table.replace_tag("old0", 3)
            table.rename_tag("old0", "new")
            return {**{name: held for name, held in ALL.items() if name != "old0"}, "new": [0, 1, 2]}
        case "moved for a while":
            table.replace_tag("old0", 3, retained="1 ms")
            time.sleep(0.01)
            table.maintain()
            return {name: held for name, held in ALL.items() if name != "old0"}
        case _:
            table.delete_tag("old0")
            table.create_tag("old0", 3)
            return {**ALL, "old0": [0, 1, 2]}


HOWS = (
    "deleted",
    "renamed",
    "moved",
    "moved and deleted",
    "moved and renamed",
    "moved for a while",
    "made anew",
)


@pytest.mark.parametrize("how", HOWS)
def test_what_becomes_of_one_on_main_is_nothing_to_what_was_main(how):
    table = replaced()
    now = changed(table, how)
    assert tags(table) == now
    assert sorted(opened(table).branch("main@1").tags()) == ["begin1", "old0"]
    assert ids_of(opened(table).branch("main@1").at("old0")) == [0]
    replaced_by_another(table, "next")
    assert tags(table) == {**now, "begin-next": [0, 1, 2]}
    table.undo_replace()
    assert tags(table) == {**now, "begin-next": [0, 1, 2]}
    table.undo_replace(2)
    assert tags(table) == ALL
    opened(table).replace_main_branch("b2", force=True)
    assert set(tags(table)) >= {"begin1", "old1"}
    assert opened(table).verify(deep=True).problems == ()


def test_what_becomes_of_one_on_what_was_main_is_nothing_to_main():
    table = replaced()
    old = table.branch("main@1")
    old.delete_tag("begin1")
    old.replace_tag("old0", "snapshot.1", retained="1 ms")
    old.create_tag("new", "snapshot.1")
    assert tags(table) == ALL
    assert sorted(opened(table).branch("main@1").tags()) == ["new", "old0"]
    expire_to(table, 1)
    opened(table).remove_orphan_files(older_than="0 s")
    assert tags(table) == ALL


def test_one_whose_time_is_over_goes():
    table = replaced(times=1)
    table.create_tag("short", 1, retained="200 ms")
    table.create_tag("long", 1, retained="1 d")
    replaced_by_another(table, "next")
    assert {"short", "long"} <= set(opened(table).tags())
    time.sleep(0.25)
    table.maintain()
    assert "short" not in opened(table).tags()
    assert "long" in opened(table).tags()


def test_automatic_tags_go_on_with_those_of_the_past_and_take_none_from_what_was_main():
    table = replaced(times=1)
    for snapshot in (1, 2):
        table.create_tag(f"batch-write-2020-01-0{snapshot}", snapshot)
    replaced_by_another(table, "next")
    opened(table).with_options({"tag.automatic-creation": "batch", "tag.num-retained-max": "2"}).append(
        rows(9, 1)
    )
    found = [name for name in opened(table).tags() if name.startswith("batch-write-")]
    assert (len(found), found[0]) == (2, "batch-write-2020-01-02")
    table.undo_replace()
    assert {"batch-write-2020-01-01", "batch-write-2020-01-02"} <= set(tags(table))


def test_main_gets_files_of_its_own_when_what_was_main_goes():
    table = replaced()
    table.delete_tag("old1")
    held = tags(table)
    assert sorted(dropped(table)) == ["main@1", "main@2"]
    assert tags(table) == held
    own = [name.rpartition("/tag/")[2] for name in files(table, "branch/branch-b2/tag")]
    assert [name for name in own if name.startswith("tag-") and "anabranch" not in name] == [
        "tag-begin1",
        "tag-begin2",
        "tag-old0",
    ]
    assert opened(table).branches() == ["b2"]
    assert opened(table).verify(deep=True).problems == ()
    opened(table).remove_orphan_files(older_than="0 s")
    assert tags(table) == held
    table.delete_tag("old0")
    assert "old0" not in tags(table)
    replaced_by_another(table, "next")
    assert tags(table) == {"begin1": [0], "begin2": [0, 1], "begin-next": [0, 1, 2]}


def test_a_tag_that_is_moved_again_and_again_keeps_no_former_main():
    table = make_table(f"memory://inherited{next(_names)}")
    table.append(rows(0, 1))
    table.create_tag("latest")
    for number in range(1, 5):
        table.create_branch(f"b{number}", f"begin{number}", snapshot=table.snapshot.id)
        table.branch(f"b{number}").append(rows(number, 1))
        table.replace_main_branch(f"b{number}")
        table = again(table)
        table.replace_tag("latest", table.snapshot.id)
    expire_to(table, 1)
    released = release_due(opened(table).context, 0)
    assert (released.kept, len(released.dropped)) == ((), 4)
    assert tags(table)["latest"] == [0, 1, 2, 3, 4]
    assert opened(table).branches() == ["b4"]


def test_another_former_main_that_is_put_back_has_all_of_its_own():
    """The table's own folder is let go while `b1`, which was taken back, still inherits from it."""
    table = replaced(times=1)
    held = tags(table)
    table.undo_replace()
    replaced_by_another(table, "b2")
    assert "main@3" in dropped(table)
    opened(table).remove_orphan_files(older_than="0 s")
    opened(table).replace_main_branch("b1", force=True)
    assert {name: ids for name, ids in tags(table).items() if name in held} == held
    assert opened(table).verify(deep=True).problems == ()


def test_by_force_a_branch_of_before_takes_those_of_what_both_have():
    table = replaced()
    table.create_tag("late", 1)
    table.create_tag("later", 3)
    table.create_branch("early", "old0")
    table.branch("early").append(rows(8, 1))
    opened(table).replace_main_branch("early", force=True)
    assert tags(table) == {"begin1": [0], "old0": [0], "late": [0]}
    opened(table).undo_replace()
    assert tags(table) == {**ALL, "late": [0], "later": [0, 1, 2]}


def test_a_main_of_an_earlier_release_has_copies_and_nothing_that_was_deleted_comes_back():
    table = replaced(times=1)
    storage = table.context.storage
    for path in ("branch/MAIN-1", "lineage/main-1"):
        said = json.loads(storage.get(path))
        said["version"] = 3
        for part in said["past"]:
            part.pop("tags", None)
        storage.put(path, json.dumps(said).encode())
    table = opened(table)
    assert table.tags() == ["begin1"]  # `old0` was copied by that release, and deleted since
    table.create_tag("mine", 2)
    replaced_by_another(table, "next")
    assert sorted(tags(table)) == ["begin-next", "begin1", "mine"]


def test_a_branch_that_is_deleted_leaves_nothing_of_what_it_inherited():
    table = replaced()
    table.undo_replace()
    opened(table).delete_branch("b2")
    assert [name for name in files(table) if "TAGS-2" in name or "tags-2" in name] == []
    assert tags(table) == {"begin1": [0], "begin2": [0, 1], "old0": [0], "old1": [0, 1]}


@pytest.mark.parametrize("lost", ["branch/TAGS-2", "lineage/tags-2"])
@pytest.mark.parametrize(
    "content", first_short([None, b'{"version": 1, "tags": [{"name": "x"}]}', b"", b"{}"], 2)
)
def test_a_damaged_file_of_them_is_told_and_put_back_from_its_copy(lost, content):
    table = replaced()
    storage = table.context.storage
    if content is None:
        storage.delete(lost)
    else:
        storage.put(lost, content)
    assert tags(table) == ALL
    if content is not None or lost.startswith("branch"):
        problems = opened(table).verify().problems
        assert [problem.path for problem in problems] == [lost]
    assert opened(table).repair().steps
    assert opened(table).verify().problems == ()
    assert tags(table) == ALL


@pytest.mark.parametrize("content", [b"{", None])
def test_rows_are_read_and_written_though_both_files_of_them_are_lost(content):
    table = replaced()
    for path in ("branch/TAGS-2", "lineage/tags-2"):
        if content is None:
            table.context.storage.delete(path)
        else:
            table.context.storage.put(path, content)
    assert ids_of(opened(table)) == [0, 1, 2]
    opened(table).append(rows(50, 1))
    assert ids_of(opened(table).at("begin2")) == [0, 1]  # of its own folder
    with pytest.raises(CorruptTableError, match="TAGS-2"):
        opened(table).at("old0")
    for removes in (lambda: expire_to(table, 1), lambda: opened(table).remove_orphan_files(older_than="0 s")):
        with pytest.raises(CorruptTableError, match="TAGS-2"):
            removes()
    assert len(opened(table).verify().problems) >= 2
    assert opened(table).repair().steps  # from what is left in the folders of what was main
    assert opened(table).verify().problems == ()
    assert tags(table) == ALL


def test_what_the_copy_alone_has_is_kept():
    table = replaced(times=1)
    table.branch("main@1").delete_tag("old0")
    expire_to(table, 1)
    table.context.storage.delete("branch/TAGS-1")
    opened(table).remove_orphan_files(older_than="0 s")
    assert tags(table) == {"begin1": [0], "old0": [0]}


@pytest.mark.parametrize(
    "name", ["", "a/b", "../../schema/schema-0", "a\0b", "x" * 5000, "anabranch-fork-x", "old1"]
)
def test_a_name_that_no_replacement_writes_is_a_damaged_file(name):
    table = replaced()
    storage = table.context.storage
    said = json.loads(storage.get("branch/TAGS-2"))
    said["tags"].append({**said["tags"][0], "name": name})
    for path in ("branch/TAGS-2", "lineage/tags-2"):
        storage.put(path, json.dumps(said).encode())
    with pytest.raises(CorruptTableError, match="TAGS-2"):
        opened(table).tags()


def test_a_file_of_a_number_that_never_was_is_put_aside():
    table = replaced()
    table.context.storage.put("branch/TAGS-77", b"junk")
    with pytest.raises(CorruptTableError, match="TAGS-77"):
        opened(table).remove_orphan_files(older_than="0 s")
    assert opened(table).repair().steps
    opened(table).remove_orphan_files(older_than="0 s")
    opened(table).maintain()
    assert tags(table) == ALL


def test_one_file_of_a_replacement_that_died_before_it_put_the_other_is_no_damage():
    table = replaced(times=1)
    storage = table.context.storage
    storage.put("branch/TAGS-2", storage.get("branch/TAGS-1"))
    assert opened(table).verify().problems == ()
    storage.put("branch/TAGS-2", b"{")  # no expiry goes on with it, whatever it was
    assert [problem.path for problem in opened(table).verify().problems] == ["branch/TAGS-2"]


def test_a_decision_that_names_another_number_takes_nothing_away():
    table = replaced(times=1)
    storage = table.context.storage
    before = storage.get("branch/MAIN-1")
    storage.put("branch/MAIN-1", before.replace(b'"tags": 1', b'"tags": 77'))
    with pytest.raises(CorruptTableError, match="TAGS-77"):
        opened(table).maintain()
    storage.put("branch/MAIN-1", before)
    assert tags(table) == {"begin1": [0], "old0": [0]}


def test_a_view_of_a_branch_from_before_it_was_main_knows_what_it_inherits():
    table = replaced(times=1)
    table.create_branch("fix", "begin-fix", snapshot=2)
    table.branch("fix").append(rows(9, 1))
    job = table.branch("fix")
    table.replace_main_branch("fix")
    for asks in (lambda: job.create_tag("old0"), lambda: job.rename_tag("begin-fix", "old0")):
        with pytest.raises(AlreadyExistsError, match="'old0' exists already"):
            asks()
    job.replace_tag("old0", "snapshot.3")
    assert tags(table)["old0"] == [0, 1, 9]
    job.delete_tag("old0")
    assert sorted(tags(table)) == ["begin-fix", "begin1"]


def test_a_former_main_that_was_put_back_knows_what_it_inherits():
    table = replaced(times=1)
    table.undo_replace()
    former = table.branch("main@2")
    table.create_tag("late", 1)
    opened(table).replace_main_branch("b1", force=True)
    former.delete_tag("old0")
    former.rename_tag("late", "later")
    assert sorted(tags(table)) == ["begin1", "later"]


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_no_tag_that_is_made_on_the_branch_meanwhile_takes_the_place_of_mains(every):
    def made(branch):
        branch.create_tag("old1")

    def renamed(branch):
        branch.rename_tag("begin-fix", "old1")

    for act in (made, renamed):
        for at in itertools.count(1, every):
            table = replaced(options={"branch.seal.timeout": "300 ms"})
            table.create_branch("fix", "begin-fix", snapshot=3)
            table.branch("fix").append(rows(9, 1))
            done = []

            def make(table=table, act=act, done=done):
                try:
                    act(opened(table).branch("fix"))
                    done.append(True)
                except AlreadyExistsError:
                    done.append(False)

            storage = Meanwhile(table.context.storage, at, make)
            try:
                through(opened(table), storage).replace_main_branch("fix")
            except CommitConflictError as error:
                assert "TAG_CLASH" in str(error)
            if not storage.is_over:
                break
            main = opened(table)
            assert ids_of(main.at("old1")) == [0, 1], (act, at)
            assert "begin-fix" in main.tags(), (act, at)


@pytest.mark.parametrize("moved", [False, True])
def test_what_another_engine_deletes_of_mains_own_does_not_come_back(moved):
    table = replaced()
    if moved:
        table.replace_tag("old0", 3)
    else:
        dropped(table)
    assert "old0" in tags(table)
    table.context.storage.delete("branch/branch-b2/tag/tag-old0")
    assert "old0" not in tags(table)


@pytest.mark.parametrize("every", [41, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
@pytest.mark.parametrize("late", first_short(["old0", ""]))
def test_a_drop_that_dies_at_any_call_loses_none_and_brings_none_back(every, late):
    begun = replaced(times=3)
    expire_to(begun, 1)
    held = tags(begun)

    def released(table):
        release_due(table.context, 0)
        table.maintain()  # which ends what has died

    for left in deaths(begun, released, every=every):
        assert tags(left) == held
        if late:
            opened(left).delete_tag(late)
        released(opened(left))
        assert tags(left) == {name: ids for name, ids in held.items() if name != late}
        assert opened(left).branches() == ["b3"]
        opened(left).remove_orphan_files(older_than="0 s")
        assert opened(left).verify(deep=True).problems == ()


CHANGES = {
    "deleted": lambda table: table.delete_tag("old0"),
    "renamed": lambda table: table.rename_tag("old0", "new"),
    "moved": lambda table: table.replace_tag("old0", 3),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("every", [47, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_a_former_main_goes_while_one_is_changed(how, every):
    """At each call of the change, and the change at each call of the release."""

    def going():
        table = replaced()
        expire_to(table, 1)
        return table

    wanted = {
        "deleted": {name: held for name, held in ALL.items() if name != "old0"},
        "renamed": {"new" if name == "old0" else name: held for name, held in ALL.items()},
        "moved": {**ALL, "old0": [0, 1, 2]},
    }[how]

    def release(table):
        release_due(opened(table).context, 0)

    for first, second in ((CHANGES[how], release), (release, CHANGES[how])):
        for at in itertools.count(1, every):
            table = going()
            storage = Meanwhile(table.context.storage, at, partial(second, opened(table)))
            first(through(opened(table), storage))
            if not storage.is_over:
                break
            release(table)
            assert tags(table) == wanted, (first, at)
            opened(table).maintain()
            assert opened(table).branches() == ["b2"]


class Meanwhile(FaultyStorage):
    """A store at which something else happens right before the call of that number."""

    def __init__(self, inner, at, act):
        super().__init__(inner, ())
        self.at, self.act, self.is_over = at, act, False

    def _begin(self, name, path):
        due = super()._begin(name, path)
        if len(self._record.calls) == self.at:
            self.is_over = True
            self.act()
        return due


def test_tags_of_the_branch_itself_are_not_looked_for_one_by_one():
    """Main is sealed meanwhile, and everybody waits: a branch with thousands of tags could never have become main."""
    asked = []
    for count in (2, 30):
        table = replaced(times=1)
        table.create_branch("fix", "begin-fix", snapshot=2)
        table.branch("fix").append(rows(9, 1))
        for number in range(count):
            table.branch("fix").create_tag(f"own{number}")
        storage = FaultyStorage(table.context.storage, ())
        through(opened(table), storage).replace_main_branch("fix")
        asked.append(len(storage.calls))
        assert len(opened(table).tags()) == count + 3
    assert asked[0] == asked[1]


def test_a_replacement_asks_for_no_more_than_the_first_however_many_there_were():
    table, cache, asked = make_table(f"memory://inherited{next(_names)}"), MetadataCache(), []
    table.append(rows(0, 1))
    for number in range(24):
        view = again(table)
        view.create_tag(f"t{number}")
        view.create_branch(f"b{number}", f"begin{number}", snapshot=view.snapshot.id)
        view.branch(f"b{number}").append(rows(1 + number, 1))
        storage = FaultyStorage(table.context.storage, ())
        anabranch.Table(replace(table.context, storage=storage, cache=cache)).replace_main_branch(
            f"b{number}"
        )
        asked.append(len(storage.calls))
    assert max(asked) <= 1.2 * asked[0], asked
    assert len(again(table).tags()) == 48
