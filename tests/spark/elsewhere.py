"""Clusters of Spark whose workers run elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.clusters import stop

ROOT = Path(__file__).parents[2]


def run(module, *arguments, log, **environment):
    """Run a job in a process group of its own; its output if it fails."""
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=200)
        finally:
            stop(process)
    assert code == 0, log.read_text()[-6000:]
    return log.read_text()
