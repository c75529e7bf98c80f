"""`anabranch run` as a service: started again as systemd does it, with all that it says and when it said it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

NO_RESTART = (0, 1, 2, 3, 4)
"""Exit codes with which systemd leaves it alone, by examples/operating/anabranch-jobs.service."""


@dataclass
class Said:
    """A line of the service."""

    at: float
    text: str
    is_error: bool
    values: dict = field(default_factory=dict)


class Service:
    """Keeps the program running."""

    def __init__(self, words, environment, cwd):
        self.words, self.environment, self.cwd = words, environment, cwd
        self.said, self.exits, self.starts = [], [], []
        self.is_ending = self.is_held = False
        self.process = None
        self.keeper = None

    def start(self):
        self.keeper = threading.Thread(target=self.keep, daemon=True)
        self.keeper.start()
        until(lambda: self.process is not None, 10)

    def keep(self):
        while True:
            self.starts.append(time.monotonic())
            self.process = subprocess.Popen(
                [sys.executable, "-m", "anabranch", *self.words],
                env=self.environment,
                cwd=self.cwd,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            readers = [
                threading.Thread(target=self.read, args=(stream, stream is self.process.stderr), daemon=True)
                for stream in (self.process.stdout, self.process.stderr)
            ]
            for reader in readers:
                reader.start()
            code = self.process.wait()
            for reader in readers:
                reader.join(20)
            self.exits.append((time.monotonic(), code))
            if self.is_ending or code in NO_RESTART:
                return
            until(lambda: not self.is_held, 120)

    def read(self, stream, is_error):
        with stream:
            for line in stream:
                values = json.loads(line) if line.startswith("{") else {}
                self.said.append(Said(time.monotonic(), line.rstrip(), is_error, values))

    @property
    def pid(self):
        return self.process.pid

    def jvm(self):
        """The number of the JVM of the process; None before it has one."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.pid), "java"], capture_output=True, text=True, check=False
        ).stdout.split()
        return int(found[0]) if found else None

    def kill(self, pid=None):
        os.kill(pid or self.pid, signal.SIGKILL)

    def stop(self, number=signal.SIGTERM):
        """Ask for the end, and return the exit code and how long it took."""
        self.is_ending = True
        begun = time.monotonic()
        self.process.send_signal(number)
        self.keeper.join(120)
        assert not self.keeper.is_alive(), self.tail()
        return self.exits[-1][1], time.monotonic() - begun

    def until_said(self, what, since, seconds):
        """Wait for a line for which `what` holds, said after `since`; return it."""
        found = []

        def look():
            found[:] = [one for one in list(self.said) if one.at >= since and what(one)][:1]
            return found

        assert until(look, seconds), (
            f"not said within {seconds} s since {since}; said was: {self.last_words()}"
        )
        return found[0]

    def last_words(self):
        """What each job said when its state changed last, and what stood on standard error: all that was said is too long."""
        found = {}
        for one in list(self.said):
            job, state = one.values.get("job"), one.values.get("state")
            if job is not None and found.get(job, (None,))[0] != state:
                found[job] = (state, f"{one.at:.1f} {one.text[:1500]}")
        errors = [f"{one.at:.1f} {one.text[:300]}" for one in list(self.said) if one.is_error][-20:]
        return "\n".join([*(text for _, text in found.values()), *errors])

    def tail(self, since=0.0):
        return "\n".join(one.text for one in self.said if one.at >= since)[-4000:]


def until(done, seconds, pause=0.1):
    """Wait until something holds; False if it does not in that time."""
    end = time.monotonic() + seconds
    while not (found := done()):
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return found


@dataclass
class Sample:
    """What a process holds."""

    at: float
    pid: int
    rss: int
    """MiB."""
    threads: int
    files: int


def sample(pid):
    """Return what a process holds now; None if it is gone."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        opened = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return Sample(
            time.monotonic(), pid, int(status["VmRSS"].split()[0]) // 1024, int(status["Threads"]), opened
        )
    except (OSError, KeyError):
        return None
