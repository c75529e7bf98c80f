"""The protocol by which the mains of several tables are replaced at once, of which every interleaving is looked at.

As `test_replace_model`, with two tables and the group's record. What must hold besides: in every state, of all tables that
only groups replace, either each has the main that the last group made, or none has.
"""

import pytest

from tests.branches.replace_model import SEAL, explore

TABLES = ("a", "b")


class World:
    """Write-once records, and the logs of the branches `old` and `new` of each table."""

    def __init__(self):
        self.records = {}
        self.logs = {(table, branch): () for table in TABLES for branch in ("old", "new")}

    def key(self):
        return tuple(sorted(self.records.items(), key=repr)), tuple(sorted(self.logs.items()))

    def put(self, name, value):
        if name in self.records:
            return False
        self.records[name] = value
        return True

    def append(self, log, number, entry):
        if len(self.logs[log]) != number:
            return False
        self.logs[log] = (*self.logs[log], entry)
        return True

    def decided(self, table, generation):
        """The branch that ``MAIN-<g>`` says, or None while that counts for nobody."""
        found = self.records.get(("MAIN", table, generation))
        if not isinstance(found, tuple):
            return found
        target, group = found
        outcome = self.records.get(("DECIDED", group))
        return None if outcome is None else target if outcome else self.before(table, generation)

    def before(self, table, generation):
        return "old" if generation == 1 else self.decided(table, generation - 1)

    def main(self, table):
        """Name of main and how often it was decided."""
        generation = 0
        while self.decided(table, generation + 1) is not None:
            generation += 1
        return ("old", 0) if not generation else (self.decided(table, generation), generation)


def writer(name, table, *, decides=True):
    """Commit once to main, wherever that is. With `decides` False it forgets the group when it loses patience."""
    branch, _ = yield lambda w: w.main(table)
    while True:
        log = yield lambda w, b=branch: w.logs[table, b]
        if log and log[-1][0] == SEAL:
            generation = log[-1][1]
            while (yield lambda w, g=generation: w.decided(table, g)) is None:
                if not (yield "wait"):
                    yield from stay(table, generation, decides=decides)
            now, _ = yield lambda w: w.main(table)
            if now != branch:
                branch = now
                continue
        if (yield lambda w, b=branch, n=log: w.append((table, b), len(n), (name, 0))):
            return "acknowledged", name, table, branch


def stay(table, generation, *, decides=True):
    """Decide that main stays, and with it the others of its group."""
    if (yield lambda w: w.put(("MAIN", table, generation), w.before(table, generation))):
        return
    proposed = yield lambda w: w.records["MAIN", table, generation]
    if isinstance(proposed, tuple):
        if decides:
            yield lambda w: w.put(("DECIDED", proposed[1]), False)
        else:  # as if the pointer could be taken back for one table alone
            yield lambda w: w.records.update({("MAIN", table, generation): w.before(table, generation)})


def replacer(name, target, *, tables=TABLES, rounds=1, together=True):
    """Put `target` in the place of main in all tables; gives up after some rounds."""
    for _ in range(rounds):
        mains = ()
        for table in tables:
            mains = (*mains, (yield lambda w, t=table: w.main(t)))
        if all(branch == target for branch, _ in mains):
            return "done", name
        group = yield lambda w: _announce(w, name)
        done = yield from attempt(tables, mains, target, group, together=together)
        if done:
            return "done", name
    return "gave up", name


def _announce(world, name):
    group = sum(kind[0] == "GROUP" for kind in world.records)
    world.records["GROUP", group] = name
    return group


def attempt(tables, mains, target, group, *, together):
    for announced, (table, (_, generation)) in enumerate(zip(tables, mains, strict=True)):
        if not (yield lambda w, t=table, g=generation: w.put(("SEAL", t, g + 1), group)):
            yield from give_up(tables[:announced], mains, group)
            if not (yield "wait"):
                yield from stay(table, generation + 1)
            return False
    for table, (branch, generation) in zip(tables, mains, strict=True):
        while True:
            log = yield lambda w, t=table, b=branch: w.logs[t, b]
            if (
                log
                and log[-1][0] == SEAL
                and (yield lambda w, t=table, g=log[-1][1]: w.decided(t, g)) is None
            ):
                yield from give_up(tables, mains, group)
                return False
            entry = (SEAL, generation + 1)
            if (yield lambda w, k=(table, branch), n=log, e=entry: w.append(k, len(n), e)):
                break
    for table, (_, generation) in zip(tables, mains, strict=True):
        value = (target, group) if together else target
        if not (yield lambda w, t=table, g=generation, v=value: w.put(("MAIN", t, g + 1), v)):
            yield from give_up(tables, mains, group)
            return False
    if (yield lambda w: w.put(("DECIDED", group), True)):
        return True
    yield from give_up(tables, mains, group)
    return False


