"""Public names are typed as users see them: mypy in its strict form finds what is wrong, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.long
def test_a_user_s_program_is_checked(tmp_path):
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "mypy",
                "--strict",
                "--warn-unused-ignores",
                "--follow-imports",
                "silent",
            ),
            *("--config-file", "", "--cache-dir", str(tmp_path), str(HERE / "user_script.py")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["Success: no issues found in 1 source file"], (
        done.stdout + done.stderr
    )
