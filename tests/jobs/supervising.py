"""Time and stories of jobs that are supervised."""

from anabranch.jobs.status import Activity, Progress
from anabranch.jobs.supervise import Supervisor
from anabranch.jobs.task import Policy, Stop, Task
from anabranch.runtime import Runtime
from tests.support.chance import Chance


class Time(Chance):
    """Sleeping lets time pass, and things happen at moments of it."""

    def __init__(self):
        super().__init__(seed=7)
        self.now, self.planned, self.slept, self.longest = 0.0, [], [], 10_000

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        assert self.now < self.longest, "it goes on for ever"
        for moment, happens in list(self.planned):
            if moment <= self.now:
                self.planned.remove((moment, happens))
                happens()


class Fake:
    """A started job, told what becomes of it."""

    notices = ()
    begun = None
    at = Activity.IDLE
    ends_when_stopped = False

    def __init__(self, story):
        self.run, self.active, self.error, self.batch, self.stops = "run", True, None, None, []
        story.started.append(self)

    def is_active(self):
        return self.active

    def activity(self):
        return self.at

    def failure(self):
        return self.error

    def progress(self):
        return None if self.batch is None else Progress(self.batch, 10)

    def stop(self, *, is_urgent):
        self.stops.append(not is_urgent())
        self.active = False
        return self.ends_when_stopped

    def fail(self, error):
        self.active, self.error = False, error

    def end(self):
        self.active = False


class Story:
    """Jobs whose starts go as they are told."""

    def __init__(self, **policy):
        self.time, self.stop, self.started = Time(), Stop(), []
        self.statuses, self.events, self.tasks, self.seen = [], [], [], []
        self.has_engine, self.is_away, self.asked = True, False, {}
        self.is_wanted, self.are_awaited, self.is_taken = True, False, False
        self.policy = Policy(**policy)

    def job(self, name, *outcomes, **how):
        """The n-th start has the n-th outcome: a function of the fake, an error to raise, or it just runs."""
        left = list(outcomes)

        def start():
            outcome = left.pop(0) if left else None
            if isinstance(outcome, BaseException):
                raise outcome
            fake = Fake(self)
            if outcome is not None:
                outcome(fake)
            return fake

        self.tasks.append(Task(name, f"db.{name}", start, **how))
        return self

    def at(self, moment, happens):
        self.time.planned.append((moment, happens))
        return self

    def run(self):
        supervisor = Supervisor(
            self.tasks,
            policy=self.policy,
            stop=self.stop,
            on_status=self._note,
            has_engine=lambda: self.has_engine,
            is_away=lambda: self.is_away,
            others=_Others(self),
            on_event=lambda event: self.events.append((event.job, event.kind)),
            runtime=Runtime(clock=self.time, ids=self.time, sleeper=self.time),
        )
        self.ended = {status.job: status for status in supervisor.run()}
        return {job: status.state for job, status in self.ended.items()}

    def _note(self, found):
        self.statuses.append({s.job: s.state.value for s in found})
        self.seen.append((self.time.now, {s.job: s for s in found}))

    def told(self, job, **wanted):
        """The moments at which the status of a job said so."""
        return [
            now
            for now, found in self.seen
            if all(getattr(found[job], name) == value for name, value in wanted.items())
        ]

    def states(self, job):
        """What the job was, one after the other."""
        found = [statuses[job] for statuses in self.statuses]
        return [state for i, state in enumerate(found) if i == 0 or found[i - 1] != state]


class _Others:
    """Other processes, as the story tells of them."""

    def __init__(self, story):
        self.story = story

    def asks(self):
        found, self.story.asked = self.story.asked, {}
        return found

    def is_wanted(self, job):
        return self.story.is_wanted

    def are_awaited(self):
        return self.story.are_awaited

    def take_back(self, job):
        return not self.story.is_taken


def failing(error):
    return lambda fake: fake.fail(error)
