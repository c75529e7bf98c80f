"""Importing the package starts nothing that a forked process would miss."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lengths import first_short

IMPORT_ALL = """
import importlib, pathlib, pkgutil, re, anabranch
for module in pkgutil.walk_packages(anabranch.__path__, "anabranch."):
    if not module.name.startswith(("anabranch.spark", "anabranch.kafka", "anabranch.demo", "anabranch.__main__")):
        importlib.import_module(module.name)
"""
WORK = "import polars; polars.DataFrame({'a': [1, 2]}).with_columns(b=polars.col('a') + 1)\n"
# A thread gives itself its name once it runs: on a busy machine a moment after it was started.
NAMES = """
import time
deadline = time.monotonic() + {patience}
while True:
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    found = [name for name in names if re.fullmatch("polars-[0-9]+|tokio.*", name)]
    if found or time.monotonic() >= deadline:
        break
    time.sleep(0.05)
print(*found)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux tells the names of threads")
@pytest.mark.parametrize(
    ("then", "expected"), first_short([("", False), (WORK, True)]), ids=["import", "work"]
)
def test_no_module_starts_threads_when_it_is_imported(then, expected):
    script = IMPORT_ALL + then + NAMES.format(patience=30 if expected else 1)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert bool(done.stdout.strip()) is expected, done.stdout
