"""What must be in a simulated table: a plain list of snapshots and their rows, told from the acts alone.

The model sees every change of the store as it happens, and knows which act of which process made it. From that it keeps,
for each branch, the *line*: the snapshots that are its history, and the rows that there must be at each. A snapshot that
was put on something else than the newest one is *astray*: no part of the history, whatever its number.
"""

import json
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.held import Held, act_of
from tests.simulation.process import Violation
from tests.simulation.walk import Walker, stamp_of

PARENT = "anabranch.parent"
_NOBODY = object()


@dataclass
class Entry:
    """A snapshot of a line."""

    id: int
    stamp: str
    content: dict
    rows: tuple
    act: object
    """Which put it; None for what was there at first."""
    world: object
    put_at: float
    removed_by: object = None
    is_expired: bool = False
    is_unsettled: bool = False
    """Whether files of it were away when it was put; then it must be taken back, or they must be brought back."""
    is_broken: bool = False
    """Whether another engine took files of it, and died before it removed it."""
    is_away: bool = False
    """Whether its own act, which fails, has taken it away though others built on it: it must put it back."""
    step: int = 0
    """At which it became part of the line."""


@dataclass
class Line:
    """The history of one branch, oldest first."""

    entries: list = field(default_factory=list)
    astray: dict = field(default_factory=dict)
    """Snapshots that are no part of it, by id."""

    lost: list = field(default_factory=list)
    """The newest of it that somebody took away by hand, oldest first: a repair must bring them back."""
    expired: dict = field(default_factory=dict)
    """Stamps of what expired, by id."""
    emptied: Entry | None = None
    """What an expiry of ours removed because it had become the newest since: it must put it back."""
    is_dropped: bool = False
    """Whether it was main in the table's own folder, and dropped."""
    is_deleted: bool = False
    """Whether all of it was removed on purpose: what is put now stands alone, unless the branch is made again."""

    is_cut_by_another_engine: bool = False
    """Whether another engine has rolled it back, which leaves no record of what it removed."""

    @property
    def head(self):
        return self.entries[-1] if self.entries else None

    def find(self, number):
        return next((entry for entry in self.entries if entry.id == number), None)


_GOING = Line()


