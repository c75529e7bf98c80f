"""Classifies a job's failure: whose error it is, in a few words, and whether a restart may help.

Spark hands over the errors of its Python processes as text, somewhere in the middle of traces of two languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from anabranch import errors
from anabranch.errors import (
    AnabranchError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptTableError,
    InvalidInputError,
    NotFoundError,
    PositionLostError,
    SealedBranchError,
    SourceReplacedError,
    StorageError,
    UnsupportedFeatureError,
    WarehouseMissingError,
)
from anabranch.spark.jvm.raised import raised_as

Verdict = Literal["again", "passing", "fenced", "replaced", "final"]
"""``passing``: nothing is wrong with the job; it may go on once the store, the network or the machine is well again.
``again``: it may be the job, so it is tried a limited number of times."""

_FINAL = (
    InvalidInputError,
    UnsupportedFeatureError,
    CorruptTableError,
    CommitConflictError,
    PositionLostError,
)
_NEVER_RIGHT = frozenset({"AnalysisException", "ParseException"})
"""Spark errors that would occur again: the statement or the function is invalid."""
_PASSING = re.compile(
    r"Python worker (?:failed to connect back|exited unexpectedly)|ExecutorLostFailure|No space left on device"
    r"|Disk quota exceeded|Read-only file system|Transport endpoint is not connected|Stale file handle"
    r"|Input/output error|Too many open files|Cannot allocate memory|No route to host|Network is unreachable"
    r"|Connection (?:refused|reset|timed out)|Temporary failure in name resolution|UnknownHostException"
    r"|SocketTimeoutException|FetchFailedException",
    re.IGNORECASE,
)
"""Troubles of machines and networks, in the words of the operating system, the JVM and Spark."""
_OURS = re.compile(
    r"^(?:[\w.]*: )*(?:anabranch\.[\w.]+\.)(?P<kind>\w+): (?P<message>[^\n]+)(?:\n  hint: (?P<hint>[^\n]+))?",
    re.MULTILINE,
)
_PYTHON = re.compile(
    r"^(?P<reason>(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)(?:: [^\n]+)?)$", re.MULTILINE
)
_CONDITION = re.compile(r"^\[(?P<condition>[A-Z_.0-9]+)\] (?P<text>.*?)(?: SQLSTATE: \w+;?)?$", re.DOTALL)
_TRACE = re.compile(r"\n\s*(?:'?[A-Z]\w+(?: |\[)|JVM stacktrace|\+- |\tat |=== )")


_HINTS = (
    (
        re.compile(r"Stream-stream \w+ join .* is not supported without a watermark"),
        (
            "Spark bounds such joins by event times of TIMESTAMP WITH LOCAL TIME ZONE only, with a watermark on both sides and both "
            "bounds in the condition: declare the event times so, as TIMESTAMP_LTZ(3), or use an inner join."
        ),
    ),
    (
        re.compile(r"EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE"),
        (
            "Spark's withWatermark takes TIMESTAMP WITH LOCAL TIME ZONE only: declare the event time so, or give the table "
            "WATERMARK FOR and leave withWatermark out, which takes both kinds."
        ),
    ),
    (
        re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE),
        "free some space where the checkpoint is, or where Spark keeps its temporary files (spark.local.dir); the job goes on by itself.",
    ),
    (
        re.compile(r"Read-only file system", re.IGNORECASE),
        "mount the disk of the checkpoint or of Spark's temporary files (spark.local.dir) for writing; the job goes on by itself.",
    ),
)
"""What to do about errors of Spark and of the machine that do not say so."""


class JobFailedError(AnabranchError):
    """A job failed, for a reason other than our errors."""


def as_ours(error: BaseException) -> AnabranchError:
    """Return our error that an error is, wraps or was caused by; otherwise a `JobFailedError` with its text."""
    for one in _with_causes(error):
        if isinstance(one, AnabranchError):
            return one
        found = next(iter(reversed(list(_OURS.finditer(str(one))))), None)
        if found is not None:
            kind = getattr(errors, found["kind"], None) if found["kind"] in errors.__all__ else None
            return _of_kind(kind, found["message"], found["hint"])
        raised = raised_as(one) if isinstance(one, Exception) else None
        if raised is not None:  # it went through the JVM of this process, which keeps only its text
            return raised
    texts = [str(one) for one in _with_causes(error)]
    hint = next((hint for pattern, hint in _HINTS if any(map(pattern.search, texts))), None)
    return JobFailedError(_reason(error, str(error)), hint=hint)


def hint_of(error: AnabranchError, job: str, sink: str) -> str | None:
    """Return what to do about a failure of a job, in commands of jobs."""
    if not isinstance(error, PositionLostError):
        return error.hint
    return (
        f"which of the rows that are there now the job had read, nobody can tell any more. To have each of them once in '{sink}', "
        f"empty it (in Python: lake.table('{sink}').overwrite([])) and run the job with --renew {job}: it makes all rows again. "
        f"--start-anew {job} with --renew {job} does so without emptying, and doubles what was written. `run` keeps a consumer from "
        "its first start on, so that it does not happen again; `anabranch consumers` shows it."
    )


def verdict(error: BaseException, *, has_run: bool) -> Verdict:
    """Return whether a failed job should be started again.

    Args:
        error: result of `as_ours`, or the error itself.
        has_run: whether the job has run before: what is not there when it first starts was declared wrongly.
    """
    ours = as_ours(error)
    if isinstance(ours, SealedBranchError):
        return "fenced"
    if isinstance(ours, SourceReplacedError):
        return "replaced"
    if isinstance(ours, CommitOutcomeUnknownError):
        return "again"  # the sink looks whether it happened
    if isinstance(ours, _FINAL) or type(error).__name__ in _NEVER_RIGHT:
        return "final"
    if _may_pass(ours, error, has_run=has_run):
        return "passing"
    return "again" if has_run or ours.retryable else "final"


def _may_pass(ours: AnabranchError, error: BaseException, *, has_run: bool) -> bool:
    if isinstance(ours, StorageError):
        return has_run or ours.retryable or ours.out_of_space
    if isinstance(ours, NotFoundError):
        # It was there before, so a disk or a mount is away; and no job runs without a warehouse that was there.
        return has_run or isinstance(ours, WarehouseMissingError)
    if not isinstance(ours, JobFailedError):
        return False
    return any(_PASSING.search(str(one)) for one in _with_causes(error))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes: if a sink also fails to give up a batch, Spark itself says no more."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        yield one
        seen.append(one)
        # Errors that PySpark takes over from the JVM have their cause here.
        one = getattr(one, "_cause", None) or one.__cause__


def _of_kind(kind: type[AnabranchError] | None, message: str, hint: str | None) -> AnabranchError:
    made = (kind or AnabranchError).__new__(kind or AnabranchError)
    AnabranchError.__init__(made, message, hint=hint, retryable=kind is errors.StorageError)
    return made


def _reason(error: BaseException, text: str) -> str:
    """Return the reason for a reader who knows neither Spark nor its traces."""
    raised = _PYTHON.findall(text)
    if raised:
        return str(raised[-1])
    said = getattr(error, "getMessage", lambda: None)() or text
    short = _TRACE.split(str(said), maxsplit=1)[0].strip()
    condition = _CONDITION.match(short)
    what = condition["text"].strip() if condition is not None else short
    return what or type(error).__name__
