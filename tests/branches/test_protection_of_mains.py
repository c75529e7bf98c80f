"""What the mains of a table share is kept, though another engine expires the folder of one of them."""

import random
from contextlib import suppress
from types import SimpleNamespace

import pytest

import anabranch
from anabranch.errors import SealedBranchError
from anabranch.kernel.log.fork_pins import fork_pin
from anabranch.kernel.replacement.release import release_due
from tests.branches.creating import again, later
from tests.support.foreign_expiry import expire_as_others
from tests.support.lengths import first_short
from tests.support.tables import ids_of, make_table, rows

_DAY = 25 * 3_600_000
KEPT = {"compaction.min.file-num": "2", "branch.replaced-main.time-retained": "30 d"}


def folder_of(table, branch):
    """A branch as other engines see it: the snapshots in its own folder."""
    seen = anabranch.Table(table.context.on_branch(branch))
    numbers = seen.context.snapshots.own_ids()
    found = [seen.context.snapshots.find(number) for number in numbers]
    return SimpleNamespace(context=seen.context, schema=seen.schema, snapshots=lambda: found)


def replaced(url):
    """A table whose main is `fix`; the old main and its past are kept."""
    table = make_table(url, options={**KEPT, "write-only": "true"})
    for number in range(4):
        table.append(rows(number, 1))
    table.create_tag("good")
    table.create_branch("fix", "good")
    fix = table.branch("fix")
    fix.overwrite(rows(10, 1))
    fix.append(rows(11, 1))
    table.replace_main_branch("fix")
    return again(table)


def test_another_engine_expires_the_branch_that_is_main_days_later():
    table = replaced("memory://mains-days")
    table.delete_tag("good")
    later(table, _DAY).maintain()
    expire_as_others(folder_of(table, "fix"), keep=1)
    assert ids_of(again(table)) == [10, 11]
    assert ids_of(again(table).branch("main@1")) == [0, 1, 2, 3]
    assert ids_of(again(table).branch("main@1").at(3)) == [0, 1, 2]
    table.undo_replace()
    assert ids_of(again(table)) == [0, 1, 2, 3]


def test_the_pin_of_main_is_put_back_and_goes_with_what_it_is_for():
    table = replaced("memory://mains-pin")
    main = again(table).context
    path = main.layout.tag_path(fork_pin(main.branch_uuid))
    main.storage.delete(path)
    assert later(table, _DAY).maintain().branches.pins.restored == ("fix",)
    assert main.storage.exists(path)
    later(table, _DAY).maintain()
    assert main.storage.exists(path)
    table = again(table)
    for number in range(3):
        table.append(rows(20 + number, 1))
    table.expire_snapshots(retain_max=2, retain_min=1, older_than="0 s")
    later(table, _DAY).maintain()
    assert main.storage.exists(path), "the old main is kept"
    assert release_due(again(table).context, 0).dropped == ("main@1",)
    later(table, 2 * _DAY).maintain()
    assert not main.storage.exists(path)
    assert ids_of(again(table)) == [10, 11, 20, 21, 22]


def live(seed, steps):
    """Random commits, branches and replacements; another engine expires the folder of any branch."""
    rng, rows_of = random.Random(seed), {}
    table = make_table(f"memory://mains{seed}", options=rng.choice(({"compaction.min.file-num": "2"}, KEPT)))
    table.append(rows(0, 1))

    def shown(view):
        return {snapshot.stamp: snapshot for snapshot in view.snapshots()}

    def version(view, number):
        return number if view.context.main_generation is None else f"main.snapshot.{number}"

    for step in range(1, steps):
        table = again(table)
        views = [table, *map(table.branch, table.branches())]
        view = rng.choice(views)
        act = rng.choice("aaaaoocbbrrxxm")
        with suppress(SealedBranchError):  # a former main is one of the branches
            match act:
                case "a":
                    expected = [*ids_of(view), step]
                    view.append(rows(step, 1))
                    assert ids_of(view) == expected
                case "o":
                    view.overwrite(rows(step, 1))
                    assert ids_of(view) == [step]
                case "c":
                    expected = ids_of(view)
                    view.compact(full=True)
                    assert ids_of(view) == expected
                case "b" if len(views) < 5:
                    table.create_branch(
                        f"n{step}", snapshot=version(table, rng.choice([*table.snapshots()]).id)
                    )
                case "r" if table.branches():
                    table.replace_main_branch(rng.choice(table.branches()), force=True)
                case "x":
                    folder = rng.choice([None, *table.branches(), again(table).context.branch])
                    expire_as_others(folder_of(table, folder), keep=rng.randrange(1, 3))
                case "m":
                    later(table, rng.choice((0, _DAY))).maintain()
        table = again(table)
        for name in (None, *table.branches()):
            seen = table if name is None else table.branch(name)
            for stamp, snapshot in shown(seen).items():
                found = ids_of(seen.at(version(seen, snapshot.id)))
                assert rows_of.setdefault(stamp, found) == found, (step, name, snapshot.id)
        assert [p for p in table.verify().problems if p.severity == "error"] == [], step


@pytest.mark.parametrize("seed", first_short(range(4)))
def test_what_mains_share_is_kept(seed):
    live(seed, steps=30)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_what_mains_share_is_kept_for_long(seed):
    live(seed, steps=60)
