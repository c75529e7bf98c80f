"""All orders in which processes can take their turns."""

SEAL = "seal"


class World:
    """The store, as a value: write-once records and the logs of two branches, `old` and `new` (and `other`)."""

    def __init__(self, records=(), logs=(("old", ()), ("new", ()), ("other", ()))):
        self.records, self.logs = dict(records), dict(logs)

    def key(self):
        return tuple(sorted(self.records.items())), tuple(sorted(self.logs.items()))

    def put(self, name, value):
        """False if it is taken."""
        if name in self.records:
            return False
        self.records[name] = value
        return True

    def append(self, branch, number, entry):
        """Put the snapshot of exactly that number; False if it is taken."""
        if len(self.logs[branch]) != number:
            return False
        self.logs[branch] = (*self.logs[branch], entry)
        return True

    def main(self):
        """Name of main and how often it was decided."""
        generation = max((g for kind, g in self.records if kind == "MAIN"), default=0)
        return ("old", 0) if not generation else (self.records["MAIN", generation], generation)


def explore(programs, *, deaths=(), begin=World, always=lambda world: None):
    """All ends of all interleavings: (world, results). `deaths` are the programs that may die at any step.

    `begin` gives the world as it is at first, and `always` is asked about each that comes of it.
    """
    ends, seen = [], set()

    def replay(schedule):
        """Run the programs anew along a schedule; the world, what each waits for, and results."""
        world = begin()
        running = [program() for program in programs]
        wanted, results = [], {}
        wanted += [next(process) for process in running]
        for number, choice in schedule:
            if choice == "die":
                wanted[number] = None
                results[number] = ("died",)
                continue
            answer = choice if wanted[number] == "wait" else wanted[number](world)
            try:
                wanted[number] = running[number].send(answer)
            except StopIteration as stop:
                wanted[number], results[number] = None, stop.value
        return world, wanted, results, running

    stack = [()]
    while stack:
        schedule = stack.pop()
        world, wanted, results, running = replay(schedule)
        state = (world.key(), tuple(_place(p) for p in running), tuple(sorted(results.items())))
        if state in seen:
            continue
        seen.add(state)
        always(world)
        alive = [number for number, want in enumerate(wanted) if want is not None]
        if not alive:
            ends.append((world, [results[number] for number in range(len(programs))]))
            continue
        assert len(schedule) < 90, "it never ends"
        for number in alive:
            # Patience that lasts changes nothing: whoever waits looks again when somebody else has done something.
            others = any(wanted[other] not in (None, "wait") for other in alive if other != number)
            choices = ([True, False] if others else [False]) if wanted[number] == "wait" else [None]
            stack.extend((*schedule, (number, choice)) for choice in choices)
            if number in deaths:
                stack.append((*schedule, (number, "die")))
    return ends, len(seen)


def _place(process):
    """Where a program is and what it knows; so for the program within that it waits for."""
    frame = getattr(process, "gi_frame", None)
    if frame is None:
        return None
    known = {k: v for k, v in frame.f_locals.items() if isinstance(v, str | int | tuple | bool | type(None))}
    return frame.f_lasti, tuple(sorted((k, repr(v)) for k, v in known.items())), _place(process.gi_yieldfrom)
