"""Translates obstore's errors into Anabranch's; the only place that parses their texts."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Final

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from anabranch.errors import AnabranchError, InvalidNameError, NotFoundError, StorageError
from anabranch.storage.object_causes import cause_of
from anabranch.storage.os_errors import Deed

# All that obstore raises: besides its own errors, FileNotFoundError for a missing object and ValueError
# for a name that it cannot send.
OBJECT_ERRORS: Final = (BaseError, OSError, ValueError)


class translated_object:  # noqa: N801 - read as a verb: with translated_object("read", path)
    """Turns obstore's errors of the block into ours, naming `path`."""

    __slots__ = ("_deed", "_path")

    def __init__(self, deed: Deed, path: str) -> None:
        self._deed: Deed = deed
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OBJECT_ERRORS) and not isinstance(error, AnabranchError):
            # Without the cause: its text holds signed URLs.
            raise translate_object(error, self._deed, self._path) from None


def translate_object(error: Exception, deed: Deed, path: str) -> AnabranchError:
    """The error to raise for what went wrong when `deed` was done to `path`."""
    text = reason(error)
    message = f"cannot {deed} {path}: {text}"
    cause = cause_of(error, text)
    hint = None if cause is None else cause.hint
    if cause is not None:
        message = f"cannot {deed} {path}: {cause.text}{_told(text)}"
    if isinstance(error, FileNotFoundError):
        is_object = cause is None and deed == "read"
        return NotFoundError(f"{path} does not exist") if is_object else StorageError(message, hint=hint)
    if isinstance(error, ValueError):
        return InvalidNameError(message)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StorageError(message, hint=hint)
    passing = _CLIENT_ERROR.search(text) is None
    unknown = passing and deed not in {"read", "list"}
    return StorageError(message, hint=hint, retryable=passing, outcome_unknown=unknown)


def _told(text: str) -> str:
    """Return the server's message, if any, without the client's context."""
    said = text.rpartition(" - ")[2].removeprefix("Server returned non-2xx status code: ")
    return "" if said.startswith("HTTP error") else f" - {said}"


def is_refusal(error: Exception) -> bool:
    """Whether the store understood and refused, so that nothing was changed."""
    refusals = (PermissionDeniedError, UnauthenticatedError, FileNotFoundError, ValueError)
    return isinstance(error, refusals) or _CLIENT_ERROR.search(reason(error)) is not None


def lacks_conditional_writes(error: Exception) -> bool:
    """Whether the store reports that it does not support conditional writes."""
    return "501 Not Implemented" in str(error)


def reason(error: Exception) -> str:
    """Summarize an error in one line, without the parts of URLs that hold signatures."""
    text = str(error).partition("\n\nDebug source")[0]
    head, xml, body = text.partition("<?xml")
    if xml:
        told = [match[1] for match in _TOLD.finditer(body)]
        text = head.rstrip(": \n") + (f" ({': '.join(told)})" if told else "")
    return _QUERY.sub("?...", " ".join(text.split()))


_TOLD: Final = re.compile(r"<(?:Code|Message)>([^<]*)<")
_QUERY: Final = re.compile(r"\?[^\s)]*=[^\s)]*")
# Time-outs (408), conflicts (409) and too many requests (429) may pass.
_CLIENT_ERROR: Final = re.compile(r"status code: 4(?!08|09|29)\d\d ")
