"""The kernel in simulated worlds: whatever is paused, killed or said wrongly, nothing is lost and nobody is stuck.

A world follows from its seed. To see what happened in one, and every storage call of it:
``python -m tests.simulation --scene clocks --seeds 17 --trace calls``.
"""

import os
import re
import subprocess
import sys

import pytest

from tests.simulation.__main__ import FIXED
from tests.simulation.mutations import MUTATIONS

SHORT = {
    "main,clocks,cleaning,rollbacks,others": 5,
    "branches,merges": 2,
    "references,recreated,disks,damaged": 4,
}
"""Seeds of each scene in the short form. Scenes of one line share a process."""
SCENES = ",".join(SHORT).split(",")
LONG = int(os.environ.get("ANABRANCH_SIMULATION_SEEDS", "20000"))
"""Seeds of all scenes together in the long form."""
AT_ONCE = 2
KNOWN = {"others": "astray"}
"""What is not looked for in a scene: another engine rolled back, of which there is no record, and a late commit of another
engine stands above the gap. That looks as if the snapshots in between had been lost."""


def begun(scene, *arguments):
    known = ("--known", ",".join(KNOWN[one] for one in scene.split(",") if one in KNOWN))
    command = [sys.executable, "-m", "tests.simulation", "--scene", scene, *known, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env={**os.environ, **FIXED}, **pipes)


def ended(process):
    """What it printed, once it has found nothing wrong; the number of its steps."""
    said, _ = process.communicate()
    assert process.returncode == 0, said[-20_000:]
    return int(re.search(r"(\d+) steps", said)[1])


@pytest.mark.parametrize("scenes", SHORT)
def test_simulated_worlds(scenes):
    assert ended(begun(scenes, "--seeds", f"0:{SHORT[scenes]}")) > 50 * SHORT[scenes]


def test_a_seed_is_the_same_each_time():
    told = [begun("main", "--seeds", "5:7", "--trace", "calls", "--digest") for _ in range(2)]
    first, second = (process.communicate()[0].splitlines()[0] for process in told)
    assert first == second
    assert len(first) == 64, first


def found_without(name, seeds):
    """Whether the simulator finds something wrong within so many seeds when this mend is taken out."""
    mend = MUTATIONS[name]
    if mend.test is not None:
        return fails_without(name, mend.test)
    process = begun(mend.scene, "--seeds", f"{mend.first}:{mend.first + seeds}", "--without", name)
    said, _ = process.communicate()
    assert process.returncode == 0 or re.search(r"^seed \d", said, re.MULTILINE), said[-5_000:]
    return process.returncode == 1


def fails_without(name, test):
    """Whether a test of a mend's own fails when the mend is taken out."""
    asked = [sys.executable, "-m", "pytest", "-q", "-p", "tests.simulation.without", "-m", "not long", test]
    done = subprocess.run(
        asked, env={**os.environ, "ANABRANCH_WITHOUT": name}, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stdout[-5_000:] + done.stderr[-5_000:]
    return done.returncode == 1


def test_the_simulator_finds_a_defect():
    assert found_without("snapshots_are_as_old_as_their_writers_clock_says", 40)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_simulator_finds_every_defect_that_was_mended(name):
    assert found_without(name, MUTATIONS[name].seeds)


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_simulated_worlds():
    steps, each, running = 0, LONG // len(SCENES), []
    for scene in SCENES:
        for start in range(0, each, 500):
            if len(running) == AT_ONCE:
                steps += ended(running.pop(0))
            seeds = f"{10_000 + start}:{10_000 + min(start + 500, each)}"
            running.append(begun(scene, "--seeds", seeds, "--trace", "none"))
    steps += sum(ended(process) for process in running)
    assert steps > 50 * LONG
