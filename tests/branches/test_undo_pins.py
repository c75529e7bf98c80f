"""Branches that were begun on a main whose replacement is taken back: main holds on to nothing that is not its own."""

from anabranch.kernel.log import store_clock
from anabranch.kernel.log.fork_pins import fork_pin
from tests.branches.replacing import BEFORE, again, parted
from tests.support.tables import ids_of, rows


def _undone():
    table = parted()
    table.replace_main_branch("fix")
    table.append(rows(200, 1))
    table.create_tag("late")
    table.create_branch("more", "late")
    table.branch("more").append(rows(300, 1))
    table.undo_replace()
    return again(table)


def test_nothing_is_missing_and_maintenance_makes_nothing_wrong():
    table = _undone()
    assert table.verify(deep=True).ok
    table.maintain()
    pin = fork_pin(table.branch("more").branch_uuid)
    assert not table.context.storage.exists(table.context.layout.tag_path(pin))
    assert again(table).verify(deep=True).ok
    table.alter().add_column("w", "INT").apply()
    table.append(rows(400, 1))
    again(table).maintain()
    assert again(table).verify(deep=True).ok
    assert ids_of(table.branch("more")) == [*BEFORE, 100, 200, 300]


def test_where_it_is_main_again_it_is_held_again():
    table = _undone()
    table.replace_main_branch("fix")
    table = again(table)
    pin = table.context.layout.tag_path(fork_pin(table.branch("more").branch_uuid))
    table.context.storage.delete(pin)
    assert [p.kind.value for p in table.verify().problems] == ["pin"]
    table.maintain()
    assert table.context.storage.exists(pin)


def test_a_pin_that_was_put_there_wrongly_goes_in_the_end(monkeypatch):
    table = _undone()
    more, main = table.branch("more"), table.context
    path = main.layout.tag_path(fork_pin(more.branch_uuid))
    main.storage.put(path, main.storage.get(more.context.layout.tag_path(fork_pin(more.branch_uuid))))
    table.maintain()
    assert main.storage.exists(path), "it may be the one of a branch that is being made"
    monkeypatch.setattr(store_clock, "DAY_MILLIS", -(10**15))
    again(table).maintain()
    assert not main.storage.exists(path)
    assert again(table).verify(deep=True).ok
