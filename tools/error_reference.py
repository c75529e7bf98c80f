"""Writes docs/errors.md from the exception tree: what each error means, and what to do next."""

import inspect

from anabranch import errors
from anabranch.cli.main import _exit_code

PATH = "errors.md"
HEADER = """<!-- blocks: a drawing, made from the code; tests/project/test_docs.py compares it with that -->
# Errors

Every error is an `AnabranchError` and is exported from `anabranch`. This page is made from the code.

- `error.message` says what was asked and what was found. `error.hint` says what to do next. `str(error)` shows both.
- `error.retryable` says whether the same call may succeed later without any change.
- Operations that a hint names are spelled as Python calls them (`replace_tag`). The command line shows its own verbs (`replace-tag`).
- On the command line an error is printed on standard error and ends the program with the code below; with `--json` it is one JSON
  object. Code 0 is success, 1 a failure, 2 wrong usage, 3 a conflict; 4 and
  5 are of [`run`](jobs.md#running).

```
AnabranchError
"""
TABLE = """```

| error | meaning | what to do | files of a write that failed | exit code |
|---|---|---|---|---|
"""
NONE, REMOVED = "none were written", "removed"
NEXT = {
    "AnabranchError": ("catch it to catch all of these", "see the error", True),
    "InvalidInputError": ("change what you passed; the hint names the valid values", NONE, False),
    "OptionError": (
        "correct the option; the hint names the nearest one. All are in [Options](options.md)",
        NONE,
        False,
    ),
    "SourceReplacedError": (
        "choose a value of [`scan.on-replace`](branches.md#replacing-main) and start the query again from its checkpoint",
        NONE,
        False,
    ),
    "SchemaError": (
        'correct the column or the value that is named; or append with `schema="merge"`',
        NONE,
        False,
    ),
    "PredicateError": ("correct the filter; see [Reading](tables.md#reading)", NONE, False),
    "SqlError": ("correct the statement; [SQL on Spark](spark-sql.md) lists what there is", NONE, False),
    "InvalidNameError": (
        "choose another name; the message says which characters are not allowed",
        NONE,
        False,
    ),
    "NotFoundError": ("check the name; the hint lists what there is", NONE, False),
    "WarehouseMissingError": (
        "check the path, or bring its disk or mount back; jobs that are running wait for it",
        NONE,
        False,
    ),
    "PositionLostError": (
        "start with a new checkpoint where the hint says; a consumer keeps unread snapshots from expiring",
        NONE,
        False,
    ),
    "AlreadyExistsError": (
        "choose another name, or pass `if_not_exists=True` where there is such an option",
        NONE,
        False,
    ),
    "CommitError": ("see the four errors below", "see below", True),
    "CommitConflictError": (
        "look at `error.conflicts`; [Conflicts](reference/conflicts.md) says what each kind means",
        REMOVED,
        False,
    ),
    "CommitRetriesExhaustedError": (
        "look for a store that is slow or for far too many writers; raise `commit.max-retries`",
        REMOVED,
        False,
    ),
    "CommitOutcomeUnknownError": (
        "look whether the newest snapshots hold your rows before you write them again; streams find out by themselves",
        "kept, because the table may need them",
        False,
    ),
    "SealedBranchError": (
        "another branch is main now: start the job with the corrected code, or set `sink.on-replace` to `follow`",
        REMOVED,
        False,
    ),
    "JobTakenError": (
        "let that process run it, or add `--take-over`; see [Jobs](jobs.md#running)",
        NONE,
        False,
    ),
    "CorruptTableError": ("run [`anabranch verify`](repair.md), then `anabranch repair`", NONE, False),
    "UnsupportedFeatureError": (
        "use the engine that made the table, or upgrade Anabranch; `error.feature` names the feature, and [The format](format.md#what-is-refused) lists all",
        NONE,
        False,
    ),
    "StorageError": (
        "follow the hint: it names credentials, region, rights or network; `anabranch doctor` tries the store",
        "removed where possible",
        False,
    ),
    "UnreadableFileError": (
        "remove the link that leads in a circle, or give the file its rights; then as for `CorruptTableError`",
        NONE,
        False,
    ),
}
FOOTER = """
## Codes inside messages

Some messages begin with a code in capitals that scripts can rely on:

| code | error | meaning |
|---|---|---|
| `AMBIGUOUS_SNAPSHOT` | `InvalidInputError` | main was replaced, and two of its snapshots have this number; write `main.snapshot.57` or `main@1.snapshot.57` |
| `HISTORY_REWRITTEN` | `PositionLostError` of a stream that reads, `CommitOutcomeUnknownError` of one that writes | history was rolled back or replaced behind the stream; the hint says how to start it anew |
| `MERGE_OUTCOME_UNKNOWN` | `CommitOutcomeUnknownError` | a merge died and another engine expired the snapshots that would tell whether it was made |
| `STILL_REFERRED_TO` | `CommitConflictError` | a destructive rollback would remove what tags, savepoints, branches or consumers still need; they are listed |

Codes of `error.conflicts` are on [Conflicts](reference/conflicts.md).
"""


def page() -> str:
    """The page's text."""
    found = list(_tree(errors.AnabranchError))
    drawn = "".join(f"{'  ' * depth}{kind.__name__}\n" for depth, kind in found[1:])
    rows = "".join(dict.fromkeys(_row(kind) for _, kind in found[1:]))  # one may be of two kinds
    return HEADER + drawn.replace("\n", "\n") + TABLE + rows + FOOTER


def _tree(kind, depth=0):
    yield depth, kind
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _tree(child, depth + 1)


def _row(kind) -> str:
    what, files, is_abstract = NEXT[kind.__name__]
    meaning = inspect.getdoc(kind).splitlines()[0].rstrip(".")
    code = "" if is_abstract else str(_exit_code(kind.__new__(kind)))
    return f"| `{kind.__name__}` | {meaning} | {what} | {files} | {code} |\n"
