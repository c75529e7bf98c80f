"""Options of object stores, each declared once, and how obstore's clients are made from them.

A key is the prefix of its kind of store and the option's name, ``s3.access-key``. The spellings of Paimon
and Hadoop are understood too: other prefixes (``fs.s3a.``), dots or capitals where we write dashes.
Keys of other prefixes belong to somebody else and are not looked at; an unknown key of the store's own
prefix is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from anabranch.errors import OptionError
from anabranch.storage.aws_profiles import profile_credentials
from anabranch.storage.object_errors import reason


@dataclass(frozen=True, slots=True)
class StoreOption:
    """One option of one kind of store."""

    name: str
    meaning: str
    default: str | None = None
    setting: str | None = None  # obstore's name, where the value is passed on as it is
    spellings: tuple[str, ...] = ()  # other names, without dashes and in lower case
    secret: bool = False
    identity: bool = False  # whoever gives it says who is asking


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of object store: how its URLs and options are spelled."""

    title: str
    schemes: tuple[str, ...]
    prefixes: tuple[str, ...]  # of option keys, ours first
    options: tuple[StoreOption, ...]


@dataclass(frozen=True, slots=True)
class Clients:
    """Two clients of one bucket.

    `patient` repeats what fails in passing. `single` asks once: a conditional write repeated unseen would
    find its own object and report it as a competitor's.
    """

    patient: ObjectStore
    single: ObjectStore


_COMMON: Final = (
    StoreOption("connect-timeout", "longest wait for a connection", "5 s"),
    StoreOption("timeout", "longest wait for the answer to one request, its content included", "60 s"),
    StoreOption("retries", "how often a request that failed in passing is repeated", "5"),
    StoreOption("retry-timeout", "how long requests are repeated at most", "60 s"),
    StoreOption("anonymous", "send no credentials, for public buckets", "false", identity=True),
)

S3: Final = StoreKind(
    "Amazon S3 and stores that speak its protocol",
    schemes=("s3", "s3a"),
    prefixes=("s3.", "s3a.", "fs.s3a.", "fs.s3."),
    options=(
        StoreOption("endpoint", "URL of the server if it is not Amazon's"),
        StoreOption("region", "region of the bucket", "us-east-1", "region", ("endpointregion",)),
        StoreOption("access-key", "name of the key", None, "access_key_id", ("accesskeyid",), identity=True),
        StoreOption(
            "secret-key",
            "the key itself",
            None,
            "secret_access_key",
            ("secretaccesskey", "accesskeysecret"),
            secret=True,
        ),
        StoreOption(
            "session-token", "token of temporary keys", None, "session_token", ("securitytoken",), secret=True
        ),
        StoreOption(
            "profile",
            "profile of the AWS configuration, with single sign-on and roles; needs boto3. Else AWS_PROFILE says it",
            identity=True,
        ),
        StoreOption("path-style-access", "name the bucket in the path, not in the host name", "true"),
        StoreOption("bulk-delete", "remove many objects in one request; not every server can", "true"),
        *_COMMON,
    ),
)

GCS: Final = StoreKind(
    "Google Cloud Storage",
    schemes=("gs",),
    prefixes=("gs.",),
    options=(
        StoreOption("endpoint", "URL of the server if it is not Google's"),
        StoreOption(
            "service-account-path", "file of the service account", None, "service_account", identity=True
        ),
        StoreOption(
            "service-account-key",
            "content of that file",
            None,
            "service_account_key",
            secret=True,
            identity=True,
        ),
        StoreOption(
            "bearer-token", "OAuth token, used as it is", None, "bearer_token", secret=True, identity=True
        ),
        *_COMMON,
    ),
)

AZURE: Final = StoreKind(
    "Azure Blob Storage",
    schemes=("az", "azure", "abfs", "abfss"),
    prefixes=("az.", "azure."),
    options=(
        StoreOption("endpoint", "URL of the server if it is not Microsoft's"),
        StoreOption("account-name", "storage account", None, "account_name"),
        StoreOption(
            "account-key", "shared key of the account", None, "account_key", secret=True, identity=True
        ),
        StoreOption("sas-token", "shared access signature", None, "sas_key", secret=True, identity=True),
        StoreOption("tenant-id", "tenant of a service principal", None, "tenant_id"),
        StoreOption("client-id", "service principal", None, "client_id", identity=True),
        StoreOption("client-secret", "its secret", None, "client_secret", secret=True),
        *_COMMON,
    ),
)

