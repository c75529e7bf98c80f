"""Verify and repair where main was replaced: what was dropped on purpose, pointers and branches that somebody lost."""

import os
import shutil

import pytest

import anabranch
from anabranch.kernel.cache import SHARED
from anabranch.kernel.repair.problem import Kind
from tests.support.tables import ids_of

SCHEMA = "id BIGINT, p STRING"


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "db.db" / "t")


@pytest.fixture
def made(tmp_path):
    """Makes a table of which the branch `fix` became main."""

    def make(*, retained="1 d", savepoint=False, other=False, more=(31, 32)):
        table = anabranch.connect(str(tmp_path)).create_table(
            "db.t",
            SCHEMA,
            options={
                "branch.replaced-main.time-retained": retained,
                "branch.seal.timeout": "1 s",
                "snapshot.expire.automatic": "false",
            },
        )
        for number in range(3):
            table.append(_rows(number))
        if savepoint:
            table.create_savepoint()
        table.create_tag("good")
        table.create_branch("fix", tag="good")
        if other:
            table.create_branch("other", tag="good")
        table.branch("fix").append(_rows(30))
        table.replace_main_branch("fix")
        for number in more:
            _fresh(table).append(_rows(number))
        return _fresh(table)

    return make


def _rows(number):
    return [{"id": number, "p": "a"}]


def _fresh(table):
    """As another process opens it, which knows nothing from before."""
    SHARED.__init__()
    return anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")


def _kinds(table):
    return {str(p.kind) for p in _fresh(table).verify(deep=True).problems}


@pytest.mark.parametrize("how", ["", "savepoint", "other"])
def test_a_main_that_was_dropped_on_purpose_is_no_damage(made, root, how):
    table = made(retained="0 ms", savepoint=how == "savepoint", other=how == "other")
    assert _kinds(table) == set()
    assert _fresh(table).maintain() is not None
    assert _kinds(table) == set()
    done = _fresh(table).repair()
    assert (done.steps, done.left) == ((), ())
    assert os.listdir(f"{root}/snapshot") == ["snapshot-4"], "only what stops a paused writer"
    assert not os.path.exists(f"{root}/tag") or os.listdir(f"{root}/tag") == []
    assert "dropped" not in str(_fresh(table).maintain()), "there is nothing left of it"
    assert ids_of(_fresh(table)) == [0, 1, 2, 30, 31, 32]


def test_the_pin_of_a_savepoint_that_a_dropped_main_made_is_put_on_main(made, root):
    table = made(retained="0 ms", savepoint=True)
    table.maintain()
    os.unlink(f"{root}/branch/branch-fix/tag/tag-anabranch-savepoint-1")
    assert _kinds(table) == {"pin"}
    done = _fresh(table).repair()
    assert done.left == ()
    assert [(step.kind, step.path) for step in done.steps] == [
        (Kind.PIN, "branch/branch-fix/tag/tag-anabranch-savepoint-1")
    ]
    assert ids_of(_fresh(table).at("savepoint.1")) == [0, 1, 2]
    assert _kinds(table) == set()


def test_the_drop_of_a_main_that_died_is_no_damage(made, root):
    table = made(savepoint=True)
    shutil.copytree(f"{root}/snapshot", f"{root}/kept")
    table.with_options({"branch.replaced-main.time-retained": "0 ms"}).maintain()
    shutil.copy(f"{root}/kept/snapshot-3", f"{root}/snapshot/snapshot-3")
    shutil.rmtree(f"{root}/kept")
    assert _kinds(table) == set()
    assert _fresh(table).repair().steps == ()
    assert "dropped main@1" in str(_fresh(table).maintain())
    assert os.listdir(f"{root}/snapshot") == ["snapshot-4"]
