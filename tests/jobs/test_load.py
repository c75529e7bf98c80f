"""Job files: what they declare, what they import, and what is wrong with them."""

import os
import sys

import pytest

from anabranch.errors import InvalidInputError, NotFoundError
from anabranch.jobs.load import JobFileError, jobs_of, load, load_all
from tests.jobs.files import CLEAN, write


@pytest.fixture(autouse=True)
def imports():
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def names(path):
    return [job.name for job in load(path).jobs]


def test_the_jobs_of_a_file_come_in_their_order(tmp_path):
    path = write(
        tmp_path,
        CLEAN + 'anabranch.sql_job("b", "SELECT 1 FROM raw", sources={"raw": "db.r"}, sink="db.b")\n',
    )
    assert names(path) == ["clean", "b"]
    assert [job.place.line for job in load(path).jobs] == [5, 8]


def test_jobs_that_are_imported_by_name_are_jobs_of_the_file(tmp_path):
    write(tmp_path, CLEAN, "first_jobs.py")
    more = 'anabranch.sql_job("hidden", "SELECT 1 FROM raw", sources={"raw": "db.r"}, sink="db.b")\n'
    write(tmp_path, more, "other_jobs.py")
    path = write(tmp_path, "import anabranch, other_jobs\nfrom first_jobs import clean\n")
    assert names(path) == ["clean"]
    files = load_all([path, tmp_path / "first_jobs.py"])
    assert [job.name for file in files for job in file.jobs] == ["clean", "clean"]  # one place, so one job


COPY = 'anabranch.sql_job(f"copy-{t}", "SELECT * FROM raw", sources={"raw": f"db.{t}"}, sink=f"db.{t}_copy")'


def test_jobs_of_a_loop_or_a_function_are_all_there(tmp_path):
    loop = write(tmp_path, f"for t in 'ab':\n    {COPY}\n", "loop.py")
    assert names(loop) == ["copy-a", "copy-b"]
    write(tmp_path, f"def copied(t):\n    return {COPY}\n\ncopied('hidden')\n", "copies.py")
    calling = write(
        tmp_path, "from copies import copied\nfor t in 'cd':\n    copied(t)\nmine = copied('e')\n"
    )
    assert names(calling) == ["copy-c", "copy-d", "copy-e"]
    assert [job.name for job in jobs_of(load_all([loop, calling]))] == [f"copy-{t}" for t in "abcde"]


def test_a_name_that_a_loop_declares_twice_is_refused(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"two jobs are called 'copy-a': .*test\.py:3 and .*test\.py:3"
    ):
        load(write(tmp_path, f"for t in 'aa':\n    {COPY}\n"))


def test_a_file_without_jobs_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="declares no jobs"):
        load(write(tmp_path, "x = 1\n"))
    with pytest.raises(NotFoundError, match="no job file"):
        load(tmp_path / "gone.py")


def test_two_jobs_of_one_name_are_refused_with_both_places(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"two jobs are called 'clean': .*test\.py:5 and .*test\.py:12"
    ):
        load(write(tmp_path, CLEAN + CLEAN.replace("import anabranch", "")))
    one, other = write(tmp_path, CLEAN, "one.py"), write(tmp_path, CLEAN, "other.py")
    with pytest.raises(InvalidInputError, match=r"one\.py:5 and .*other\.py:5"):
        load_all([one, other])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = x / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("def f(:\n", "line 2: SyntaxError"),
        ("import no_such_module\n", "line 2: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "line 2: SystemExit: 3"),
    ],
)
def test_a_file_that_fails_says_in_which_line(tmp_path, text, said):
    with pytest.raises(JobFileError, match=r"jobs_of_test\.py cannot be run") as caught:
        load(write(tmp_path, f"import anabranch\n{text}"))
    assert said in str(caught.value)


def test_a_wrong_declaration_is_told_as_it_is(tmp_path):
    with pytest.raises(InvalidInputError, match=r"jobs_of_test\.py:\d+\): it has 2 sinks"):
        load(write(tmp_path, CLEAN.replace('"db.orders"', '["db.a", "db.b"]')))


def test_a_file_of_the_same_size_and_time_is_run_as_it_is_now(tmp_path, monkeypatch):
    """As byte code that Python has stored, it would be what it was: images set the times of all files to one."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "jobs.py"
    for number in (2, 3):
        file.write_text(
            f'import anabranch\nanabranch.sql_job("a", "SELECT k FROM t", sources={{"t": "db.t"}}, sink="db.a{number}")\n'
        )
        os.utime(file, (1_700_000_000, 1_700_000_000))
        (job,) = load(file).jobs
        assert job.sink == f"db.a{number}"