class Model(Held):
    """Lines by the folder of their branch, what was acknowledged, and what every reference must reach."""

    def __init__(self, world, root):
        super().__init__(world, root)
        self.walker = Walker(world.store, root)
        self.lines = {"": Line()}
        self.main = ""
        """Folder of the branch that is main."""
        self._pointers, self._replaced_mains = {}, {}
        self.rows_of = {}
        """Rows by the stamp of a snapshot."""
        self.is_away = False
        """Whether the table is being dropped or made just now."""
        self.heads = []
        """(step, rows): main as it was from that step on."""
        self._reach = {}
        self._broken = set()
        self._planned = {}
        """When each process last said what it was about to expire, in steps."""

    # What happens

    def saw(self, change):
        """A change of the store, at the moment it happens. Raises `Violation`."""
        path = change.path
        if not path.startswith(self.root + "/"):
            return
        if self.is_away:
            return
        inner = path[len(self.root) + 1 :]
        branch, kind, name = _parts(inner)
        if change.by is not None and change.by.is_old:
            self._check_old(inner, change)
        if self._is_damage(change):
            return
        if change.new is not None and "bucket-" in inner:
            self.walker.saw(path)
        if inner.startswith("branch/MAIN-") and inner[12:].isdigit() and change.new is not None:
            self._pointed(int(inner[12:]), json.loads(change.new.data), change.by)
        if "ledger/expiring-" in inner and change.new is not None:
            self._planned[change.by] = self.world.steps
        if inner.startswith("branch/RELEASE-") and change.new is not None:
            self._released(int(inner[15:]), json.loads(change.new.data))
        if kind == "snapshot" and self.lines.get(branch, _GOING).is_dropped:
            return
        if kind == "snapshot" and name.startswith("snapshot-"):
            number = int(name[9:])
            line = self.lines.setdefault(branch, Line())
            if change.new is None:
                self._removed(line, branch, number, change)
            elif change.old is None:
                self._put(line, branch, number, change)
            elif change.old.data != change.new.data:
                self._replaced(line, branch, number, change)
        if kind == "tag" and change.new is None:
            self._untagged(path, change)
        if kind in ("savepoint", "consumer"):
            self._referred(kind, name, change)
        if change.new is None and change.by is not None:
            self._check_needed(path, change)
        if kind == "snapshot" and not (
            change.by is not None and change.by.act and change.by.act.drops(branch)
        ):
            self.world.check_head(branch)

    def begin_again(self):
        """The table was dropped, and another made under its name."""
        self.lines, self.main, self.heads = {"": Line()}, "", []
        self.forget_all()
        self.is_away = False

    def _pointed(self, generation, content, by):
        """It was decided which branch is main."""
        self._pointers[generation] = content["main"]["name"]
        if content["outcome"] == "replaced":
            name, sealed = content["old"]["name"], content["head"]["snapshot"] + 1
            self._replaced_mains[generation] = name
            for entry in self.lines["" if name is None else f"branch/branch-{name}"].entries:
                if entry.id > sealed:
                    raise Violation(f"{entry.act} came between the seal of main and its replacement")
        name = self._pointers[max(self._pointers)]
        self.main = "" if name is None else f"branch/branch-{name}"
        self.world.tell(by, f"  main is '{self.main}'")
        self._note_head(self.main)

    def _released(self, generation, content):
        """A replaced main that was kept long enough is dropped: nothing needs it any more."""
        if content["what"] == "drop":
            name = self._replaced_mains[generation]
            self.lines["" if name is None else f"branch/branch-{name}"] = Line(is_dropped=name is None)

    def _note_head(self, branch):
        line = self.lines.get(branch)
        if branch == self.main and line is not None and (line.head is not None or line.lost):
            self.heads.append((self.world.steps, () if line.head is None else line.head.rows))

    def _put(self, line, branch, number, change):
        content, act = json.loads(change.new.data), act_of(change)
        stamp, head = stamp_of(content), line.head
        known, there = self.rows_of.get(stamp), line.find(number)
        if there is not None and there.is_away and there.stamp == stamp:
            there.is_away = False
            return
        if line.lost:
            self._put_back(line, branch, number, content)
            return
        if head is None and line.is_deleted and known is None:
            line.astray[number] = act
            self.world.tell(change.by, f"  snapshot-{number} is astray (the branch is deleted)")
            return
        if head is None and self._is_built_on_emptied(line, number, content, act):
            head = line.emptied
        elif head is None and known is None and line.expired and not (act is not None and act.starts_history):
            raise Violation(f"{act} began anew with snapshot {number} what an expiry had emptied")
        if head is None or (act is not None and act.starts_history):
            if known is None and act is None:
                raise Violation(f"nobody knows what snapshot {number} is")
        elif known is not None and self._belongs_below(line, number, stamp, act):
            line.entries.insert(0, Entry(number, stamp, content, known, act, self.world, self.world.now))
            return
        elif number != head.id + 1 or not self._is_on(content, head, act):
            line.astray[number] = act
            self.world.tell(change.by, f"  snapshot-{number} is astray (newest is {head.id})")
            return
        if known is None and head is not None and "anabranch.leftover" in (content.get("properties") or {}):
            known, act = head.rows, None  # history is led up to something astray
        if known is None:
            before = () if head is None else head.rows
            known = self._merged(content, before) or act.rows_after(content, before, self)
        self._push(line, branch, Entry(number, stamp, content, known, act, self.world, self.world.now))

    def _is_built_on_emptied(self, line, number, content, act):
        """Whether somebody who had read the newest snapshot put the next one before an expiry has put that back."""
        last = line.emptied
        return last is not None and number == last.id + 1 and self._is_on(content, last, act)

    @staticmethod
    def _belongs_below(line, number, stamp, act):
        """Whether a known snapshot continues history downwards: a copy of main's past, or what is put back where it was."""
        if act is None or number != line.entries[0].id - 1:
            return False
        return act.copies_past or (line.emptied is not None and stamp == line.emptied.stamp)

    def _put_back(self, line, branch, number, content):
        """A snapshot in place of the oldest that is lost, with its rows."""
        lost, head, stamp = line.lost[0], line.head, stamp_of(content)
        expired = line.expired.get(number)
        if number < lost.id and expired is not None and (stamp == expired or stamp not in self.rows_of):
            # A reference still held what had expired, or its lists are left, and what was lost continues that.
            rows = self.rows_of[expired]
            self._push(line, branch, Entry(number, stamp, content, rows, None, self.world, self.world.now))
            return
        if line.entries and number == line.entries[0].id - 1 and stamp in self.rows_of:
            # The past of a branch that is main is put below what it began with, as when it became main.
            known = self.rows_of[stamp]
            line.entries.insert(0, Entry(number, stamp, content, known, None, self.world, self.world.now))
            return
        if head is None:  # where nothing is left of the beginning, it begins with what is
            lost = next((entry for entry in line.lost if entry.id == number), lost)
        rows = self.rows_of.get(stamp, lost.rows)
        if number != lost.id or Counter(rows) != Counter(lost.rows):
            raise Violation(
                f"snapshot {number} with {rows} was put where {lost.id} with {lost.rows} was lost"
            )
        if head is not None and not self._is_on(content, head, None):
            raise Violation(f"snapshot {number} was put back, but not on {head.id}")
        line.lost = [entry for entry in line.lost if entry.id > number]
        self._push(line, branch, Entry(number, stamp, content, lost.rows, None, self.world, self.world.now))

    def _merged(self, content, before):
        """The rows after a merge, whoever commits it: what the branch has and main had not, after main's."""
        said = json.loads((content.get("properties") or {}).get("anabranch.merge", "null"))
        if said is None or said["ended"]:
            return None
        branch = self.rows_of[said["head"]["stamp"]]
        return (*before, *(row for row in branch if row not in before))

    def _push(self, line, branch, entry):
        if entry.act is not None and entry.act.is_for_main and branch != self.main:
            raise Violation(f"{entry.act} was put on '{branch}', which is not main any more")
        line.entries.append(entry)
        entry.step = self.world.steps
        line.is_deleted = False
        self.rows_of[entry.stamp] = entry.rows
        self._check_rows(entry, branch)
        self._note_head(branch)
        if entry.act is not None:
            entry.act.made.append(entry)
        self._join(line, branch, entry)

    def _join(self, line, branch, entry):
        """What was astray belongs to the history if the very snapshot that it was built on is put again.

        That one follows from the one before it alone (`take_over`), so it is the same also after it was rolled back. What another
        engine put names no parent: one with the same files is the same to it.
        """
        number, act = entry.id + 1, line.astray.get(entry.id + 1)
        found = self.world.store.objects.get(
            f"{self.root}/{branch}/snapshot/snapshot-{number}".replace("//", "/")
        )
        if act is None or found is None:
            return
        content = json.loads(found.data)
        properties = content.get("properties") or {}
        if properties.get(PARENT) == entry.stamp or (
            PARENT not in properties and self._is_on_alike(content, entry)
        ):
            del line.astray[number]
            if "anabranch.leftover" in properties:
                rows, act = entry.rows, None  # it led history on, up to something astray
            else:
                rows = act.rows_after(content, entry.rows, self)
            self._push(
                line, branch, Entry(number, stamp_of(content), content, rows, act, self.world, self.world.now)
            )

    def _is_on_alike(self, content, entry):
        """Whether a snapshot was built on one with the same files as this one."""
        try:
            return self.walker.live(dict(content, deltaManifestList=None)) == self.walker.live(entry.content)
        except KeyError:  # an expiry may have taken them
            return False

    def _replaced(self, line, branch, number, change):
        """Something was stored in place of a snapshot that is astray, so that history can go on."""
        astray, act = line.astray.get(number, _NOBODY), act_of(change)
        content, head = json.loads(change.new.data), line.head
        if astray is _NOBODY:
            raise Violation(f"snapshot {number} of {line.find(number).act} was overwritten by {act}")
        if head is None or number != head.id + 1 or not self._is_on(content, head, act):
            return
        del line.astray[number]
        rescued = astray.rows if content["commitKind"] == "APPEND" and astray.is_rescued else ()
        self._push(
            line,
            branch,
            Entry(
                number, stamp_of(content), content, (*head.rows, *rescued), None, self.world, self.world.now
            ),
        )

    def _is_on(self, content, head, act):
        """Whether a snapshot was built on the newest one."""
        parent = (content.get("properties") or {}).get(PARENT)
        return parent == head.stamp if parent is not None else act is not None and act.built_on == head.stamp

    def _removed(self, line, branch, number, change):
        if line.astray.pop(number, None) is not None:
            return
        act, entry = act_of(change), line.find(number)
        if entry is not None and act is not None and act.is_damage:
            line.entries.remove(entry)
            line.lost = sorted([entry, *line.lost], key=lambda one: one.id)
            self._note_head(branch)
            return
        if entry is None:
            if act is not None and act.drops(branch):
                return
            raise Violation(f"snapshot {number} was removed that nobody put")
        if act is not None and act.drops(branch):
            line.entries.remove(entry)
            line.is_deleted = not line.entries
            if entry.act is not None:
                entry.act.taken.append(entry)  # it went with the branch: who put it may be told there is none
            return
        if entry is line.entries[0] and self._may_uncopy(act, entry, branch):
            line.entries.pop(0)
            return
        taken_back = entry.act is act and act is not None and not act.is_acknowledged
        if entry is line.head and (len(line.entries) > 1 or taken_back):
            if not taken_back and not (act is not None and act.may_remove_newest(entry)):
                raise Violation(f"{act} removed snapshot {number}, the newest, of {entry.act}")
            line.entries.pop()
            line.is_deleted = not line.entries
            entry.removed_by = act
            line.is_cut_by_another_engine |= act is not None and act.is_foreign
            if entry.act is not None:
                entry.act.taken.append(entry)
        elif entry is line.entries[0]:
            if act is None or not act.may_remove_oldest(entry):
                raise Violation(f"{act} removed snapshot {number}, the oldest, of {entry.act}")
            self._check_unread(entry, change)
            line.entries.pop(0)
            entry.is_expired = True
            line.expired[number] = entry.stamp
            # What came after its plan it took for the one that it had read.
            if not line.entries and entry.step < max(change.by.begun, self._planned.get(change.by, 0)):
                line.emptied = entry
        elif taken_back:
            entry.is_away = True
            return
        else:
            at = line.entries.index(entry)
            copied = all(below.act is not None and below.act.copies_past for below in line.entries[:at])
            if act is None or not copied or not act.may_remove_oldest(entry):
                raise Violation(f"{act} removed snapshot {number} in the middle of history, of {entry.act}")
            for below in line.entries[
                :at
            ]:  # the past came while it expired: it is cut off, and no part of history
                line.astray[below.id] = below.act
            del line.entries[: at + 1]
            entry.is_expired = True
        self._note_head(branch)

    def _may_uncopy(self, act, entry, branch):
        """Whether an act may remove a copy of main's past: its own, or any that main itself has no more.

        Two replacements that put the same branch in the place of main make the same copies, and cannot tell whose they are. One
        that is paused before it removes what had expired may find that the other has made the branch main.
        """
        if act is None or entry.act is None or not (act.copies_past and entry.act.copies_past):
            return False
        if any(line.expired.get(entry.id) == entry.stamp for line in self.lines.values()):
            return True
        own = self.lines[self.main].find(entry.id)
        return entry.act is act or (branch != self.main and (own is None or own.stamp != entry.stamp))

    # What must hold

    def refs(self):
        """Everything that must be readable, by a name for people."""
        for branch, line in self.lines.items():
            for entry in line.entries:
                if entry.is_away or entry.is_broken or (entry.is_unsettled and not entry.act.is_acknowledged):
                    continue
                yield f"snapshot {entry.id} of '{branch}'", entry.stamp, entry.content
        for path, content in self.tags.items():
            yield path, stamp_of(content), content
        for number, (saved, full) in self.savepoints.items():
            yield f"savepoint {number}", stamp_of(saved), saved
            yield f"savepoint {number}", full["baseManifestList"], full

    @staticmethod
    def stamp_of(content):
        """What tells a snapshot from any other of its id."""
        return stamp_of(content)

    def reach(self, stamp, content):
        if stamp not in self._reach:
            self._reach[stamp] = self.walker.reach(content)
        return self._reach[stamp]

    def _check_needed(self, path, change):
        act = act_of(change)
        if act is not None and act.may_move_away:
            return
        for entry in (entry for line in self.lines.values() for entry in line.entries):
            if act is not None and act.may_break(entry) and path in self.reach(entry.stamp, entry.content):
                entry.is_broken = True
                self._broken.add(entry.stamp)
        for name, stamp, content in self.refs():
            if path in self.reach(stamp, content):
                raise Violation(f"{act} removed {path}, which {name} needs")

    def is_broken(self, stamp):
        """Whether another engine has taken files of a snapshot that is still there, or was until just now."""
        return stamp in self._broken

    def is_expiry_marked_from(self, number):
        """Whether main has the mark of an expiry, which may have died, that removes snapshots from this one on."""
        marks = f"{self.root}/{self.main}/ledger/expiring-".replace("//", "/")
        found = (path.removeprefix(marks) for path in self.world.store.objects if path.startswith(marks))
        return any(int(name.partition("-")[0]) >= number for name in found)

    def check_refs(self, *, is_end=False):
        """Every file of every reference is there; in the end none is set aside any more."""
        for name, stamp, content in self.refs():
            for path in self.missing(stamp, content) if is_end else self._lost(stamp, content):
                raise Violation(f"{name} needs {path}, which is not there")

    def _check_rows(self, entry, branch):
        """A snapshot holds its rows. One whose files are away for the moment is looked at when they must be there."""
        if self.missing(entry.stamp, entry.content):
            entry.is_unsettled = True
            return
        entry.is_unsettled = False
        found = self.walker.rows(entry.content)
        ids = Counter(row for rows in found.values() for row in rows)
        if ids != Counter(entry.rows):
            held, wanted = sorted(ids.elements()), sorted(entry.rows)
            raise Violation(
                f"snapshot {entry.id} of '{branch}' by {entry.act} holds {held}, expected {wanted}"
            )
        if self.world.is_queue:
            place = {row: i for i, row in enumerate(entry.rows)}
            for bucket, rows in found.items():
                if rows != sorted(rows, key=place.get):
                    raise Violation(f"snapshot {entry.id}: rows of bucket {bucket} are out of order: {rows}")

    def check_settled(self, entry, branch=""):
        """What was acknowledged has all its files, unless another engine's expiry took them meanwhile, files first."""
        if self.is_broken(entry.stamp):
            return
        missing = self._lost(entry.stamp, entry.content)
        if missing:
            raise Violation(f"snapshot {entry.id} by {entry.act} was acknowledged, but lacks {missing[0]}")
        if entry.is_unsettled:
            self._check_rows(entry, branch)

    def missing(self, stamp, content):
        """Files that a snapshot needs and that are not there."""
        try:
            return [path for path in self.reach(stamp, content) if path not in self.world.store.objects]
        except KeyError as error:
            return [error.args[0]]

    def seen_since(self, step):
        """What main may have been seen to be since a step."""
        known = [rows for at, rows in self.heads if at >= step]
        return known + [rows for at, rows in self.heads if at < step][-1:]


def _parts(inner):
    """Branch folder, kind and name of a path in a table."""
    parts = inner.split("/")
    if parts[0] == "branch" and len(parts) > 3:
        return "/".join(parts[:2]), parts[2], parts[-1]
    return "", parts[0], parts[-1]
