"""Mends that can be taken out, to show that the simulator would find the defect again.

Each is a function that replaces one function of the product by what it was, or by one that lacks the rule; with the scene
and the seeds that are known to show it. Seeds are other worlds as soon as the product makes one call more or less: where
only one in thousands shows it, the mend has a test of its own that has to fail without it.
"""

from dataclasses import dataclass
from typing import Any

MUTATIONS: dict[str, "Mutation"] = {}


@dataclass
class Mutation:
    """A mend taken out, and where that shows."""

    patch: Any
    scene: str | None
    first: int
    """The first seed that is tried."""
    seeds: int
    test: str | None
    """The test that shows it instead of a scene."""


def mutation(scene=None, first=0, seeds=300, test=None):
    def add(function):
        MUTATIONS[function.__name__] = Mutation(function, scene, first, seeds, test)
        return function

    return add


@mutation("clocks", 56)
def tags_are_as_old_as_their_creators_wall_clock_says():
    from anabranch.format.records import refs

    refs.Tag.is_expired = _is_expired_by_wall_clock


def _is_expired_by_wall_clock(self, now, stored=None):
    if self.create_time is None or self.time_retained is None:
        return False
    return now > self.create_time + self.time_retained


@mutation("clocks", 190)
def tags_are_as_old_as_their_creators_clock_says():
    from anabranch.format.records import refs

    refs.Tag.created = lambda self, stored: self.created_millis


@mutation("cleaning")
def orphans_are_as_old_as_the_machine_that_cleans_says():
    from anabranch.maintenance import orphans

    orphans.removal_time = lambda context: context.runtime.clock.now_millis()


@mutation("clocks", 3)
def commits_do_not_look_for_their_files():
    from anabranch.kernel.commit.attempt import Attempts

    Attempts.lost_files = lambda self: ([], 0)


@mutation(
    test="tests/kernel/test_presence.py::test_a_rollback_that_pauses_for_days_brings_no_removed_files_back"
)
def late_rollbacks_do_not_look_for_their_files():
    from anabranch.kernel.commit import attempt

    attempt.Attempts.lost_files = _lost_files_of_its_own


def _lost_files_of_its_own(self):
    from anabranch.kernel.commit import presence

    paths = presence.aged_files(self.context, *self._change, is_late=False)
    if presence.is_aged(self.context, self._began):
        paths += sorted(self._written)
    return (presence.lost_files(self.context, paths), len(paths)) if paths else ([], 0)


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
    from anabranch.kernel.log.late_writes import LateWrites

    LateWrites.follows = lambda self, older, newer: True


@mutation("main", 230)
def late_writers_remove_by_name():
    from anabranch.kernel.commit import in_history

    in_history._replace = in_history.delete_snapshot = lambda context, snapshot: context.storage.delete(
        context.layout.snapshot_path(snapshot.id)
    )


@mutation("references")
def overwrites_do_not_look_what_changed():
    from anabranch.kernel.actions import overwrite

    overwrite.changed_conflict = lambda base, since, replaced: None


@mutation("references")
def expiry_does_not_ask_consumers():
    from anabranch.kernel.expiry import snapshot_removal

    snapshot_removal.next_read = lambda context, without=(): None


@mutation("recreated")
def old_handles_work_on_the_new_table():
    from anabranch.kernel.log.context import TableContext

    TableContext.check_same_table = lambda self: None


@mutation("merges")
def merges_do_not_follow_a_replacement():
    from anabranch.kernel.merge.merge import _Merging

    _Merging._before = lambda self, record: record.main


@mutation("disks", seeds=20)
def full_disks_get_no_room():
    from anabranch.kernel.expiry import expire

    expire._make_room = lambda context: False


@mutation("damaged")
def deleted_snapshots_are_not_noticed():
    from anabranch.kernel.log.snapshot_log import SnapshotLog

    SnapshotLog._look_for_deleted = lambda self, found, strict: None


