"""Long work shows how far it has come, to who asks."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch
from anabranch.long_work import Step, progress, step
from tests.support.clock import Clock
from tests.support.lengths import first_short


class Quick(Clock):
    """A clock on which every look at it takes a second."""

    def monotonic(self):
        self.now += 1000
        return self.now / 1000


def batches(count, rows=10):
    schema = pa.schema({"id": pa.int64(), "dt": pa.string()})
    return pa.RecordBatchReader.from_batches(
        schema,
        (
            pa.record_batch({"id": [number] * rows, "dt": ["a"] * rows}, schema=schema)
            for number in range(count)
        ),
    )


@pytest.fixture
def table(tmp_path):
    return anabranch.connect(str(tmp_path)).create_table("db.t", "id BIGINT, dt STRING", partition_by="dt")


@pytest.mark.parametrize(
    ("total", "done", "seconds", "text"),
    [
        (None, 1_234_567, 10, "write: 1,234,567 rows, 123,457/s"),
        (40, 12, 6, "write: 12 of 40 rows (30%), 2.0/s, 14 s left"),
        (40, 0, 6, "write: 0 of 40 rows (0%)"),
        (40, 40, 6, "write: 40 of 40 rows (100%), 6.7/s"),
        (100_000, 1, 1, "write: 1 of 100,000 rows (0%), 1.0/s, 27.8 h left"),
        (1_000, 100, 100, "write: 100 of 1,000 rows (10%), 1.0/s, 15 min left"),
        (0, 0, 0, "write: 0 of 0 rows (100%)"),
    ],
)
def test_what_is_shown(total, done, seconds, text):
    assert Step("write", "rows", total, 0, done).text(seconds) == text


def test_rows_that_are_written_and_read(table):
    lines = []
    with progress(lines.append, clock=Quick()):
        table.append(batches(20))
    assert lines[-1] == ""
    assert re.fullmatch(r"write: \d+ rows, [\d.]+/s", lines[-2])
    assert [int(line.split()[1]) for line in lines[:-1]] == sorted(
        int(line.split()[1]) for line in lines[:-1]
    )
    del lines[:]
    with progress(lines.append, clock=Quick()):
        assert table.scan().to_arrow().num_rows == 200
    assert lines[-2].startswith("read: 200 of 200 rows (100%)")
    del lines[:]
    with progress(lines.append, clock=Quick()):
        assert len(table.scan("id < 5").to_polars()) == 50
    assert lines[-2].startswith("read: 50 rows")


def test_steps_of_upkeep(table):
    for number in range(6):
        table.append([{"id": number, "dt": part} for part in "abc"])
    lines = []
    with progress(lines.append, clock=Quick()):
        table.compact(full=True)
    assert any(re.search(r"compact.*: 3 of 3 steps \(100%\)", line) for line in lines), lines
    assert table.scan().count() == 18


def test_nothing_is_shown_of_short_work_or_to_nobody(table, capfd):
    lines = []
    with progress(lines.append, clock=Clock()):  # time stands still
        table.append(batches(3))
    assert lines == []
    table.append(batches(3))
    with progress():  # standard error is no terminal here
        table.append(batches(3))
    assert capfd.readouterr().err == ""


def test_steps_inside_of_steps_and_errors():
    lines = []

    def fail():
        with (
            progress(lines.append, clock=Quick()),
            step("merge", "tables", 2),
            step("write", "rows") as advance,
        ):
            advance(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lines[0].startswith("merge: 0 of 2 tables (0%); write: 1 rows")
    assert lines[-1] == ""


@pytest.mark.parametrize("as_json", first_short([False, True]))
def test_ctrl_c_leaves_nothing_and_says_so(table, as_json):
    folder = Path(table.context.storage.url.removeprefix("file://"))
    table.append([{"id": 1, "dt": "a"}])
    before = sorted(folder.rglob("*"))
    command = ["-m", "anabranch", "-w", str(folder.parent.parent), "append", "db.t", "-", "--format", "json"]
    process = subprocess.Popen(
        [sys.executable, *command, *(["--json"] if as_json else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    row = '{"id": 2, "dt": "b"}\n'
    for _ in range(50):
        process.stdin.write(row * 2_000)
    process.stdin.flush()
    time.sleep(1)  # it waits for more
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    assert "interrupted: what was committed before stays, nothing else was changed" in err
    assert ("exit_code" in err) is as_json
    assert "Traceback" not in err
    assert sorted(folder.rglob("*")) == before
    assert table.scan().count() == 1