KINDS: Final = (S3, GCS, AZURE)


def own_options(kind: StoreKind, options: Mapping[str, str]) -> dict[str, str]:
    """The options meant for this kind of store, by their names here. Raises `OptionError`."""
    by_spelling = {
        spelling: option.name
        for option in kind.options
        for spelling in (option.name.replace("-", ""), *option.spellings)
    }
    chosen: dict[str, str] = {}
    for key, value in options.items():
        prefix = next((prefix for prefix in kind.prefixes if key.startswith(prefix)), None)
        if prefix is None:
            continue
        name = by_spelling.get(re.sub(r"[-._]", "", key.removeprefix(prefix)).lower())
        if name is None:
            known = ", ".join(kind.prefixes[0] + option.name for option in kind.options)
            raise OptionError(f"{key} is no option of {kind.title}", hint=f"There are: {known}.")
        if chosen.get(name, value) != value:
            raise OptionError(f"{key} says something else than another spelling of {kind.prefixes[0]}{name}")
        chosen[name] = value
    return chosen


def make_clients(kind: StoreKind, bucket: str, options: Mapping[str, str]) -> Clients:
    """Clients for a bucket, nothing asked of the server yet. Raises `OptionError`.

    Args:
        kind: one of `KINDS`.
        bucket: bucket or container; for Azure, ``container@host`` names the account too.
        options: what `own_options` returned.
    """
    chosen = _Chosen(kind, options)
    _refuse_keys(kind, options.get("endpoint"))
    _check_endpoint(kind, bucket, chosen)
    settings: dict[str, Any] = {
        option.setting: options[option.name]
        for option in kind.options
        if option.setting and option.name in options
    }
    if chosen.flag("anonymous"):
        settings["skip_signature"] = True
    client_options = {
        "allow_http": _speaks_http(options.get("endpoint")),
        "connect_timeout": chosen.duration("connect-timeout"),
        "timeout": chosen.duration("timeout"),
    }
    retries = {"max_retries": chosen.count("retries"), "retry_timeout": chosen.duration("retry-timeout")}
    make = _s3 if kind is S3 else _gcs if kind is GCS else _azure
    try:
        return Clients(
            *(
                make(bucket, chosen, {**settings, "client_options": client_options, "retry_config": retry})
                for retry in (retries, {**retries, "max_retries": 0})
            )
        )
    except (BaseError, ValueError, TypeError) as error:
        text = reason(error)
        parts = ", ".join(kind.prefixes[0] + o.name for o in kind.options if o.identity or o.secret)
        hint = f"credentials are given whole: {parts}." if "Missing" in text else None
        raise OptionError(f"the options of {kind.title} cannot be used: {text}", hint=hint) from None


def _refuse_keys(kind: StoreKind, endpoint: str | None) -> None:
    """Refuse an endpoint with a user, a password or a signature in it, which errors would show."""
    if endpoint is not None and re.search("[@?#]", endpoint):
        raise OptionError(
            f"{kind.prefixes[0]}endpoint has more in it than a server: keys and signatures are options of their own",
            hint=f"There are: {', '.join(kind.prefixes[0] + o.name for o in kind.options if o.secret)}.",
        )


def _check_endpoint(kind: StoreKind, bucket: str, chosen: _Chosen) -> None:
    """Refuse what is no URL of a server, and one of S3 that ends with the bucket, below which all would be put twice."""
    given, key = (chosen.text("endpoint") or "").strip(), f"{kind.prefixes[0]}endpoint"
    endpoint = _with_scheme(given or None)
    if endpoint is None:
        return
    scheme, _, place = endpoint.partition("://")
    if scheme.lower() not in {"http", "https"} or not place.strip("/"):
        raise OptionError(
            f"{key} is {endpoint!r}; it must be the URL of a server, such as https://store.example.com:9000"
        )
    host, _, path = place.rstrip("/").rpartition("/")
    if kind is S3 and host and path == bucket and chosen.flag("path-style-access"):
        raise OptionError(
            f"{key} is {endpoint!r}, which ends with the bucket, and the bucket comes from the URL of the warehouse",
            hint=f"write {key}={scheme}://{host}.",
        )


