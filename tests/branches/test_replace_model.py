"""The protocol by which main is replaced, as a small model of which every interleaving is looked at.

A process is a program of steps, each one call of the store; a step may end the process, by death. The model has no time:
whoever waits for a decision may lose patience at any moment, because clocks may be wrong. What is checked at the end of
every run: main is one of the branches, a commit that was acknowledged is in a main that is or was, on the main it was
acknowledged by, and none came after a decided seal.
"""

import pytest

from tests.branches.replace_model import SEAL, explore


def writer(name, *, checks=True):
    """Commit once to main, wherever that is."""
    branch, _ = yield lambda w: w.main()
    while True:
        log = yield lambda w, b=branch: w.logs[b]
        if log and log[-1][0] == SEAL and checks:
            generation = log[-1][1]
            while True:
                decided = yield lambda w, g=generation: w.records.get(("MAIN", g))
                if decided is not None:
                    break
                patient = yield "wait"
                if not patient:
                    yield lambda w, g=generation, b=branch: w.put(("MAIN", g), _before(w, g))
            now, _ = yield lambda w: w.main()
            if now != branch:
                branch = now
                continue
        number = len(log)
        if (yield lambda w, b=branch, n=number: w.append(b, n, (name, 0))):
            return "acknowledged", name, branch


def _before(world, generation):
    return world.records.get(("MAIN", generation - 1), "old")


def replacer(name, target, *, atomic=True, rounds=2):
    """Put `target` in the place of main; gives up after some rounds, so that there is an end."""
    for _ in range(rounds):
        branch, generation = yield lambda w: w.main()
        if branch == target:
            return "done", name, target
        following = generation + 1
        if not (yield lambda w, g=following: w.put(("SEAL", g), name)):
            if (yield "wait"):
                continue
            yield lambda w, g=following: w.put(("MAIN", g), _before(w, g))
            continue
        while True:
            log = yield lambda w, b=branch: w.logs[b]
            if log and log[-1][0] == SEAL and log[-1][1] != following:
                break  # somebody else's: start over
            number = len(log)
            if (yield lambda w, b=branch, n=number, g=following: w.append(b, n, (SEAL, g))):
                break
        else:
            continue
        if atomic:
            if (yield lambda w, g=following: w.put(("MAIN", g), target)):
                return "done", name, target
        else:
            yield lambda w, g=following: w.records.update({("MAIN", g): target})
            return "done", name, target
    return "gave up", name, target


def faults_of(world, results):
    """What must not be."""
    main, _ = world.main()
    decided = [world.records["MAIN", g] for g in sorted(g for kind, g in world.records if kind == "MAIN")]
    mains = {"old", *decided}
    found = []
    for result in results:
        if result[0] == "acknowledged":
            _, name, branch = result
            if (name, 0) not in world.logs[branch] or branch not in mains:
                found.append(f"{name} is lost")
            if sum((name, 0) in log for log in world.logs.values()) != 1:
                found.append(f"{name} is there twice")
    for branch, log in world.logs.items():
        for place, entry in enumerate(log):
            if entry[0] != SEAL or world.records.get(("MAIN", entry[1])) in (None, branch):
                continue
            generation = entry[1]
            came_back = any(
                world.records["MAIN", g] == branch
                for kind, g in world.records
                if kind == "MAIN" and g > generation
            )
            if _before(world, generation) == branch and place + 1 < len(log) and not came_back:
                found.append(f"something was committed to {branch} after it was replaced")
    if main not in mains:
        found.append("nobody knows main")
    return found


@pytest.mark.parametrize(
    ("programs", "deaths"),
    [
        ([lambda: writer("a"), lambda: replacer("r", "new")], (0, 1)),
        ([lambda: writer("a"), lambda: writer("b"), lambda: replacer("r", "new", rounds=1)], (2,)),
        ([lambda: replacer("r", "new"), lambda: replacer("s", "other")], (0, 1)),
        (
            [
                lambda: writer("a"),
                lambda: replacer("r", "new", rounds=1),
                lambda: replacer("s", "other", rounds=1),
            ],
            (),
        ),
        pytest.param(
            [lambda: writer("a"), lambda: replacer("r", "new"), lambda: replacer("s", "other")],
            (1, 2),
            marks=pytest.mark.long,
        ),
        pytest.param(
            [
                lambda: writer("a"),
                lambda: writer("b"),
                lambda: replacer("r", "new"),
                lambda: replacer("s", "old", rounds=1),
            ],
            (2,),
            marks=pytest.mark.long,
        ),
    ],
    ids=["writer", "two-writers", "two-replacers", "three", "three-dying", "back-again"],
)
def test_every_interleaving(programs, deaths):
    ends, looked_at = explore(programs, deaths=deaths)
    assert looked_at > 100
    for world, results in ends:
        assert not faults_of(world, results), (results, world.key())
    assert {world.main()[0] for world, _ in ends} >= {"new"}


def test_the_search_sees_a_writer_that_does_not_look_for_the_seal():
    ends, _ = explore([lambda: writer("a", checks=False), lambda: replacer("r", "new", rounds=1)])
    assert any(faults_of(world, results) for world, results in ends)


def test_the_search_sees_a_decision_that_is_not_put_if_absent():
    ends, _ = explore([lambda: writer("a"), lambda: replacer("r", "new", atomic=False, rounds=1)])
    assert any(faults_of(world, results) for world, results in ends)
