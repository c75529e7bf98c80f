"""What a failure of a job means: whose error it is, in a few words, and whether starting again may help.

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
    SealedBranchError,
    SourceReplacedError,
    UnsupportedFeatureError,
)

Verdict = Literal["again", "fenced", "replaced", "final"]

_FINAL = (InvalidInputError, UnsupportedFeatureError, CorruptTableError, CommitConflictError)
_NEVER_RIGHT = frozenset({"AnalysisException", "ParseException"})
"""Of Spark: the statement or the function will not be accepted next time either."""
_OURS = re.compile(
    r"^(?:[\w.]*: )*(?:anabranch\.[\w.]+\.)(?P<kind>\w+): (?P<message>[^\n]+)(?:\n  hint: (?P<hint>[^\n]+))?",
    re.MULTILINE,
)
_PYTHON = re.compile(
    r"^(?P<reason>(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt)(?:: [^\n]+)?)$", re.MULTILINE
)
_CONDITION = re.compile(r"^\[(?P<condition>[A-Z_.0-9]+)\] (?P<text>.*?)(?: SQLSTATE: \w+;?)?$", re.DOTALL)
_TRACE = re.compile(r"\n\s*(?:'?[A-Z]\w+(?: |\[)|JVM stacktrace|\+- |\tat |=== )")


class JobFailedError(AnabranchError):
    """A job failed, for a reason that is not one of ours."""


def as_ours(error: BaseException) -> AnabranchError:
    """The error of ours that an error is, tells of or was caused by; otherwise a `JobFailedError` with what it says."""
    for one in _with_causes(error):
        if isinstance(one, AnabranchError):
            return one
        found = next(iter(reversed(list(_OURS.finditer(str(one))))), None)
        if found is not None:
            kind = getattr(errors, found["kind"], None) if found["kind"] in errors.__all__ else None
            return _of_kind(kind, found["message"], found["hint"])
    return JobFailedError(_reason(error, str(error)))


def verdict(error: BaseException, *, has_run: bool) -> Verdict:
    """Whether a job that failed so is to be started again.

    Args:
        error: what `as_ours` gave, or the error itself.
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
    return "again" if has_run or ours.retryable else "final"


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what was behind it: where a sink cannot give up a batch either, Spark says no more itself."""
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
    """What somebody who knows neither Spark nor its traces wants to read."""
    raised = _PYTHON.findall(text)
    if raised:
        return str(raised[-1])
    said = getattr(error, "getMessage", lambda: None)() or text
    short = _TRACE.split(str(said), maxsplit=1)[0].strip()
    condition = _CONDITION.match(short)
    what = condition["text"].strip() if condition is not None else short
    return what or type(error).__name__
