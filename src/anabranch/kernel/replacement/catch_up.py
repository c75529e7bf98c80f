"""Waits until a branch has read from its sources what main has: first beside main, then the rest while it is sealed."""

from __future__ import annotations

from typing import Final

from anabranch.format.records.main_pointer import Seal
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.commit.base import Conflict
from anabranch.kernel.provenance.coverage import Covered, JobOnMain, by_job
from anabranch.kernel.replacement.check import refusal
from anabranch.kernel.replacement.request import Replacing

WAIT_BY_DEFAULT: Final = 3_600_000
"""Default wait in milliseconds."""

_LOOK_SECONDS: Final = 0.5
_SHARE_OF_TIMEOUT: Final = 0.8


def catch_up(replacing: Replacing, until: float) -> None:
    """Wait until the branch has read what main has, at most until that time of the monotonic clock.

    Raises `CommitConflictError`.
    """
    runtime = replacing.main.runtime
    while True:
        missing = only_on_main(replacing)
        if missing and not replacing.wishes.force:
            raise refusal([_never_comes(replacing, one) for one in missing])
        found = covered(replacing, replacing.main.snapshots.head())
        if found is None:
            if replacing.wishes.force:
                return
            raise refusal([_unknown_positions(replacing)])
        if not found.behind:
            return
        if runtime.clock.monotonic() >= until:
            raise refusal([_too_far_behind(replacing, found.behind)])
        runtime.sleeper.sleep(_LOOK_SECONDS)


def last_look(replacing: Replacing, seal: Seal) -> float:
    """Return the monotonic time until which to wait while main is sealed; the rest is left for the decision."""
    return replacing.main.runtime.clock.monotonic() + seal.timeout_millis * _SHARE_OF_TIMEOUT / 1000


def last_catch_up(replacing: Replacing, last: Snapshot, seal: Seal, until: float | None) -> Covered | None:
    """Return the branch's final coverage of main; if asked to catch up, wait for it while time is left."""
    clock = replacing.main.runtime.clock
    until = last_look(replacing, seal) if until is None else until
    found = covered(replacing, last)
    while replacing.wishes.wait_millis is not None and found is not None and found.behind:
        if clock.monotonic() >= until:
            break
        replacing.main.runtime.sleeper.sleep(_LOOK_SECONDS)
        found = covered(replacing, last)
    return found


def covered(replacing: Replacing, head: Snapshot | None) -> Covered | None:
    """Compare the branch's progress with that head of main; None if it is not known."""
    if replacing.wishes.coverage is None:
        return None
    target, fork = replacing.target, replacing.fork
    begun = target.snapshots.find(fork.id)
    return replacing.wishes.coverage(
        replacing.main_since.until(head),
        replacing.target_since.until(target.snapshots.head()),
        begun if begun is not None and begun.stamp == fork.stamp else None,
    )


def only_on_main(replacing: Replacing) -> tuple[JobOnMain, ...]:
    """Return the commits of main that the branch will not get, per job; empty if not known."""
    if replacing.wishes.gaps is None:
        return ()
    main, target = replacing.main, replacing.target
    return by_job(replacing.wishes.gaps(main, target), main.name, target.branch)


def _never_comes(replacing: Replacing, missing: JobOnMain) -> Conflict:
    main, target = replacing.main, replacing.target
    who = "" if missing.job is None else f" by job '{missing.job}'"
    what = f"{missing.snapshots} of main of '{main.name}'{who}"
    if missing.is_unknown:
        return Conflict(
            "POSITIONS_UNKNOWN",
            f"it is not known how far '{target.title}' is beside main: {what} does not say what it read, so waiting does not "
            "tell when the branch has it",
            f"{missing.bring}; then replace main without waiting, or with force.",
        )
    return Conflict(
        "ONLY_ON_MAIN",
        f"{what} will not come to '{target.title}' by itself: {'; '.join(missing.reasons)}",
        f"{missing.bring}; or drop what it wrote, with force.",
    )


def _unknown_positions(replacing: Replacing) -> Conflict:
    return Conflict(
        "POSITIONS_UNKNOWN",
        f"it is not known how far '{replacing.target.title}' is beside main: not all commits since the two parted say what "
        "they read",
        "look yourself, and then replace main without waiting, or with force.",
    )


def _too_far_behind(replacing: Replacing, behind: int) -> Conflict:
    return Conflict(
        "TOO_FAR_BEHIND",
        f"'{replacing.target.title}' is {behind} commits behind main and did not catch up in time",
        "see that its job runs, and wait longer.",
    )
