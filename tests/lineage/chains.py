"""Three tables, one made of the other, as several tests ask about them."""

from anabranch.lineage.commit import CommitRef
from anabranch.lineage.questions.asked import commits
from tests.support.tables import SCHEMA, rows


def make_chain(lake):
    """``raw`` has 4 snapshots; ``clean`` takes them one by one, and ``daily`` twice all there was in ``clean``."""
    raw, clean, daily = (lake.create_table(f"db.{name}", SCHEMA) for name in ("raw", "clean", "daily"))
    for number in range(1, 5):
        with lake.job("collect") as job:
            job.read_from("orders", kind="kafka", start=at(number - 1), end=at(number))
            raw.append(rows(number, 1))
        with lake.job("clean", code=f"v{number}"):
            clean.append(raw.changes(number - 1, number).to_arrow())
        if number % 2 == 0:
            with lake.job("daily"):
                daily.replace(clean.scan().to_arrow())
    return raw, clean, daily


def at(number):
    return {"orders": {"0": 10 * number}}


def numbered(store, branch, text):
    """The commits of a branch that a number or a range of numbers names."""
    return commits(store, branch, text, lambda number: CommitRef(branch, int(number)))


def found(trace):
    return {dataset.name: dataset.snapshots for dataset in trace.datasets}
