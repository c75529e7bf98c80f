"""Explains why an object store was not reached, or refused, and how to fix it.

The client hides the causes of failed connections in the debug form of its errors, and servers name theirs by codes.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


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
        "where the server wants TLS, write the endpoint with https://.",
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