def give_up(tables, mains, group):
    yield lambda w: w.put(("DECIDED", group), False)
    for table, (_, generation) in zip(tables, mains, strict=False):
        yield from stay(table, generation + 1)


def agreeing(world):
    """Of two tables that are only replaced together, both are, or none is."""
    first, second = (world.main(table)[0] for table in TABLES)
    assert first == second, (first, second)


def faults_of(world, results):
    """As for one table: what was acknowledged is there once, in a main that is or was, and not after its seal."""
    found = []
    for result in results:
        if result[0] == "acknowledged":
            _, name, table, branch = result
            if (name, 0) not in world.logs[table, branch]:
                found.append(f"{name} is lost")
            if sum((name, 0) in log for log in world.logs.values()) != 1:
                found.append(f"{name} is there twice")
    for (table, branch), log in world.logs.items():
        seals = [place for place, entry in enumerate(log) if entry[0] == SEAL]
        for place in seals:
            generation = log[place][1]
            if world.decided(table, generation) in (None, branch) or place + 1 == len(log):
                continue
            later = range(generation + 1, world.main(table)[1] + 1)
            if not any(world.decided(table, g) == branch for g in later):
                found.append(f"something was committed to {branch} of {table} after it was replaced")
    return found


@pytest.mark.parametrize(
    ("programs", "deaths"),
    [
        ([lambda: writer("x", "a"), lambda: replacer("r", "new")], (0, 1)),
        ([lambda: replacer("r", "new"), lambda: replacer("s", "new")], ()),
        pytest.param(
            [lambda: writer("x", "a"), lambda: writer("y", "b"), lambda: replacer("r", "new")],
            (2,),
            marks=pytest.mark.long,
        ),
        pytest.param(
            [lambda: writer("x", "a"), lambda: replacer("r", "new", rounds=2)], (0, 1), marks=pytest.mark.long
        ),
        pytest.param(
            [lambda: replacer("r", "new"), lambda: replacer("s", "old", rounds=2)],
            (0, 1),
            marks=pytest.mark.long,
        ),
        pytest.param(
            [lambda: writer("x", "b"), lambda: replacer("r", "new"), lambda: replacer("s", "new")],
            (1,),
            marks=pytest.mark.long,
        ),
    ],
    ids=["writer", "two-groups", "two-writers", "rounds", "back-again", "two-groups-and-a-writer"],
)
def test_every_interleaving(programs, deaths):
    ends, looked_at = explore(programs, deaths=deaths, begin=World, always=agreeing)
    assert looked_at > 100
    for world, results in ends:
        assert not faults_of(world, results), (results, world.key())
    assert {world.main("a")[0] for world, _ in ends} >= {"new"}


@pytest.mark.parametrize(
    "programs",
    [
        [lambda: writer("x", "b"), lambda: replacer("r", "new"), lambda: replacer("s", "new", tables=("b",))],
        [
            lambda: writer("x", "a"),
            lambda: replacer("r", "new"),
            lambda: replacer("s", "new", tables=("b", "a")),
        ],
    ],
    ids=["one-of-them-alone", "other-order"],
)
@pytest.mark.long
def test_groups_that_meet(programs):
    """They need not agree then, but nothing is lost and nobody is held up."""
    ends, _ = explore(programs, deaths=(1,), begin=World)
    for world, results in ends:
        assert not faults_of(world, results), (results, world.key())


def test_the_search_sees_pointers_that_are_put_one_by_one():
    with pytest.raises(AssertionError, match="old"):
        explore([lambda: replacer("r", "new", together=False)], begin=World, always=agreeing)


def test_the_search_sees_a_writer_that_decides_for_its_own_table_alone():
    with pytest.raises(AssertionError, match="old"):
        explore(
            [lambda: writer("x", "a", decides=False), lambda: replacer("r", "new")],
            begin=World,
            always=agreeing,
        )
