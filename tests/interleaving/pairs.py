"""Tries the orders of two works, and says which of them come to what no order of whole works comes to.

What is looked at is what users see: the rows of main, of each branch, and at each tag. A work that was refused counts
as not done. Afterwards a row must be able to be appended everywhere, and a check of the table must find nothing.
"""

import random
from dataclasses import replace
from functools import cache

import anabranch
from anabranch.errors import AnabranchError, CorruptTableError, NotFoundError, SealedBranchError
from tests.interleaving.turns import Beginning, Process, matter, opened
from tests.interleaving.works import ALL
from tests.support.chance import Chance
from tests.support.tables import ids_of, make_table, rows


class Waiting(Chance):
    """A clock that goes on while somebody waits, so that who waits for another gives up at last."""

    def sleep(self, seconds):
        self._now += int(seconds * 1000)


def beginning(seed=0):
    """Six commits of a row each; a tag of the third, from which a branch began, with two rows of its own."""
    made = make_table(f"memory://interleaving-{seed}-{random.getrandbits(60)}")
    table = anabranch.Table(replace(made.context, runtime=Waiting(seed).runtime))
    for number in range(6):
        table.append(rows(number, 1))
    table.create_tag("good", 3)
    table.create_branch("fix", "good")
    for number in (100, 101):
        table.branch("fix").append(rows(number, 1))
    return Beginning.of(table)


def seen(table):
    """What readers find: rows by branch, and by branch and tag."""
    found = {"main": ids_of(table)}
    for name in table.tags():
        found["main", name] = ids_of(table.at(name))
    for name in table.branches():
        try:
            branch = table.branch(name)
        except NotFoundError:  # what a late writer left in the folder of a deleted one is none
            continue
        found[name] = ids_of(branch)
        for tag in branch.tags():
            found[name, tag] = ids_of(branch.at(tag))
    return found


def in_turn(begun, *works):
    """What there is after whole works one after the other, and which were done."""
    table, done = begun.again(), []
    for work in works:
        process = Process(work, table)
        process.until()
        done.append(process.error is None)
    return seen(opened(table.context)), tuple(done)


class Pair:
    """Two works, and what whole ones come to."""

    def __init__(self, begun, one, other):
        self.begun, self.one, self.other = begun, one, other
        both = in_turn(begun, one, other), in_turn(begun, other, one)
        self.whole = [both[0], (both[1][0], both[1][1][::-1])]
        self.alone = [in_turn(begun, one)[0], in_turn(begun, other)[0], in_turn(begun)[0]]

    def allowed(self, done):
        """What may be seen where these of the two were done."""
        may = [found for found, were_done in self.whole if were_done == done]
        if done == (True, True) and not may:
            may = [found for found, _ in self.whole]
        if not done[1]:
            may.append(self.alone[0] if done[0] else self.alone[2])
        if not done[0] and done[1]:
            may.append(self.alone[1])
        return may

    def orders(self):
        """(call of the one before which it stands still, call of the other) that can make a difference."""
        calls = self._calls(self.one), self._calls(self.other)
        stops = [0, *(number + 1 for number in matter(calls[0], calls[1]))]
        for stop in stops:
            ours, others = self._calls_while(stop)
            for number in matter(others, [*calls[0], *ours]):
                yield stop, number + 1

    def _calls(self, work):
        process = Process(work, self.begun.again())
        process.until()
        return process.calls

    def _calls_while(self, stop):
        table = self.begun.again()
        one, other = Process(self.one, table), Process(self.other, table)
        one.until(stop)
        other.until()
        one.until()
        return one.calls, other.calls

    def _comparable(self, found):
        """What was seen, without what may or may not be there: it is as good either way.

        The tag that a creation from a snapshot makes first stays where that is refused. A branch that is created while a forced
        rollback removes what it began with is deleted by it or not.
        """
        either = {("main", "new"), ("fix", "new")}  # whichever is main
        if {self.one, self.other} & {ALL["rollback_for_good_by_force"]}:
            either |= {what for what in found if what == "new" or what[0] == "new"}
        return {what: ids for what, ids in found.items() if what not in either}

    def lived(self, stop, stop_of_other):
        """Try one order; return what is wrong with it, or None."""
        table = self.begun.again()
        one, other = Process(self.one, table), Process(self.other, table)
        one.until(stop)
        other.until(stop_of_other)
        one.until()
        other.until()
        errors = (one.error, other.error)
        for error in errors:
            if error is not None and not isinstance(error, AnabranchError):
                return f"raw error {type(error).__name__}: {error}"
        try:
            found = seen(opened(table.context))
        except AnabranchError as error:
            return f"cannot be read: {error}"
        done = tuple(error is None for error in errors)
        if all(self._comparable(found) != self._comparable(may) for may in self.allowed(done)):
            return f"{done} {_told(errors)}: found {found}, expected one of {self.allowed(done)}"
        corrupt = [error for error in errors if isinstance(error, CorruptTableError)]
        if corrupt:
            return f"said to be damaged: {corrupt}"
        return _stuck(table, found)


def _is_of(branch, found):
    """Whether a problem is one of what readers find. What late writers leave in the folder of a deleted branch is told too."""
    return branch is None or branch in found


def _told(errors):
    return [str(error)[:200] for error in errors if error is not None]


def _stuck(table, found):
    """What is wrong with a table that both have left, or None."""
    now = opened(table.context)
    try:
        for name in [name for name in found if isinstance(name, str)]:
            branch = now if name == "main" else now.branch(name)
            if name != "main" and branch.branch_uuid == now.branch_uuid:
                continue  # main has been replaced by it
            try:
                branch.append(rows(900, 1))
            except SealedBranchError:
                if name == "main":
                    raise
                continue  # what was main, and is not any more, takes no rows
            if ids_of(branch) != [*found[name], 900]:
                return f"after an append {name} has {ids_of(branch)}"
        problems = [
            one for one in now.verify().problems if one.severity == "error" and _is_of(one.branch, found)
        ]
    except AnabranchError as error:
        return f"nothing can be appended: {type(error).__name__} {error}"
    return f"verify: {problems}" if problems else None


@cache
def _begun():
    return beginning()


def tried(one, other, most=None, seed=0):
    """(orders tried, [(order, what is wrong)]) of two works by their names; `most` of them, drawn."""
    pair = Pair(_begun(), ALL[one], ALL[other])
    orders = [*pair.orders()]
    if most is not None and len(orders) > most:
        orders = random.Random(f"{seed}{one}{other}").sample(orders, most)
    return len(orders), [(order, wrong) for order in orders if (wrong := pair.lived(*order)) is not None]
