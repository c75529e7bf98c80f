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

SHORT = {"main": 40, "others": 30}
"""Seeds of each scene in the short form."""
LONG = int(os.environ.get("ANABRANCH_SIMULATION_SEEDS", "20000"))
"""Seeds of all scenes together in the long form."""
AT_ONCE = 2
KNOWN = ("--known", "astray")
"""Defects that are being mended."""


def begun(*arguments):
    command = [sys.executable, "-m", "tests.simulation", *KNOWN, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env={**os.environ, **FIXED}, **pipes)


def ended(process):
    """What it printed, once it has found nothing wrong; the number of its steps."""
    said, _ = process.communicate()
    assert process.returncode == 0, said[-20_000:]
    return int(re.search(r"(\d+) steps", said)[1])


@pytest.mark.parametrize("scene", SHORT)
def test_simulated_worlds(scene):
    assert ended(begun("--scene", scene, "--seeds", f"0:{SHORT[scene]}")) > 50 * SHORT[scene]


def test_a_seed_is_the_same_each_time():
    told = [begun("--scene", "main", "--seeds", "5:7", "--trace", "calls", "--digest") for _ in range(2)]
    first, second = (process.communicate()[0].splitlines()[0] for process in told)
    assert first == second
    assert len(first) == 64, first


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_simulated_worlds():
    steps, each, running = 0, LONG // len(SHORT), []
    for scene in SHORT:
        for start in range(0, each, 500):
            if len(running) == AT_ONCE:
                steps += ended(running.pop(0))
            seeds = f"{10_000 + start}:{10_000 + min(start + 500, each)}"
            running.append(begun("--scene", scene, "--seeds", seeds, "--trace", "none"))
    steps += sum(ended(process) for process in running)
    assert steps > 50 * LONG
