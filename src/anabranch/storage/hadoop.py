"""Settings of an object store in the words of Hadoop's connectors, through which Spark keeps checkpoints there.

Whoever gives a key, a profile or an account to us gives it to Hadoop too. What nobody says, Hadoop's connectors look for by
themselves, as our client does: variables of the environment, roles of the machine. Settings of S3 are for the bucket
alone; those of Google Cloud Storage have no such form.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from anabranch.errors import OptionError, UnsupportedFeatureError
from anabranch.storage.object_options import AZURE, GCS, KINDS, S3, StoreKind, duration_of, flag_of
from anabranch.storage.settings import settings_for

_S3A: Final = "org.apache.hadoop.fs.s3a"
_AZURE_HOST: Final = "dfs.core.windows.net"
_AZURE_HOSTS: Final = (
    *(_AZURE_HOST, "dfs.core.chinacloudapi.cn", "dfs.core.usgovcloudapi.net"),
    "blob.core.windows.net",
)
"""Of Microsoft's clouds: what follows the name of the account in its host."""
_AZURE_LOGIN: Final = "https://login.microsoftonline.com/{}/oauth2/token"
_AZURE_OAUTH: Final = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"


def hadoop_location(url: str, options: Mapping[str, str] | None = None) -> str:
    """Return a URL as Hadoop spells it: ``s3a://`` for ``s3://``, and Azure's with the host of the account.

    Any other is returned as it is. Raises `OptionError`.
    """
    scheme, slashes, place = url.partition("://")
    kind = _kind_of(scheme) if slashes else None
    bucket, _, folder = place.partition("/")
    if kind is S3:
        return f"s3a://{place}"
    if kind is GCS:
        return f"gs://{place}"
    if kind is AZURE:
        container, _, host = bucket.partition("@")
        account = settings_for(url, kind, options or {}).get("account-name")
        if host or account is not None:
            return f"abfss://{container}@{host or f'{account}.{_AZURE_HOST}'}/{folder}".rstrip("/")
    return url


def hadoop_settings(
    url: str, options: Mapping[str, str] | None = None, *, with_credentials: bool = True
) -> dict[str, str]:
    """Return the settings with which Hadoop reaches a store as we do; none for a folder.

    Args:
        url: the store, and a folder in it.
        options: of the store.
        with_credentials: whether they say who is asking; what cannot be said is an error only then.

    Raises:
        OptionError: an option has no such value.
        UnsupportedFeatureError: Hadoop's connector cannot be told what the options say.
    """
    scheme, slashes, place = url.partition("://")
    kind = _kind_of(scheme) if slashes else None
    if kind is None:
        return {}
    chosen, bucket = settings_for(url, kind, options or {}), place.partition("/")[0]
    if kind is S3:
        return {f"fs.s3a.bucket.{bucket}.{key}": value for key, value in _of_s3(chosen, with_credentials)}
    if kind is GCS:
        return dict(_of_google(chosen, with_credentials))
    found = dict(_of_azure(url, bucket, chosen))
    return found if with_credentials else {}


def _kind_of(scheme: str) -> StoreKind | None:
    return next((kind for kind in KINDS if scheme.lower() in kind.schemes), None)


def _of_s3(chosen: Mapping[str, str], with_credentials: bool) -> Iterator[tuple[str, str]]:
    endpoint = chosen.get("endpoint")
    if endpoint is not None:
        yield "endpoint", endpoint
        yield "connection.ssl.enabled", str(not endpoint.lower().startswith("http://")).lower()
    region = chosen.get("region", None if endpoint is None else "us-east-1")
    if region is not None:
        yield "endpoint.region", region
    yield "path.style.access", str(flag_of(S3, chosen, "path-style-access")).lower()
    yield "multiobjectdelete.enable", str(flag_of(S3, chosen, "bulk-delete")).lower()
    for name, key in (("connect-timeout", "connection.establish.timeout"), ("timeout", "connection.timeout")):
        if name in chosen:
            yield key, f"{int(duration_of(S3, chosen, name).total_seconds() * 1000)}ms"
    if "retries" in chosen:
        yield "attempts.maximum", str(int(chosen["retries"]) + 1)
    if with_credentials:
        yield from _keys_of_s3(chosen)


def _keys_of_s3(chosen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    profile = chosen.get("profile") or os.environ.get("AWS_PROFILE")
    if flag_of(S3, chosen, "anonymous"):
        yield "aws.credentials.provider", f"{_S3A}.AnonymousAWSCredentialsProvider"
    elif "access-key" in chosen:
        if "secret-key" not in chosen:
            raise OptionError("s3.access-key is given without s3.secret-key", hint="give both.")
        yield "access.key", chosen["access-key"]
        yield "secret.key", chosen["secret-key"]
        if "session-token" in chosen:
            yield "session.token", chosen["session-token"]
        kind = "Temporary" if "session-token" in chosen else "Simple"
        yield "aws.credentials.provider", f"{_S3A}.{kind}AWSCredentialsProvider"
    elif profile and ("profile" in chosen or not os.environ.get("AWS_ACCESS_KEY_ID")):
        yield "auth.profile.name", profile
        yield "aws.credentials.provider", f"{_S3A}.auth.ProfileAWSCredentialsProvider"


def _of_google(chosen: Mapping[str, str], with_credentials: bool) -> Iterator[tuple[str, str]]:
    if "endpoint" in chosen:
        yield "fs.gs.storage.root.url", chosen["endpoint"]
    if not with_credentials:
        return
    if flag_of(GCS, chosen, "anonymous"):
        yield "fs.gs.auth.type", "UNAUTHENTICATED"
    elif "service-account-path" in chosen:
        yield "fs.gs.auth.type", "SERVICE_ACCOUNT_JSON_KEYFILE"
        yield "fs.gs.auth.service.account.json.keyfile", chosen["service-account-path"]
    for name in ("service-account-key", "bearer-token"):
        if name in chosen:
            raise UnsupportedFeatureError(
                f"Hadoop's connector for Google Cloud Storage takes no gs.{name}",
                feature="hadoop-credentials",
                hint="name the file of the service account with gs.service-account-path.",
            )


def _of_azure(url: str, bucket: str, chosen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    host = bucket.partition("@")[2]
    if not host:
        if "account-name" not in chosen:
            raise OptionError(
                f"{url} does not say of which storage account it is", hint="set az.account-name."
            )
        host = f"{chosen['account-name']}.{_AZURE_HOST}"
    if "account-name" in chosen and host.lower() not in {
        f"{chosen['account-name']}.{cloud}".lower() for cloud in _AZURE_HOSTS
    }:
        return  # credentials of one account are not told to the host of another one
    if "account-key" in chosen:
        yield f"fs.azure.account.auth.type.{host}", "SharedKey"
        yield f"fs.azure.account.key.{host}", chosen["account-key"]
    elif "sas-token" in chosen:
        yield f"fs.azure.account.auth.type.{host}", "SAS"
        yield f"fs.azure.sas.fixed.token.{host}", chosen["sas-token"].removeprefix("?")
    elif {"client-id", "client-secret", "tenant-id"} <= chosen.keys():
        yield f"fs.azure.account.auth.type.{host}", "OAuth"
        yield f"fs.azure.account.oauth.provider.type.{host}", _AZURE_OAUTH
        yield f"fs.azure.account.oauth2.client.endpoint.{host}", _AZURE_LOGIN.format(chosen["tenant-id"])
        yield f"fs.azure.account.oauth2.client.id.{host}", chosen["client-id"]
        yield f"fs.azure.account.oauth2.client.secret.{host}", chosen["client-secret"]