@mutation("damaged")
def orphans_are_cleaned_though_snapshots_are_missing():
    from anabranch.maintenance import orphans

    orphans.check_no_snapshot_missing = lambda context: None


@mutation("damaged")
def snapshots_have_no_checksum():
    from anabranch.format.records import snapshot

    snapshot._OURS = "nobody."


@mutation("damaged")
def changed_bits_are_not_put_back():
    from anabranch.maintenance import repair

    repair.plan_bits = lambda context, problems: iter(())


@mutation("damaged")
def a_lost_main_is_not_brought_back():
    from anabranch.maintenance import repair

    repair.plan_main = lambda context: None


@mutation("damaged")
def what_another_engine_put_in_the_place_of_main_is_not_taken_over():
    from anabranch.kernel.repair import repair

    repair.take_over = lambda context: None


@mutation(test="tests/branches/test_seal.py::test_a_branch_that_was_deleted_does_not_become_main")
def replacements_do_not_look_whether_the_branch_is_there():
    from anabranch.kernel.replacement import sealing

    sealing.check_still_the_same = lambda branch: None


@mutation(test="tests/kernel/test_in_history.py::test_a_put_below_another_engines_snapshot_is_taken_back")
def what_lies_below_another_engines_snapshot_is_history():
    from anabranch.kernel.commit import in_history
    from anabranch.kernel.log import ledger

    in_history.has_taken_over = lambda manifests, newer, older: None
    ledger.is_built_on = lambda manifests, newer, older: True


@mutation(test="tests/kernel/test_leftovers_far.py")
def a_store_that_does_not_answer_is_taken_for_damage():
    from anabranch.errors import AnabranchError
    from anabranch.kernel.log import late_writes, removals

    late_writes.UNKNOWABLE = removals.UNKNOWABLE = (AnabranchError,)


@mutation(
    test="tests/kernel/test_history_removal.py::test_numbers_that_were_used_again_and_deleted_by_hand_are_missed"
)
def a_rollback_says_why_a_number_is_gone_that_was_used_again():
    from anabranch.kernel.log import snapshot_log

    snapshot_log.was_removed = _was_a_number_removed


def _was_a_number_removed(storage, layout, snapshot_id, newest):
    from anabranch.kernel.log import removals

    return any(
        one.get("id") == snapshot_id
        for record in removals._records(storage)
        if record.get("branch", layout.branch_root) == layout.branch_root
        for one in removals._list(record, "removed")
    )


@mutation(test="tests/kernel/test_rollback_beside_expiry.py")
def rollbacks_and_expiries_do_not_look_for_each_other():
    from anabranch.kernel.expiry import snapshot_removal
    from anabranch.kernel.rollback import history_removal

    history_removal.is_expiring = lambda *_: False
    history_removal.is_removal_pinned = lambda *_: True
    snapshot_removal.next_rewound = lambda *_: None
    snapshot_removal.mark_removal = snapshot_removal.unmark_removal = lambda *_: ""


@mutation(
    test="tests/kernel/test_presence.py::test_a_rollback_that_slept_between_its_hold_and_its_commit_is_not_acknowledged"
)
def a_pin_is_looked_for_only_if_its_commit_is_late():
    from anabranch.format.records.layout import tag_name_of
    from anabranch.kernel.commit import attempt, presence

    late = {"is": False}

    def is_aged(context, written):
        late["is"] = presence.is_aged(context, written)
        return late["is"]

    def lost_files(context, paths):
        return presence.lost_files(
            context, [path for path in paths if late["is"] or tag_name_of(path) is None]
        )

    attempt.is_aged, attempt.lost_files = is_aged, lost_files


@mutation(test="tests/branches/test_merge_strangers.py")
def records_of_a_former_branch_of_the_name_count():
    from anabranch.kernel.log import merge_log, merge_record

    merge_log.is_left_behind = merge_record.is_left_behind = lambda *_: False
