"""What a large lake is drawn of first: samples of histories, and lineage as far as it is known."""

import threading

import pytest

import anabranch
from anabranch.table.lake_lineage import LakeLineage
from anabranch.ui.answers import ANSWERS
from anabranch.ui.asked import Asked
from anabranch.ui.history import sampled
from anabranch.ui.site import Site
from tests.support.tables import make_table, rows
from tests.ui.client import caught_up


@pytest.mark.long
def test_trends_are_drawn_of_snapshots_all_over_the_history(tmp_path):
    table = make_table(tmp_path / "w")
    site = Site(anabranch.connect(str(tmp_path / "w")), warehouse="w")

    def points(what, **given):
        return [point[1:] for point in ANSWERS[what](site, Asked([("table", "db.t"), *given.items()]))]

    assert points("trend") == points("sizes") == []
    for number in range(30):
        table.append(rows(number, 1))
    table.create_tag("early", "snapshot.7")
    table.create_branch("fix", tag="early")
    table.branch("fix").append(rows(100, 5))
    assert points("trend") == [(number, number) for number in range(1, 31)]
    assert points("trend", branch="fix")[-1] == (8, 12)
    for most in (2, 3, 7, 29, 30, 100):
        ids = [line.id for line in sampled(table, most)]
        assert (ids[0], ids[-1], len(ids), ids) == (1, 30, min(most, 30), sorted(set(ids)))
    sizes = points("sizes", points="4")
    assert [number for number, _ in sizes] == [line.id for line in sampled(table, 4)]
    assert sizes[-1][1] == table.scan().plan().report.bytes
    table.expire_snapshots(retain_max=10, retain_min=10)
    assert points("trend") == [(number, number) for number in range(21, 31)]
    (tmp_path / "w/db.db/t/snapshot/EARLIEST").unlink(missing_ok=True)
    assert points("trend") == [(number, number) for number in range(21, 31)]


def test_pictures_of_the_lake_do_not_wait_for_a_long_look_at_all_of_it(tmp_path, monkeypatch):
    """They are drawn of what the index has, say so, and have the rest when they are asked for again; questions wait."""
    table = make_table(tmp_path / "w")
    lake = anabranch.connect(str(tmp_path / "w"))
    site, looks, go_on = Site(lake, warehouse="w"), [], threading.Event()
    look = LakeLineage.catch_up

    def slow(lineage):
        looks.append(threading.get_ident())
        assert go_on.wait(60)
        return look(lineage)

    monkeypatch.setattr(LakeLineage, "catch_up", slow)
    with lake.job("fill") as job:
        job.read_from("inbox", kind="files")
        table.append(rows(0, 1))
    for what in ("lineage", "jobs", "lineage"):
        found = ANSWERS[what](site, Asked(()))
        assert (found["behind"], found.get("flows", found.get("jobs"))) == (True, []), what
    assert len(looks) == 1, "the look that goes on is nobody's twice"
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(ANSWERS["producer"](site, Asked([("table", "db.t")])))
    )
    asking.start()
    asking.join(0.5)
    assert answers == []
    go_on.set()
    asking.join(60)
    assert answers[0]["entry"]["job"] == "fill"
    found = caught_up(lambda what: ANSWERS[what](site, Asked(())), "jobs")
    assert [job["name"] for job in found["jobs"]] == ["fill"]
    assert looks[0] != threading.get_ident()


def test_a_look_at_the_lake_that_failed_is_told_and_done_again(tmp_path, monkeypatch):
    make_table(tmp_path / "w")
    site, look, failing = (
        Site(anabranch.connect(str(tmp_path / "w")), warehouse="w"),
        LakeLineage.catch_up,
        [1],
    )

    def broken(lineage):
        if failing:
            failing.pop()
            raise anabranch.StorageError("the store does not answer")
        return look(lineage)

    monkeypatch.setattr(LakeLineage, "catch_up", broken)
    with pytest.raises(anabranch.StorageError, match="does not answer"):
        caught_up(lambda what: ANSWERS[what](site, Asked(())), "lineage")
    assert caught_up(lambda what: ANSWERS[what](site, Asked(())), "lineage")["flows"] == []
