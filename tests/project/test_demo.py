"""The demo, as a person runs it."""

import json
import subprocess
import sys

import pytest

from anabranch.demo.story import run_demo
from anabranch.errors import InvalidInputError


def test_a_folder_in_which_something_is_is_not_used(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(InvalidInputError, match="is not empty") as error:
        run_demo(folder=str(tmp_path), quiet=True)
    assert "--keep" in (error.value.hint or "")
    with pytest.raises(InvalidInputError, match="is no folder"):
        run_demo(folder=str(tmp_path / "mine.txt"), quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_the_whole_story_ends_well(tmp_path):
    words = ["demo", "--days", "40", "--keep", str(tmp_path / "kept"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    for fact in found["facts"]:
        assert fact["found"] == pytest.approx(fact["expected"], rel=1e-9), fact["what"]
    assert all(fact["found"] > 1.01 * fact["expected"] for fact in found["wrong"]), (
        "miles were taken for nautical ones"
    )
    assert found["wrong"]
    assert found["answers"]