class _Chosen:
    """Values of options, typed."""

    def __init__(self, kind: StoreKind, options: Mapping[str, str]) -> None:
        self._prefix = kind.prefixes[0]
        self.given = options
        self._values = {option.name: option.default for option in kind.options} | dict(options)

    def text(self, name: str) -> str | None:
        return self._values[name]

    def flag(self, name: str) -> bool:
        text = str(self._values[name]).strip().lower()
        if text not in {"true", "false"}:
            raise self._unusable(name, "true or false")
        return text == "true"

    def count(self, name: str) -> int:
        text = str(self._values[name]).strip()
        if not text.isascii() or not text.isdigit():
            raise self._unusable(name, "a number from 0")
        return int(text)

    def duration(self, name: str) -> timedelta:
        match = re.fullmatch(r"\s*(\d{1,9})\s*([a-z]+)\s*", str(self._values[name]).lower())
        unit = match and _UNITS.get(match[2])
        if not match or not unit:
            raise self._unusable(name, "a duration like 500 ms, 30 s or 2 min")
        return timedelta(milliseconds=int(match[1]) * unit)

    def _unusable(self, name: str, wanted: str) -> OptionError:
        return OptionError(f"{self._prefix}{name} is {self._values[name]!r}; it must be {wanted}")


def flag_of(kind: StoreKind, options: Mapping[str, str], name: str) -> bool:
    """Whether an option is set, as given or by its default. Raises `OptionError`."""
    return _Chosen(kind, options).flag(name)


def duration_of(kind: StoreKind, options: Mapping[str, str], name: str) -> timedelta:
    """Return an option that is a duration, as given or by its default. Raises `OptionError`."""
    return _Chosen(kind, options).duration(name)


_UNITS: Final = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def _s3(bucket: str, chosen: _Chosen, settings: dict[str, Any]) -> ObjectStore:
    if not chosen.flag("bulk-delete"):
        settings["disable_bulk_delete"] = True
    credentials = profile_credentials(chosen.given)
    if credentials is not None:
        settings["credential_provider"] = credentials  # which names its region, if nobody does
    endpoint = _with_scheme(chosen.text("endpoint"))
    if not chosen.flag("path-style-access"):
        settings["virtual_hosted_style_request"] = True
        if endpoint is not None:
            endpoint = endpoint.replace("://", f"://{bucket}.", 1)
    if endpoint is not None:
        settings["endpoint"] = endpoint
    return S3Store(bucket, **settings)


def _gcs(bucket: str, chosen: _Chosen, settings: dict[str, Any]) -> ObjectStore:
    endpoint = _with_scheme(chosen.text("endpoint"))
    if endpoint is not None:
        settings["base_url"] = endpoint
    return GCSStore(bucket, **settings)


def _azure(bucket: str, chosen: _Chosen, settings: dict[str, Any]) -> ObjectStore:
    container, _, host = bucket.partition("@")
    if host:
        settings.setdefault("account_name", host.partition(".")[0])
    endpoint = _with_scheme(chosen.text("endpoint"))
    if endpoint is not None:
        settings["endpoint"] = endpoint
    return AzureStore(container, **settings)


def _with_scheme(endpoint: str | None) -> str | None:
    return endpoint if endpoint is None or "://" in endpoint else f"https://{endpoint}"


def _speaks_http(endpoint: str | None) -> bool:
    """Whether the server named by the option, or else by the environment, is reached without TLS."""
    if endpoint is not None:
        return endpoint.lower().startswith("http://")
    return any(os.environ.get(name, "").lower().startswith("http://") for name in _ENDPOINTS_IN_ENVIRONMENT)


_ENDPOINTS_IN_ENVIRONMENT: Final = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "GOOGLE_BASE_URL",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_ENDPOINT",
)
