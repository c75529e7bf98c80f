"""Which commits are told by one event.

Without a throttle it is each its own. With one, the commits of a job whose times lie in the same interval are told together,
by an event that sums them up. Intervals begin at multiples of their length since the epoch, so that the same commits give the
same events however often and in how many parts they are sent. What may not wait is told at once, and alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.lineage.commit import Commit


@dataclass(frozen=True, slots=True)
class Told:
    """Commits of one job that an event tells, in the order in which they were found; at least one."""

    commits: tuple[Commit, ...]

    @property
    def last(self) -> Commit:
        return self.commits[-1]


@dataclass
class Windows:
    """Commits that wait for their interval to end, by job."""

    interval_millis: int
    """0 to tell each commit by itself."""
    _waiting: dict[str, list[Commit]] = field(default_factory=dict)

    def add(self, commit: Commit, *, urgent: bool = False) -> list[Told]:
        """What is to be told now that this commit was found; often nothing. An urgent one is told at once."""
        assert commit.entry is not None, "a commit without an entry has no job"
        job = commit.entry.job
        if urgent or not self.interval_millis:
            return [*self._taken(job), Told((commit,))]
        waiting = self._waiting.get(job)
        done = [] if not waiting or self._window(waiting[0]) == self._window(commit) else self._taken(job)
        self._waiting.setdefault(job, []).append(commit)
        return done

    def due(self, now_millis: int) -> list[Told]:
        """What waits in intervals that are over."""
        over = now_millis // self.interval_millis if self.interval_millis else 0
        jobs = [job for job, waiting in self._waiting.items() if self._window(waiting[0]) < over]
        return [told for job in jobs for told in self._taken(job)]

    def rest(self) -> list[Told]:
        """All that waits."""
        return [told for job in list(self._waiting) for told in self._taken(job)]

    def _window(self, commit: Commit) -> int:
        return commit.time_millis // self.interval_millis

    def _taken(self, job: str) -> list[Told]:
        waiting = self._waiting.pop(job, None)
        return [Told(tuple(waiting))] if waiting else []
