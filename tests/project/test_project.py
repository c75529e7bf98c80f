"""The project keeps its own promises: examples run, pages are current, layers stay apart."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import anabranch
import anabranch.spark
from anabranch.verbs.registry import PROCEDURES
from tests.support.lengths import first_short

ROOT = Path(__file__).parent.parent.parent


def _run(*words, **how):
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=ROOT, **how
    )


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    place = project["tool"]["hatch"]["version"]["path"]
    found = re.findall(r'^__version__ = "([^"]+)"$', (ROOT / place).read_text(), re.MULTILINE)
    assert found == [anabranch.__version__]
    assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+(\.dev0)?", found[0])
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = re.findall(r"^## \[([0-9][^\]]*)\]", changes, re.MULTILINE)
    assert (found[0] in released) == (".dev" not in found[0]), (
        "a release has its section, what comes next has none yet"
    )


@pytest.mark.long
def test_the_first_example_runs(tmp_path):
    done = _run("examples/first_table.py", str(tmp_path / "warehouse"))
    assert done.returncode == 0, done.stderr
    assert "[{'id': 2, 'city': 'Rome'}]" in done.stdout
    assert "3 rows now, 2 at snapshot 1" in done.stdout


@pytest.mark.long
@pytest.mark.spark
def test_the_streaming_example_runs(tmp_path):
    done = _run("examples/stream_copy.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "5 clicks: [1, 3, 5, 7, 9]" in done.stdout


@pytest.mark.long
@pytest.mark.spark
def test_the_example_of_windows_runs(tmp_path):
    done = _run("examples/windows.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["09:00-09:10: 2", "09:10-09:20: 3", "09:20-09:30: 1"]


def test_the_page_about_sql_lists_all_procedures():
    verbs = PROCEDURES
    rows = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \|(.*)\|$", (ROOT / "docs" / "spark-sql.md").read_text(), re.MULTILINE
    )
    listed = {
        name: set(re.findall(r"`(\w+)`", what)) for names, what in rows for name in re.findall(r"\w+", names)
    }
    for name, verb in verbs.items():
        assert listed.get(name) == {parameter.sql_name for parameter in verb.of_procedure}, name


def test_the_page_of_benchmarks_is_current():
    from benchmarks import report
    from benchmarks.__main__ import PAGE, RESULTS, register

    register()
    assert PAGE.read_text() == report.page(json.loads(RESULTS.read_text())), (
        "run `python -m benchmarks --page`"
    )


def test_public_names():
    expected = {"Lake", "Scan", "Table", "TableSchema", "__version__", "col", "connect", "duckdb", "progress"}
    expected |= {"requests"}
    expected |= {"Moment", "Savepoint", "SavepointManager", "Snapshot", "Tag"}
    expected |= {"Job", "Source", "files", "job", "sql_job", "static", "stream", "topic"}
    expected |= {"BranchInfo", "Diff", "MergeResult", "ReplaceResult", "Verdict"}
    errors = {n for n in anabranch.__all__ if n.endswith("Error")}
    assert set(anabranch.__all__) == expected | errors
    assert len(errors) == 22
    for name in anabranch.__all__:
        assert getattr(anabranch, name) is not None


@pytest.mark.parametrize("package", [anabranch, anabranch.spark], ids=lambda package: package.__name__)
def test_no_module_takes_the_place_of_a_public_name(package):
    """Python sets a module that is imported as an attribute of its package, over what is called so."""
    for name in package.__all__:
        assert importlib.util.find_spec(f"{package.__name__}.{name}") is None, name
        assert getattr(package, name) is not None


@pytest.mark.parametrize(
    ("imported", "name"),
    first_short(
        [("anabranch", "anabranch.spark.session"), ("anabranch.spark", "anabranch.spark.kafka.register")]
    ),
)
def test_names_of_the_documentation_are_there_after_one_import(imported, name):
    assert _run("-c", f"import {imported}; print(callable({name}))").stdout.strip() == "True"


def test_the_kernel_loads_no_engine():
    code = "import sys, anabranch.kernel.commit.transaction, anabranch.kernel.scan.request; print(sorted({'pyspark', 'sqlglot', 'anabranch.arrow'} & set(sys.modules)))"
    assert _run("-c", code).stdout.strip() == "[]"


def test_sparks_processes_do_not_load_what_they_seldom_need():
    """Spark starts several for each query, and each imports anew what the source needs."""
    code = "import sys, anabranch.spark.source.data_source; print(sorted({'pandas', 'rich', 'yaml', 'sqlglot', 'anabranch.audit', 'anabranch.kernel.merge.merge'} & set(sys.modules)))"
    assert _run("-c", code).stdout.strip() == "[]"


def test_errors_survive_pickling():
    import pickle

    error = anabranch.CommitConflictError("m", conflicts=("c",), hint="h")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.conflicts, again.hint) == ("m\n  hint: h", ("c",), "h")
    damaged = pickle.loads(pickle.dumps(anabranch.CorruptTableError("m", path="p")))
    assert (damaged.path, str(damaged)) == ("p", "p: m")
