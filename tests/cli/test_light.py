"""Commands that only list names load nothing heavy."""

import subprocess
import sys

import pytest

import anabranch
from tests.support.lengths import first_short

HEAVY = ("pyarrow", "polars", "numpy", "pandas", "duckdb", "pyspark", "anabranch.table")
SCRIPT = """
import sys
from anabranch.cli.main import run
code = run(sys.argv[1:])
print(*[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    folder = tmp_path_factory.mktemp("light")
    anabranch.connect(str(folder)).create_table("db.t", "id BIGINT")
    return str(folder)


@pytest.mark.parametrize(
    ("verb", "printed"),
    first_short(
        [
            (["tables"], "table\ndb.t\n"),
            (["tables", "db", "--json"], '["db.t"]\n'),
            (["databases"], "database\ndb\n"),
        ]
    ),
)
def test_names_are_listed_without_arrow(warehouse, verb, printed):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), "-w", warehouse, *verb],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr.strip()) == (printed, "")


@pytest.mark.parametrize("verb", first_short(["tables", "databases"]))
def test_what_is_no_warehouse_is_said(warehouse, tmp_path, verb):
    for place in (tmp_path / "nope", f"{warehouse}/db.db", f"{warehouse}/db.db/t"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT.format(heavy=HEAVY), "-w", str(place), verb],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert "no warehouse" in done.stderr or "not a warehouse" in done.stderr


@pytest.mark.parametrize(
    "verb", first_short([["describe", "db.p"], ["read", "db.p", "--limit", "5"], ["files", "db.p"]])
)
def test_planning_does_not_load_pandas(tmp_path, verb):
    """Arrow loads it behind our back, where it is installed, for some ways to NumPy."""
    pytest.importorskip("pandas")
    table = anabranch.connect(str(tmp_path)).create_table("db.p", "id BIGINT, p STRING", partition_by="p")
    table.append([{"id": n, "p": None if n == 3 else f"p{n % 3}"} for n in range(10)])
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.format(heavy=("pandas", "duckdb", "pyspark")),
            "-w",
            str(tmp_path),
            *verb,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout
    assert done.stderr.splitlines()[-1] == ""  # beneath what `read` says of its limit
