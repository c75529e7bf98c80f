"""Every error Anabranch raises, in one tree.

* AnabranchError
  * InvalidInputError (ValueError): what the caller passed cannot be used; nothing was written
    * OptionError
    * SchemaError
    * PredicateError
    * SqlError
    * InvalidNameError
  * NotFoundError (LookupError)
    * PositionLostError: what a stream was to read next has expired, or its history was rewritten
    * WarehouseMissingError: there is no warehouse at the place
  * AlreadyExistsError
  * CommitError
    * CommitConflictError: another commit removed what this one builds on; nothing was published
    * CommitRetriesExhaustedError
    * CommitOutcomeUnknownError: the commit may have happened; its files must not be deleted
    * SealedBranchError
  * JobTakenError: another process runs the job or the correction
  * CorruptTableError: a file of the table has invalid content
  * UnsupportedFeatureError: the table uses something this version does not implement
  * StorageError: the store failed
    * UnreadableFileError (CorruptTableError): one file is there and cannot be opened

A message says what was asked, what was found and, in its hint, what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, Self, overload

__all__ = [
    "AlreadyExistsError",
    "AnabranchError",
    "CommitConflictError",
    "CommitError",
    "CommitOutcomeUnknownError",
    "CommitRetriesExhaustedError",
    "CorruptTableError",
    "InvalidInputError",
    "InvalidNameError",
    "JobTakenError",
    "NotFoundError",
    "OptionError",
    "PositionLostError",
    "PredicateError",
    "SchemaError",
    "SealedBranchError",
    "SourceReplacedError",
    "SqlError",
    "StorageError",
    "UnreadableFileError",
    "UnsupportedFeatureError",
    "WarehouseMissingError",
]


_MOST_TEXT = 4_000
"""Most characters of a message or a hint. Messages repeat the input, which may have a million characters."""


def shortened(text: str, most: int = _MOST_TEXT) -> str:
    """Shorten text to about so many characters: of a longer one, keep the beginning and the end."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]}... ({len(text) - most:,} characters left out) ...{text[-end:]}"


class AnabranchError(Exception):
    """Root of the tree. Long messages and hints are shortened in the middle.

    Args:
        message: what was asked and what was found.
        hint: what to do next, one sentence. Operations that it names stand in back-ticks, as Python calls them
            and without parentheses; the command line shows its own verbs instead.
        retryable: whether the same call may succeed later without any change.
    """

    def __init__(self, message: str, *, hint: str | None = None, retryable: bool = False) -> None:
        message = shortened(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else shortened(hint)
        self.retryable = retryable

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles errors between processes; the default would lose keyword-only arguments.
        return (_rebuild, (type(self), self.message, self.__dict__))

    @classmethod
    def _restore(cls, message: str, state: dict[str, Any]) -> Self:
        error = cls.__new__(cls)
        Exception.__init__(error, message)
        error.__dict__.update(state)
        return error


def _rebuild(cls: type[AnabranchError], message: str, state: dict[str, Any]) -> AnabranchError:
    return cls._restore(message, state)


class InvalidInputError(AnabranchError, ValueError):
    """The caller passed something that cannot be used; nothing was written."""


class OptionError(InvalidInputError):
    """An option is unknown, malformed or contradicts another one."""


class SourceReplacedError(OptionError):
    """Main of a table that a stream reads was replaced, and `scan.on-replace` does not say how to continue."""


class SchemaError(InvalidInputError):
    """A schema, or data that must fit one, is not acceptable."""


class PredicateError(InvalidInputError):
    """A filter cannot be parsed or does not fit the schema."""


class SqlError(InvalidInputError):
    """A statement cannot be parsed or is not supported."""


class InvalidNameError(InvalidInputError):
    """A database, table, column, tag or branch name is not acceptable."""


class NotFoundError(AnabranchError, LookupError):
    """The named database, table, snapshot, tag, branch or file does not exist.

    Attributes:
        is_folder: True where a folder has the name of the file.
    """

    is_folder = False


class PositionLostError(NotFoundError):
    """What a stream or a job was to read next has expired, or history was rewritten: no later attempt can go on there."""


class WarehouseMissingError(NotFoundError):
    """There is no warehouse at the place, or not just now: its disk or mount may be away."""


class AlreadyExistsError(AnabranchError):
    """Something of that name already exists."""


class CommitError(AnabranchError):
    """A commit was not acknowledged."""


class CommitConflictError(CommitError):
    """Another commit removed or replaced what this one builds on; nothing was published.

    Attributes:
        conflicts: typed values, one per conflict found.
    """

    def __init__(self, message: str, *, conflicts: tuple[Any, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint, retryable=False)
        self.conflicts = conflicts


class CommitRetriesExhaustedError(CommitError):
    """The retry budget ran out in rounds in which no writer made progress; nothing was published."""


class CommitOutcomeUnknownError(CommitError):
    """The store did not say whether the commit happened. Files of the commit must not be deleted."""


class SealedBranchError(CommitError):
    """The branch was sealed because another branch replaces it."""


class JobTakenError(AnabranchError):
    """Another process runs the job, or carries out the correction; nothing was started."""


class CorruptTableError(AnabranchError):
    """A file of the table has invalid content; names the file and what was expected."""

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        super().__init__(message if path is None else f"{path}: {message}", hint=hint)
        self.path = path


class UnsupportedFeatureError(AnabranchError):
    """The table uses a feature that this version does not implement.

    Attributes:
        feature: short stable name of the feature, for example ``"primary-key"``.
    """

    def __init__(
        self, message: str, *, feature: str, path: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message if path is None else f"{path}: {message}", hint=hint)
        self.feature = feature
        self.path = path


class StorageError(AnabranchError):
    """The store failed to do what was asked.

    Attributes:
        outcome_unknown: True when a write may have happened although it was not acknowledged.
        out_of_space: True when there is no room for what was to be written.
    """

    out_of_space = False

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        retryable: bool = False,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message, hint=hint, retryable=retryable)
        self.outcome_unknown = outcome_unknown


class UnreadableFileError(CorruptTableError, StorageError):
    """A file that is there cannot be opened, such as a link in a circle or a file without rights: as good as damaged."""

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        StorageError.__init__(self, message, hint=hint)
        self.path = path


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The one of `known` that was probably meant, whatever its capitals; None if none is near."""
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


@overload
def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str: ...


@overload
def did_you_mean(name: str, known: Iterable[str], otherwise: None = None) -> str | None: ...


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """The hint of an error about an unknown name: the one that was probably meant, or else `otherwise`."""
    near = nearest(name, known)
    return otherwise if near is None else f"did you mean '{near}'?"
