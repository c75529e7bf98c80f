"""Translates obstore's errors into Anabranch's, and explains why a store was not reached, or refused, and how to fix it.

The only place that parses the texts of that client. It hides the causes of failed connections in the debug form of its
errors, and servers name theirs by codes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from anabranch.errors import AnabranchError, InvalidNameError, NotFoundError, StorageError
from anabranch.storage.os_errors import Deed, Translated

# All that obstore raises: besides its own errors, FileNotFoundError for a missing object and ValueError
# for a name that it cannot send.
OBJECT_ERRORS: Final = (BaseError, OSError, ValueError)


class translated_object(Translated):  # noqa: N801 - read as a verb: with translated_object("read", path)
    """Turns obstore's errors of the block into ours, naming `path`."""

    __slots__ = ()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
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


# Explains why an object store was not reached, or refused, and how to fix it.
#
# The client hides the causes of failed connections in the debug form of its errors, and servers name theirs by codes.


class Cause(NamedTuple):
    """An explained problem and its remedy."""

    text: str
    hint: str


_KEYS = "(s3.access-key and s3.secret-key, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile)"
_CAUSES: Final = (
    (
        r"NoSuchBucket|ContainerNotFound",
        "there is no such bucket",
        "create the bucket first, or correct its name in the URL. A path in the endpoint (s3.endpoint) comes before the bucket.",
    ),
    (
        r"SignatureDoesNotMatch",
        "the secret key does not belong to the access key",
        f"check the credentials {_KEYS}; an endpoint behind a proxy that changes requests looks the same.",
    ),
    (r"InvalidAccessKeyId", "the store does not know the access key", f"check the credentials {_KEYS}."),
    (
        r"ExpiredToken|TokenRefreshRequired|The security token included in the request is expired",
        "the session token has expired",
        "get new temporary credentials; with single sign-on: aws sso login.",
    ),
    (
        r"\(InvalidToken|\(InvalidClientTokenId",
        "the session token is not valid",
        "it must be of the same credentials as the access key (s3.session-token, AWS_SESSION_TOKEN).",
    ),
    (
        r"RequestTimeTooSkewed|RequestExpired",
        "the clock of this machine is too far from the store's",
        "set the clock of this machine, by NTP say.",
    ),
    (
        r"region '[^']*' is wrong; expecting '(?P<name>[^']+)'",
        "the bucket lies in the region {name}",
        "set s3.region={name}, or AWS_REGION.",
    ),
    (
        r"AuthorizationHeaderMalformed|PermanentRedirect|redirect without LOCATION|IllegalLocationConstraint",
        "the bucket lies in another region, or at another endpoint",
        "set s3.region, and s3.endpoint if the store is not Amazon's.",
    ),
    (
        r"SlowDown|TooManyRequests|\b429\b|ServerBusy|503 Service Unavailable",
        "the store is overloaded, or asks for fewer requests",
        "try again later; s3.retries and s3.retry-timeout say how long requests are repeated.",
    ),
    (
        r"InternalError|50[024] (Internal Server Error|Bad Gateway|Gateway Time)",
        "the store has a trouble of its own",
        "try again later, or ask who runs the store; s3.retries and s3.retry-timeout say how long requests are repeated.",
    ),
    (
        r"ConnectionRefused",
        "nobody listens at {place}",
        "check the endpoint (s3.endpoint), and that the server runs.",
    ),
    (
        r"\"dns error\"|failed to lookup address",
        "there is no host of the name {place}",
        "check the endpoint (s3.endpoint); a bucket in front of the host's name comes from s3.path-style-access=false.",
    ),
    (
        r"InvalidContentType|wrong version number",
        "{place} does not speak TLS",
        "write the endpoint with http:// if it is meant to be without TLS.",
    ),
    (
        r"InvalidCertificate|UnknownIssuer",
        "the certificate of {place} is not trusted",
        "name it as the certificate does, and let the machine trust who issued it (SSL_CERT_FILE).",
    ),
    (
        r"TimedOut|deadline has elapsed",
        "{place} does not answer in time",
        "check the endpoint and the network (proxy, firewall); s3.connect-timeout and s3.timeout say how long to wait.",
    ),
    (
        r"ConnectionReset|IncompleteMessage|UnexpectedEof",
        "{place} breaks the connection off",
        "try again later: it may be starting. Where it is always so, and the server wants TLS, write the endpoint with https://.",
    ),
    (
        r"403 Forbidden|AccessDenied|401 Unauthorized",
        "the store does not allow it",
        "check what the credentials may do: list the bucket, and read, write and delete below the warehouse.",
    ),
)
_PREFIXES: Final = {"MicrosoftAzure": "az.", "GCS": "gs."}
"""Of options, by what the client calls the kind of store."""
_PLACE: Final = re.compile(r"(?:GET|PUT|HEAD|POST|DELETE) https?://([^/\s?]+)")


_CREDENTIALS: Final = Cause(
    "no credentials were found",
    "give them as options, like s3.access-key and s3.secret-key, in the environment, like AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or as a profile of the AWS configuration, which takes boto3: pip install 'anabranch[aws]'.",
)
_OF_MACHINES: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""Where a cloud's machines find their own credentials: asked only when nothing else gave any."""


def cause_of(error: Exception, text: str) -> Cause | None:
    """Return the cause behind an error of the store's client; None if not known.

    Args:
        error: the error.
        text: what it says, in one line and without the answer's other parts.
    """
    found = _PLACE.search(text)
    names = {"place": "the store" if found is None else found[1]}
    if names["place"] in _OF_MACHINES:
        return _CREDENTIALS
    said = text.rpartition(" - ")[2]  # never what was asked for: an object may have any name
    if said.startswith("HTTP error"):
        said = str(error).partition("\n\nDebug source")[2].partition("inner:")[2]
    for pattern, told, hint in _CAUSES:
        match = re.search(pattern, said)
        if match is not None:
            names |= match.groupdict()
            prefix = next((ours for client, ours in _PREFIXES.items() if client in text), "s3.")
            return Cause(told.format(**names), hint.format(**names).replace("s3.", prefix))
    return None
