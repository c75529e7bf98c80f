"""Writes docs/reference/conflicts.md: the kinds of conflicts, which are found in the code and explained here."""

import ast
import re
from pathlib import Path

PATH = "reference/conflicts.md"
SOURCE = Path(__file__).parent.parent / "src" / "anabranch"
ROOMS = ("kernel", "lineage", "cascade", "table", "maintenance")
NO_CONFLICTS = {"DELETION_VECTORS", "MERGED_MEANWHILE", "ANABRANCH_LINEAGE_INDEX", "OPENLINEAGE_API_KEY"}
"""Constants of that form that no caller gets as the kind of a conflict."""

HEADER = """<!-- blocks: a fragment: tests/branches/test_merge.py meets and reads conflicts so -->
# Conflicts

A `CommitConflictError` means that somebody else changed what your call builds on. Nothing was published. `error.conflicts` lists all
conflicts that were found; each has a `kind`, a `message` and a `hint`. The command line prints them and exits with 3.

```python
try:
    table.merge_branch("fix")
except anabranch.CommitConflictError as error:
    for conflict in error.conflicts:
        print(conflict.kind, conflict.message, conflict.hint)
```

Most races are not conflicts: a commit that loses one is done again on the newest snapshot, without you. [Commits and
guarantees](../commits.md#what-two-commits-may-not-both-do) has the table of what meets what. The kinds below are found in the code by
the script that makes this page.
"""
GROUPS = {
    "Writing": (
        "append, overwrite, compaction, schema changes",
        {
            "BUCKET_COUNT_CHANGED": (
                "the rows were written for another number of buckets than the table or the partition has; in a merge, the two sides differ",
                "write the rows again; to change a partition, overwrite it",
            ),
            "PLACEMENT_CHANGED": (
                "an option that decides where rows lie (`bucket-key`, folder names) changed before the first commit",
                "open the table again and write again",
            ),
            "SCHEMA_CHANGED": (
                "others changed the schema in a way that your change or your rows do not fit",
                "look at the newest schema and do it again",
            ),
            "CHANGED_SINCE": (
                "an overwrite with `if_unchanged_since` found that its rows were changed after that snapshot, or cannot tell",
                "read the newest snapshot, compute again, write again",
            ),
            "FILE_GONE": (
                "a file that was to be removed or brought back is not live any more: it was compacted, overwritten or cleaned away",
                "plan again; a rollback needs another moment",
            ),
            "FILE_ADDED_TWICE": (
                "the files are in the table already: this commit was made before",
                "nothing is left to do",
            ),
            "ORDER_CHANGED": (
                "in a queue table, files no longer follow each other as they did, so order could not be kept",
                "plan again; for a rollback or a replacement, run a full compaction first",
            ),
            "FENCE_CROSSED": (
                "a compaction put files together that a merge, which began since, has to keep apart",
                "plan again; the next compaction does so by itself",
            ),
            "TABLE_REPLACED": (
                "the table was dropped and created again while you were writing",
                "open the table again",
            ),
            "BRANCH_REPLACED": (
                "the newest snapshot was made on another branch: another engine moved it there",
                "compare the two branches; `anabranch verify` says what is missing",
            ),
            "FILES_CLEANED_AWAY": (
                "files of this commit were removed as orphans, because it took longer than the age to spare",
                "write again; clean orphans with an age above the longest write",
            ),
            "FILES_LET_GO": (
                "the commit took so long that the tag which held the files it brings back was removed",
                "do it again",
            ),
            "NO_SNAPSHOT": ("a watermark cannot be reset in a table without snapshots", "write to it first"),
        },
    ),
    "Merging": (
        "`merge_branch`; those of a partition can be resolved with `ours` or `theirs`",
        {
            "APPEND_VS_OVERWRITE": (
                "the branch appended to a partition that main overwrote",
                "choose a side for the partition",
            ),
            "OVERWRITE_VS_CHANGE": (
                "the branch overwrote a partition that main changed",
                "choose a side for the partition",
            ),
            "HISTORY_GAP": (
                "the snapshots that tell what was done in the partition have expired without a record, as where another engine expires them",
                "choose a side for the partition",
            ),
            "MIXED_COMPACTION": (
                "another engine compacted rows that main has together with rows that it lacks",
                "choose a side, or overwrite the partition on the branch",
            ),
            "FOREIGN_MERGE": (
                "rows of the branch came to main by other means: another engine's fast-forward, or a merge of another branch that had taken them while it was main",
                "choose a side for the partition",
            ),
            "SCHEMA_REWRITE_NEEDED": (
                "files were written with columns that no version of main's schema describes",
                "give the branch main's names and types of columns, compact it fully, then merge",
            ),
            "DUPLICATE_SOURCE_RANGE": (
                "jobs on both sides read the same events: merged, they would be there twice",
                "replace main instead, or merge with `allow_source_overlap=True`",
            ),
            "NOT_DESCENDED": (
                "what the branch began with is not in main's history any more",
                "make a new branch and bring the rows there",
            ),
            "HISTORY_REWRITTEN": (
                "the branch was rolled back for good to before what main took of it",
                "make a new branch",
            ),
            "RENAME_CLASH": ("a column was renamed differently on both sides", "give it one name on both"),
            "TYPE_CLASH": (
                "a column was widened to types of which neither holds the other",
                "give it one type on both",
            ),
            "NAME_CLASH": ("both sides added different columns of one name", "rename one of them"),
            "DROP_VS_CHANGE": (
                "a column was dropped on one side and changed, or needed, on the other",
                "drop or keep it on both",
            ),
            "NOT_NULL_CLASH": (
                "a column forbids nulls on one side while the other may hold some",
                "allow nulls",
            ),
            "OPTION_CLASH": (
                "an option, a default or the watermark has other values on both sides",
                "set the same value on both",
            ),
            "PARTITION_CLASH": ("the sides are partitioned differently", "copy the rows"),
            "BUCKET_CLASH": (
                "the sides have other buckets",
                "set the same option on both and overwrite what differs",
            ),
            "FIELD_ID_CLASH": (
                "two columns have the same number, because an engine that does not know branches added one",
                "drop one of them and overwrite what was written with it",
            ),
            "SCHEMA_CLASH": ("the merged schema would not be valid; the message says why", "change one side"),
        },
    ),
    "Replacing main": (
        "`replace_main_branch`, `cascade`, `correct`; `force` goes on in spite of some",
        {
            "MAIN_MOVED": (
                "main is not at the snapshot that `expect_main` names",
                "look at what was committed, then replace again",
            ),
            "CORRECTION_DROPPED": (
                "somebody else corrected main since the branch was made, or was main, and the branch lacks it",
                "branch from main as it is now, or merge",
            ),
            "FOREIGN_WRITER": (
                "another engine writes to main and does not know which branch is main",
                'replace with `mode="commit"`, or stop that engine',
            ),
            "TAG_CLASH": (
                "a tag of main's history has a name that the branch gave to something else",
                "rename one of them",
            ),
            "TOO_FAR_BEHIND": (
                "the branch did not catch up with main in the time given by `wait`",
                "see that its job runs; wait longer",
            ),
            "ONLY_ON_MAIN": (
                "main has commits that will not come to the branch by themselves, such as a nightly backfill",
                "bring them over as the hint says, or drop them with `force`",
            ),
            "POSITIONS_UNKNOWN": (
                "commits do not say what they read, so it is not known when the branch has caught up",
                "look yourself, then replace without `wait`",
            ),
            "NOT_PASSED": (
                "in a group of tables, the check of one table failed; the message says why",
                "see the message",
            ),
            "NOT_AUDITED": (
                "the branch has changed since its last audit, or never had one",
                "run the audit again",
            ),
            "AUDIT_FAILED": (
                "the newest audit of the branch failed",
                "correct the branch and run the audit again",
            ),
        },
    ),
    "Rolling back": (
        "`rollback`, all but `TARGET_NOT_WHOLE` only with `destructive=True`; what still refers to removed snapshots is listed in `error.conflicts` as well",
        {
            "NOT_IN_HISTORY": (
                "the moment is not part of the branch's history",
                "roll back without `destructive`",
            ),
            "TARGET_NOT_WHOLE": (
                "files of the moment are gone, as another engine's expiry takes them",
                "roll back to a newer moment; `verify` tells what is damaged",
            ),
            "EXPIRY_UNDERWAY": (
                "the moment or snapshots after it are expiring: none can be the newest or be numbered anew yet",
                "wait for the expiry (one that died counts for a week), or roll back without `destructive`",
            ),
            "FORMER_MAIN_KEPT": (
                "a main that was replaced, and is kept, began in what would be removed",
                "wait until `branch.replaced-main.time-retained` is over, or roll back without `destructive`",
            ),
            "BEFORE_REPLACEMENT": (
                "the moment is before main was replaced: that history lies with what was main then",
                "roll back without `destructive`",
            ),
            "PAST_OF_MAIN": (
                "on a branch that was main: what would be removed belongs to the history of main",
                "roll back without `destructive`",
            ),
            "HISTORY_MOVED": ("the table was changed while it was looked at", "stop the writers and repeat"),
        },
    ),
}


def page() -> str:
    """The page's text. Raises `AssertionError` where code and explanations differ."""
    explained = [kind for _, kinds in GROUPS.values() for kind in kinds]
    assert len(explained) == len(set(explained)), "a kind is explained twice"
    assert set(explained) == in_code(), set(explained) ^ in_code()
    return HEADER + "".join(_group(title, *of) for title, of in GROUPS.items())


def in_code() -> set[str]:
    """Kinds of conflicts that the code names."""
    found = set()
    for room in ROOMS:
        for file in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and re.fullmatch(r"[A-Z]+(_[A-Z]+)+", text):
                    found.add(text)
    return found - NO_CONFLICTS


def _group(title, what, kinds) -> str:
    rows = "".join(f"| `{kind}` | {meaning} | {todo} |\n" for kind, (meaning, todo) in sorted(kinds.items()))
    return f"\n## {title}\n\n{what[0].upper()}{what[1:]}.\n\n| kind | meaning | what to do |\n|---|---|---|\n{rows}"
