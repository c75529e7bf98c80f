"""Credentials of the AWS configuration: profiles, single sign-on, roles to assume. boto3 reads it, as Amazon's tools do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import OptionError

if TYPE_CHECKING:
    from obstore.auth.boto3 import Boto3CredentialProvider

_KEYS_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""What obstore's client reads by itself."""
_FILES = (
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ("AWS_CONFIG_FILE", "~/.aws/config"),
)


def profile_credentials(options: Mapping[str, str]) -> Boto3CredentialProvider | None:
    """Return a credential provider for the AWS profile; None if it has none, or others apply. Raises `OptionError`.

    Args:
        options: settings of S3 by their names. Without ``profile``, and without credentials there or in the environment, it is
            the profile that AWS_PROFILE names, or the default one.
    """
    profile = options.get("profile")
    if profile is None:
        if "access-key" in options or options.get("anonymous", "").strip().lower() == "true":
            return None
        if any(os.environ.get(name) for name in _KEYS_IN_ENVIRONMENT):
            return None
        profile = os.environ.get("AWS_PROFILE")
    if profile is None and not (has_profiles() and _has_boto3()):
        return None
    if not _has_boto3():
        raise OptionError(
            f"the profile '{profile}' of the AWS configuration is asked for, and boto3, which reads it, is not installed",
            hint="pip install 'anabranch[aws]', or give keys: eval \"$(aws configure export-credentials --format env)\".",
        )
    return _provider(profile)


def has_profiles() -> bool:
    """Whether this machine has an AWS configuration."""
    return any(Path(os.environ.get(name) or file).expanduser().exists() for name, file in _FILES)


def _has_boto3() -> bool:
    return util.find_spec("boto3") is not None


def _provider(profile: str | None) -> Boto3CredentialProvider | None:
    import boto3
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        session: Any = boto3.Session(profile_name=profile)
        if profile is None and session.get_credentials() is None:
            return None
        return Boto3CredentialProvider(session)
    except (BotoCoreError, ValueError) as error:
        name = "default" if profile is None else profile
        raise OptionError(
            f"the profile '{name}' of the AWS configuration gives no credentials: {error}",
            hint=f"see what Amazon's tools say: aws sts get-caller-identity --profile {name}; aws sso login --profile {name}.",
        ) from None
