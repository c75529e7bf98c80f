"""Acts on branches: making and deleting them, writing to them, merging them into main, putting them in its place."""

from anabranch.errors import AnabranchError, CommitOutcomeUnknownError
from tests.simulation.acts import Act, Append, Compact, Expire, table_of
from tests.simulation.process import Violation


class OnBranches(Act):
    """An act that may fail because of what others do with the branch; repeating it is harmless."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def __str__(self):
        return f"{type(self).__name__} {self.name}"

    @property
    def folder(self):
        return f"branch/branch-{self.name}"

    def failed(self, process, error):
        """Others may have deleted, merged or replaced it; what it began is finished by who repeats it."""


class CreateBranch(OnBranches):
    """A branch of main's newest snapshot."""

    def do(self, process):
        process.table.create_branch(
            self.name, f"{self.name}-{process.world.steps}", snapshot=process.table.snapshot.id
        )

    def drops(self, branch):
        return branch == self.folder  # where a deletion came in between


class BranchAppend(Append):
    """Rows for a branch."""

    is_for_main = False

    def __init__(self, name, rows):
        super().__init__(rows)
        self.name = name

    def __str__(self):
        return f"append {list(self.rows)} to {self.name}"

    def do(self, process):
        return process.table.branch(self.name).append(table_of(self.rows)).id


class BranchCompact(Compact):
    """Compacts a branch."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def __str__(self):
        return f"compact {self.name}"

    def do(self, process):
        return process.table.branch(self.name).compact(full=True).tasks


class BranchExpire(Expire):
    """Expires snapshots of a branch."""

    def __init__(self, name, keep):
        super().__init__(keep)
        self.name = name

    def __str__(self):
        return f"expire all but {self.keep} of {self.name}"

    def do(self, process):
        return process.table.branch(self.name).expire_snapshots(retain_max=self.keep, retain_min=2).snapshots


class DeleteBranch(OnBranches):
    """Removes a branch."""

    def do(self, process):
        process.table.delete_branch(self.name)

    def drops(self, branch):
        return branch == self.folder


class Merge(OnBranches):
    """Brings a branch into main."""

    def do(self, process):
        made = process.table.merge_branch(self.name).snapshot
        return None if made is None else made.id


class Replace(OnBranches):
    """Puts a branch in the place of main."""

    copies_past = True

    def do(self, process):
        return process.table.replace_main_branch(self.name, force=True).number


class UndoReplace(Act):
    """Takes the last replacement back."""

    copies_past = True

    def do(self, process):
        return process.table.undo_replace().number

    def failed(self, process, error):
        """There may be none, or it cannot be taken back any more."""


class Maintain(Expire):
    """All that is due: branches and replaced mains go, files are compacted, snapshots expire, orphans are cleaned."""

    may_move_away = True

    def __init__(self):
        super().__init__(None)

    def __str__(self):
        return "maintain"

    def do(self, process):
        return str(process.table.maintain())

    def done(self, process, result):
        Act.done(self, process, result)
        process.world.model.check_refs()

    def drops(self, branch):
        return branch.startswith("branch/")


class SettleBranches(Act):
    """When all is quiet: every branch can be merged and deleted; what was begun is finished by repeating it."""

    def do(self, process):
        table, model = process.table, process.world.model
        for name in table.branches():
            folder = f"branch/branch-{name}"
            if folder == model.main or folder not in model.lines or model.lines[folder].head is None:
                continue  # one without snapshots is what is left of one that was being made
            self.name = name
            try:
                table.branch(name)
            except AnabranchError:
                continue
            before = set(model.lines[model.main].head.rows)
            branch = model.lines[folder]
            try:
                table.merge_branch(name)
            except CommitOutcomeUnknownError as error:
                raise Violation(f"{name} cannot be merged: {error}") from error
            except AnabranchError as error:
                process.world.tell(process, f"  {name} is not merged: {error.message[:300]}")
                continue
            wanted = before | set(branch.head.rows)
            if set(model.lines[model.main].head.rows) != wanted:
                raise Violation(f"{name} was merged, but rows are missing: {wanted}")
