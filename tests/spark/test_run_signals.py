"""`anabranch run` in a terminal is asked to end: what is under way is finished, and nothing is left."""

import os
import signal
import sys
import time

import pytest

import anabranch

JOBS = """
import anabranch
import slow_of_signals
from pyspark.sql import functions as F

@F.udf("bigint")
def slowly(k):
    return slow_of_signals.slowly(k)

@anabranch.job("copies", sources={"events": "db.events"}, sink="db.copies")
def copies(events):
    return events.select(slowly("k").alias("k"))
"""
BESIDE = """
import time

def slowly(k):
    time.sleep(6)
    return k
"""
CTRL_C = b"\x03"


@pytest.mark.spark
@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(CTRL_C, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_a_batch_under_way_is_finished(tmp_path, ask):
    lake = anabranch.connect(str(tmp_path / "warehouse"))
    for table in ("events", "copies"):
        lake.create_table(f"db.{table}", "k BIGINT")
    lake.table("db.events").append([{"k": 1}])
    (tmp_path / "jobs.py").write_text(JOBS)  # which needs a session to be loaded, and a module beside it
    (tmp_path / "slow_of_signals.py").write_text(BESIDE)
    words = ["-w", lake.url, "run", str(tmp_path / "jobs.py"), "--master", "local[1]"]
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "anabranch", *words])
    offsets = tmp_path / "warehouse/_checkpoints/copies/offsets/0"
    wait(offsets.exists, pid, terminal)
    time.sleep(2)  # its only task is at work
    if ask is CTRL_C:
        os.write(terminal, CTRL_C)
    else:
        os.kill(pid, ask)
    status = wait(lambda: False, pid, terminal)
    assert status == 0, said
    assert lake.table("db.copies").scan().to_arrow().to_pylist() == [{"k": 1}]
    assert offsets.with_name("0").parent.parent.joinpath("commits/0").exists()


said: list[bytes] = []


def wait(done, pid, terminal, seconds=150):
    """Until something has happened, or the program has ended: with its exit code then."""
    said.clear()
    os.set_blocking(terminal, False)
    deadline = time.monotonic() + seconds
    while not done():
        try:
            said.append(os.read(terminal, 65536))
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:  # the program has closed its end
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(b"".join(said).decode(errors="replace")[-3000:])
    if done():
        return None
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
