"""Text that the terminal's encoding lacks is written in another way, not refused."""

import json
import os
import subprocess
import sys

import pytest

import anabranch

TEXT = "Köln \U0001f600"


@pytest.mark.long
def test_output_in_an_encoding_that_lacks_characters(tmp_path):
    table = anabranch.connect(str(tmp_path)).create_table("db.t", "v STRING")
    table.append([{"v": TEXT}])

    def said(*words, **env):
        done = subprocess.run(
            [sys.executable, "-m", "anabranch", "-w", str(tmp_path), *words],
            capture_output=True,
            check=False,
            env=os.environ | env,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode("ascii")

    narrow = {"PYTHONIOENCODING": "ascii"}
    assert json.loads(said("read", "db.t", "--json", **narrow)) == {"v": TEXT}
    assert "K\\xf6ln \\U0001f600" in said("read", "db.t", **narrow)
    assert "K\\xf6ln" in said(
        "sql", "SELECT * FROM db.t", LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
