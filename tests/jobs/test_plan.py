"""Several jobs as a pipeline."""

import itertools

import pytest

import anabranch
from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.jobs.load import chosen, feeds, in_order


def job(name, sources, sink):
    """A job that reads these tables; those with a star as they are."""
    given = {f"s{i}": anabranch.static(s[1:]) if s[0] == "*" else s for i, s in enumerate(sources)}
    return anabranch.job(name, sources=given, sink=sink)(lambda **frames: None)


PIPELINE = [
    job("daily", ["db.orders", "*db.planes"], "db.daily"),
    job("clean", ["db.raw"], "db.orders"),
    job("planes", ["db.raw_planes"], "db.planes"),
    job("alone", ["db.x"], "db.y"),
]


def test_jobs_start_after_those_that_feed_them():
    assert [j.name for j in in_order(PIPELINE)] == ["clean", "planes", "daily", "alone"]
    assert feeds(PIPELINE)["daily"] == {"clean", "planes"}
    for order in itertools.permutations(PIPELINE):
        names = [j.name for j in in_order(order)]
        assert names.index("daily") > max(names.index("clean"), names.index("planes"))


def test_branches_of_sources_do_not_matter():
    reader = job("reader", ["db.orders$branch_fix"], "db.z")
    assert feeds([reader, PIPELINE[1]])["reader"] == {"clean"}


def test_circles_are_refused():
    circle = [job("a", ["db.c"], "db.a"), job("b", ["db.a"], "db.b"), job("c", ["db.b"], "db.c")]
    with pytest.raises(InvalidInputError, match="feed each other in a circle: .*a -> b"):
        in_order(circle)
    with pytest.raises(InvalidInputError, match="job 'a' .* reads its own sink"):
        in_order([job("a", ["db.a"], "db.a")])


def test_jobs_are_chosen_by_name():
    assert [j.name for j in chosen(PIPELINE, ["clean", "daily"])] == ["daily", "clean"]
    assert chosen(PIPELINE, []) == PIPELINE
    with pytest.raises(NotFoundError, match="did you mean 'clean'"):
        chosen(PIPELINE, ["claen"])
    with pytest.raises(NotFoundError, match="declared are: daily, clean, planes, alone"):
        chosen(PIPELINE, ["q"])
