"""A service of five jobs under which things break: what is told, in what time, and whether it goes on by itself."""

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anabranch
from anabranch.jobs.records import jobs_of_warehouse
from tests.soak import job_file, tables
from tests.soak.clock import SetClock
from tests.soak.service import Service, sample, until

JOBS = ("kept", "marked", "once", "counted", "named")
ALL = len(JOBS)
LIMIT = 15.0
"""Seconds in which a failure is told, on a machine that has its cores for itself."""
MEGABYTE = 1024 * 1024


def load():
    """How many times as long as alone things may take now: others work on the machine as well."""
    return max(1.0, 1.5 * os.getloadavg()[0] / (os.cpu_count() or 1))


@dataclass
class Told:
    """What became of a trouble."""

    trouble: str
    seconds: float
    """Until it was told."""
    text: str
    recovered: float | None = None
    """Seconds from the end of the trouble until every job did a batch again."""


class Soak:
    """The warehouse, the rows, the service, and what was seen of them."""

    def __init__(self, folder, *, rate, every, options=()):
        self.folder, self.disk = folder, folder / "disk"
        self.disk.mkdir()
        self.is_mounted = mounted(self.disk, 600)
        self.place = self.disk / "warehouse"
        self.warehouse = str(self.place)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.hang, self.every, self.options = folder / "hang", every, options
        self.clock = SetClock(folder / "clock")
        tables.create(self.warehouse)
        self.feeder = tables.Feeder(self.warehouse, rate)
        self.told, self.samples, self.counts = [], [], []
        self.watching = threading.Event()
        self.service = None
        self.deploy(1)

    def words(self, *more):
        jobs = str(self.folder / "soak_jobs.py")
        words = ["-w", self.warehouse, "run", jobs, "--master", "local[2]", "--json", "--stuck-after", "8"]
        words += ["--max-restarts", "2", "--conf", "spark.sql.shuffle.partitions=2", *self.options]
        return [*words, "--conf", f"spark.sql.warehouse.dir={self.folder / 'spark'}", *more]

    def environment(self):
        path = os.pathsep.join([str(self.clock.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": path}

    def deploy(self, code):
        """Start the service, with new code and in the place of another one where one runs."""
        before = self.service
        if before is not None:
            before.is_ending = True
        job_file.write(self.folder, code=code, every=self.every, hang=self.hang)
        more = () if before is None else ("--take-over",)
        self.service = Service(self.words(*more), self.environment(), str(self.folder))
        if before is not None:
            self.service.said = before.said
            self.service.exits = before.exits
        self.service.start()

    def batches(self):
        """The last batch of each job that was told: when it was said first."""
        found, told = {}, {}
        for one in list(self.service.said):
            job, batch = one.values.get("job"), one.values.get("batch_millis")
            if batch is not None and told.get(job) != batch:
                told[job], found[job] = batch, one.at
        return found

    def until_all_go_on(self, since, seconds=240, *, jobs=ALL):
        """Wait until so many jobs have done a batch after `since`; return how long that was."""

        def go_on():
            return sum(self.batches().get(job, 0) > since for job in JOBS) >= jobs

        done = until(go_on, seconds * load(), pause=0.3)
        assert done, f"not all go on: {self.batches()}, since {since}; said was: {self.service.last_words()}"
        return time.monotonic() - since

    def note(self, told):
        """Keep what became of a trouble, and print it: the test takes long."""
        self.told.append(told)
        print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.0f}: {told}", flush=True)

    def trouble(self, name, what, told, *, then=None, jobs=ALL):
        """Make trouble, and wait until it is told; then end it, and until so many jobs go on by themselves."""
        begun = time.monotonic()
        what()
        said = self.service.until_said(told, begun, LIMIT * load() + 3)
        one = Told(name, said.at - begun, said.text[:400])
        if then is not None:
            then()
        one.recovered = self.until_all_go_on(time.monotonic(), jobs=jobs)
        self.note(one)
        return said

    def kill_driver(self, jobs=1):
        """Kill the driver: `anabranch jobs` tells it, and the service is started again."""
        service, begun = self.service, time.monotonic()
        service.is_held = True
        service.kill()
        assert until(
            lambda: {one.state for one in jobs_of_warehouse(self.warehouse)} == {"gone"}, LIMIT * load()
        ), jobs_of_warehouse(self.warehouse)
        one = Told("driver killed", time.monotonic() - begun, "`anabranch jobs`: gone")
        service.is_held = False
        one.recovered = self.until_all_go_on(time.monotonic(), jobs=jobs)
        self.note(one)

    def kill_jvm(self, jobs=1):
        """Kill the JVM: the program ends with 5 and says so, and is started again."""
        exits = len(self.service.exits)
        self.trouble(
            "JVM killed",
            lambda: self.service.kill(self.service.jvm()),
            lambda one: one.is_error and "Spark's JVM, which ran the job, is gone" in one.text,
            jobs=jobs,
        )
        assert self.service.exits[exits][1] == 5

    def is_pausing(self, *words):
        """A line of a job that has failed, will try again, and says why and what to do."""

        def holds(one):
            text = f"{one.values.get('message')} {one.values.get('hint')}"
            is_told = one.values.get("state") == "pausing" and one.values.get("hint")
            return is_told and any(word in text for word in words)

        return holds

    def fill(self):
        """Take every block of the disk."""
        for size in (MEGABYTE, 4096):
            with suppress(OSError), (self.disk / f"filler-{size}").open("wb") as filler:
                while True:
                    filler.write(b"x" * size)
                    filler.flush()

    def empty(self):
        for filler in self.disk.glob("filler-*"):
            filler.unlink()

    def remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", self.disk], check=True)

    def watch(self, seconds=5.0):
        """Take samples of the processes, and count files, until the end."""

        def work():
            while not self.watching.wait(seconds):
                service = self.service
                for kind, pid in (("driver", service.pid), ("jvm", service.jvm())):
                    found = None if pid is None else sample(pid)
                    if found is not None:
                        self.samples.append((kind, found))
                self.counts.append((time.monotonic(), count(self.place), count(self.temporary)))

        threading.Thread(target=work, daemon=True).start()

    def second_run(self):
        """Run the same jobs a second time: refused, naming who runs them."""
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "anabranch", *self.words()],
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        seconds = time.monotonic() - begun
        assert done.returncode == 4, done
        assert f"is run by process {self.service.pid}" in done.stderr
        assert "--take-over" in done.stderr
        assert seconds < LIMIT * load(), (seconds, load())
        self.note(Told("two runs", seconds, done.stderr.strip()[:400], 0.0))

    def lose_checkpoint(self, job):
        shutil.rmtree(self.place / "_checkpoints" / job)

    def finish(self):
        """End: every row is there as often as it must be, and nothing is left."""
        self.feeder.finish()
        differences = {}

        def is_right():
            differences.clear()
            differences.update(tables.differences(self.feeder.given, self.warehouse))
            return not differences

        until(is_right, 240 * load(), pause=3)
        code, seconds = self.service.stop()
        self.watching.set()
        assert not differences, differences
        assert code == 0, self.service.tail()
        left = sorted(one.name for one in self.temporary.iterdir())
        return seconds, left

    def close(self):
        self.hang.unlink(missing_ok=True)
        self.watching.set()
        if self.service is not None:
            self.service.is_ending = True
            with suppress(OSError):
                jvm = self.service.jvm()
                self.service.kill()
                if jvm:
                    self.service.kill(jvm)
                self.service.keeper.join(30)
        if self.is_mounted:
            subprocess.run(["umount", "-l", self.disk], check=False)

    def report(self):
        """What became of all troubles, a line each."""
        lines = [
            f"{one.trouble:<22} told after {one.seconds:5.1f} s, went on after {one.recovered or 0:5.1f} s: {one.text}"
            for one in self.told
        ]
        for kind in ("driver", "jvm"):
            for pid in dict.fromkeys(one.pid for k, one in self.samples if k == kind):
                of = [one for k, one in self.samples if k == kind and one.pid == pid]
                lines.append(
                    f"{kind} {pid} {of[-1].at - of[0].at:6.0f} s: "
                    + ", ".join(
                        f"{name} {getattr(of[0], name)} .. {max(getattr(one, name) for one in of)} .. {getattr(of[-1], name)}"
                        for name in ("rss", "threads", "files")
                    )
                )
        for at, files, temporary in self.counts[:: max(1, len(self.counts) // 12)]:
            lines.append(f"after {at - self.counts[0][0]:5.0f} s: {files} files, {temporary} temporary ones")
        return "\n".join(lines)

    def check_flat(self, since):
        """Assert that the processes that have lived since then hold no more than in the beginning."""
        for kind in ("driver", "jvm"):
            of = [one for k, one in self.samples if k == kind and one.at >= since]
            pid = of[-1].pid
            of = [one for one in of if one.pid == pid]
            third = len(of) // 3
            assert third >= 5, "too short to tell"
            for name, more in (("rss", 1.25), ("threads", 1.15), ("files", 1.15)):
                first, last = (
                    statistics.median(getattr(one, name) for one in part)
                    for part in (of[:third], of[-third:])
                )
                assert last <= first * more + 8, (kind, name, first, last)
        counts = [files for at, files, _ in self.counts if at >= since]
        third = len(counts) // 3
        first, last = max(counts[:third]), max(counts[-third:])
        assert last <= first * 1.2, ("files", first, last)


def count(folder):
    """How many files are below a folder; 0 while it is away."""
    return sum(len(names) for _, _, names in os.walk(folder))


def mounted(place, megabytes):
    """Whether a small disk of its own could be put there, which takes rights that not everybody has."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", place]
    try:
        return subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def move(place):
    """Move a folder away."""
    place.rename(f"{place}-away")


def bring_back(place):
    """Move it back."""
    Path(f"{place}-away").rename(place)


def snapshot_counts(warehouse):
    """How many snapshots each table has."""
    lake = anabranch.connect(warehouse)
    return {name: len(list(lake.table(f"db.{name}").snapshots())) for name in lake.tables("db")}
