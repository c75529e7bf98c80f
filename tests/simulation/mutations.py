"""Mends that can be taken out, to show that the simulator would find the defect again.

Each is a function that replaces one function of the product by what it was, or by one that lacks the rule; with the scene
and the seeds that are known to show it.
"""

from dataclasses import dataclass
from typing import Any

MUTATIONS: dict[str, "Mutation"] = {}


@dataclass
class Mutation:
    """A mend taken out, and where that shows."""

    patch: Any
    scene: str
    first: int
    """The first seed that is tried."""
    seeds: int = 300


def mutation(scene, first=0, seeds=300):
    def add(function):
        MUTATIONS[function.__name__] = Mutation(function, scene, first, seeds)
        return function

    return add


@mutation("clocks", 56)
def tags_are_as_old_as_their_creators_wall_clock_says():
    from anabranch.spec import refs

    refs.Tag.is_expired = _is_expired_by_wall_clock


def _is_expired_by_wall_clock(self, now, stored=None):
    if self.create_time is None or self.time_retained is None:
        return False
    return now > self.create_time + self.time_retained


@mutation("clocks")
def tags_are_as_old_as_their_creators_clock_says():
    from anabranch.spec import refs

    refs.Tag.created = lambda self, stored: self.created_millis


@mutation("clocks", 28)
def orphans_are_as_old_as_the_machine_that_cleans_says():
    from anabranch.maintenance import orphans

    orphans.removal_time = lambda context: context.runtime.clock.now_millis()


@mutation("clocks", 3)
def commits_do_not_look_for_their_files():
    from anabranch.kernel.commit.attempt import Attempts

    Attempts.lost_files = lambda self: ([], 0)


@mutation("clocks", 43)
def late_rollbacks_do_not_look_for_their_files():
    from anabranch.kernel.commit import attempt

    aged_files = attempt.aged_files
    attempt.aged_files = lambda *args, is_late: aged_files(*args, is_late=False)


@mutation("branches", 26)
def writers_do_not_look_for_the_seal():
    from anabranch.kernel.commit import transaction

    transaction.check_open = lambda context, head: None


@mutation("clocks")
def snapshots_are_as_old_as_their_writers_clock_says():
    from anabranch.kernel.expiry.retention import FOREVER, Retention

    due = Retention.due
    Retention.due = lambda self, history, unread=None, stored=None: due(
        self, history, unread, [FOREVER] * len(history)
    )


@mutation("others", seeds=60)
def what_follows_in_number_is_history():
    from anabranch.kernel import snapshot_log

    snapshot_log.SnapshotLog.follows = lambda self, older, newer: True


@mutation("main")
def late_writers_remove_by_name():
    from anabranch.kernel.commit import foothold

    foothold.delete_snapshot = lambda context, snapshot: context.storage.delete(
        context.layout.snapshot_path(snapshot.id)
    )
