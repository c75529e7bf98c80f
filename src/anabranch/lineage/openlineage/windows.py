"""Groups commits by the event that reports them.

Without a throttle each commit has its own. With one, the commits of a job within one interval are reported together
by a summary event. Intervals begin at multiples of their length since the epoch, so that the same commits give the
same events however often and in how many parts they are sent. Urgent commits are reported at once, and alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.lineage.commit import Commit


@dataclass(frozen=True, slots=True)
class Told:
    """Commits of one job that an event reports, in the order in which they were found; at least one."""

    commits: tuple[Commit, ...]

    @property
    def last(self) -> Commit:
        return self.commits[-1]


@dataclass
class Windows:
    """Commits waiting for their interval to end, by job."""

    interval_millis: int
    """0 to report each commit by itself."""
    _waiting: dict[str, list[Commit]] = field(default_factory=dict)

    def add(self, commit: Commit, *, urgent: bool = False) -> list[Told]:
        """Add a commit and return what is to be reported now; often nothing. An urgent commit is reported at once."""
        assert commit.entry is not None, "a commit without an entry has no job"
        job = commit.entry.job
        if urgent or not self.interval_millis:
            return [*self._taken(job), Told((commit,))]
        waiting = self._waiting.get(job)
        done = [] if not waiting or self._window(waiting[0]) == self._window(commit) else self._taken(job)
        self._waiting.setdefault(job, []).append(commit)
        return done

    def due(self, now_millis: int) -> list[Told]:
        """Return the commits waiting in intervals that are over."""
        over = now_millis // self.interval_millis if self.interval_millis else 0
        jobs = [job for job, waiting in self._waiting.items() if self._window(waiting[0]) < over]
        return [told for job in jobs for told in self._taken(job)]

    def rest(self) -> list[Told]:
        """Return everything that is still waiting."""
        return [told for job in list(self._waiting) for told in self._taken(job)]

    def _window(self, commit: Commit) -> int:
        return commit.time_millis // self.interval_millis

    def _taken(self, job: str) -> list[Told]:
        waiting = self._waiting.pop(job, None)
        return [Told(tuple(waiting))] if waiting else []
