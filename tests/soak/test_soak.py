"""Five jobs as a service while things break: every row is there once, failures are told, and it goes on by itself.

The long form takes half an hour: twelve kills, a full disk, a read-only one, a warehouse that is moved away, a lost
checkpoint, a clock that jumps, a second run, new code, a hung batch and a row that the code cannot take.
"""

import time

import pytest

from tests.soak import job_file
from tests.soak.service import until
from tests.soak.soak import ALL, Soak, Told, bring_back, load, move, snapshot_counts

pytestmark = pytest.mark.spark


@pytest.fixture
def soak(tmp_path, request):
    made = Soak(tmp_path, **request.param)
    yield made
    made.close()
    print(made.report())


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("soak", [{"rate": 40, "every": "1 second"}], indirect=True)
def test_a_killed_jvm_and_a_warehouse_that_is_away_for_a_while(soak):
    soak.feeder.start()
    soak.until_all_go_on(0.0)
    soak.kill_jvm()
    move(soak.place)
    begun = time.monotonic()
    soak.service.until_said(lambda one: one.values.get("state") == "pausing", begun, 60 * load())
    bring_back(soak.place)
    seconds, left = soak.finish()
    assert seconds < 65
    assert left == []


MAINTAINED = ("--maintain", "--maintain-every", "60")


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("soak", [{"rate": 60, "every": "4 seconds", "options": MAINTAINED}], indirect=True)
def test_half_an_hour_of_troubles(soak):
    begun = time.monotonic()
    soak.feeder.start()
    soak.until_all_go_on(0.0)
    soak.watch()
    soak.second_run()
    if soak.is_mounted:
        soak.trouble("full disk", soak.fill, soak.is_pausing("No space left"), then=soak.empty)
        read_only = soak.is_pausing("Read-only file system")
        soak.trouble("read-only disk", lambda: soak.remount("ro"), read_only, then=lambda: soak.remount("rw"))
    soak.trouble(
        "warehouse moved away",
        lambda: move(soak.place),
        soak.is_pausing("is not there", "does not exist", "No such file", "away", "no folder", "is gone"),
        then=lambda: bring_back(soak.place),
    )
    soak.trouble(
        "hung batch",
        soak.hang.touch,
        lambda one: one.values.get("job") == "marked" and one.values.get("activity") == "stuck",
        then=soak.hang.unlink,
    )
    for job in ("kept", "once"):
        soak.trouble(
            f"lost checkpoint of {job}",
            lambda job=job: soak.lose_checkpoint(job),
            lambda one, job=job: (
                one.values.get("job") == job
                and "goes on after its last commit" in f"{one.values.get('message')}"
            ),
        )
    for minutes in (24 * 60, -24 * 60, 0):
        soak.clock.set(minutes)
        soak.until_all_go_on(time.monotonic())
        time.sleep(10)
    poisoned(soak)
    quiet = time.monotonic() + 30
    time.sleep(max(300.0, begun + 900 - time.monotonic()))
    soak.check_flat(quiet)
    for number in range(6):
        soak.kill_driver()
        soak.kill_jvm(ALL if number == 5 else 1)
    time.sleep(max(0.0, begun + 1800 - time.monotonic()))
    seconds, left = soak.finish()
    assert seconds < 65
    assert left == []
    assert all(number < 200 for number in snapshot_counts(soak.warehouse).values())
    assert len([code for _, code in soak.service.exits if code in (5, -9)]) >= 12


def poisoned(soak):
    """A row that the code cannot take: the job fails, is given up, and goes on with new code."""
    begun = time.monotonic()
    soak.feeder.extra = [job_file.POISON]
    soak.service.until_said(
        lambda one: one.values.get("state") == "pausing" and "poison" in f"{one.values.get('message')}",
        begun,
        60 * load(),
    )
    given_up = soak.service.until_said(
        lambda one: one.is_error and one.values.get("job") == "marked" and "poison" in one.text,
        begun,
        180 * load(),
    )
    told = Told("poisoned row", given_up.at - begun, given_up.text)
    soak.deploy(2)
    # Not 4: it leaves its jobs to another process, but for the one that it has given up.
    assert until(lambda: 1 in [code for _, code in soak.service.exits], 120 * load())
    told.recovered = soak.until_all_go_on(time.monotonic())
    soak.note(told)
