"""Settings of object stores in the words of Hadoop's connectors, as the pages of these name them."""

import pytest

from anabranch import OptionError, UnsupportedFeatureError
from anabranch.storage.hadoop import hadoop_location, hadoop_settings
from anabranch.storage.settings import variables_of

S3A = "org.apache.hadoop.fs.s3a."
KEYS = {"s3.access-key": "name", "s3.secret-key": "key"}


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Without settings of whoever runs the tests."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "ANABRANCH_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("url", "options", "found"),
    [
        ("/data/wh", {}, "/data/wh"),
        ("file:///data/wh", {}, "file:///data/wh"),
        ("s3://lake/a b/c", {}, "s3a://lake/a b/c"),
        ("s3a://lake/a", {}, "s3a://lake/a"),
        ("S3://lake/a", {}, "s3a://lake/a"),
        ("gs://lake/a", {}, "gs://lake/a"),
        ("abfs://c@acc.dfs.core.windows.net/a", {}, "abfss://c@acc.dfs.core.windows.net/a"),
        ("az://c/a", {"az.account-name": "acc"}, "abfss://c@acc.dfs.core.windows.net/a"),
        ("az://c/a", {}, "az://c/a"),
    ],
)
def test_urls_as_hadoop_spells_them(url, options, found):
    assert hadoop_location(url, options) == found


def of_s3(options, url="s3a://lake/a"):
    """Without the prefix of the bucket, and what is said in any case."""
    found = {
        key.removeprefix("fs.s3a.bucket.lake."): value for key, value in hadoop_settings(url, options).items()
    }
    assert not any(key.startswith("fs.") for key in found)
    assert (found.pop("path.style.access"), found.pop("multiobjectdelete.enable")) == (
        options.get("s3.path-style-access", "true"),
        options.get("s3.bulk-delete", "true"),
    )
    return found


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, {}),
        ({"s3.path-style-access": "false", "s3.bulk-delete": "false"}, {}),
        (
            {**KEYS, "s3.endpoint": "http://127.0.0.1:9000"},
            {
                "endpoint": "http://127.0.0.1:9000",
                "connection.ssl.enabled": "false",
                "endpoint.region": "us-east-1",
                "access.key": "name",
                "secret.key": "key",
                "aws.credentials.provider": f"{S3A}SimpleAWSCredentialsProvider",
            },
        ),
        (
            {"s3.endpoint": "https://store.example", "s3.region": "eu-north-1", "s3.anonymous": "true"},
            {
                "endpoint": "https://store.example",
                "connection.ssl.enabled": "true",
                "endpoint.region": "eu-north-1",
                "aws.credentials.provider": f"{S3A}AnonymousAWSCredentialsProvider",
            },
        ),
        (
            {
                **KEYS,
                "s3.session-token": "token",
                "s3.timeout": "2 min",
                "s3.connect-timeout": "500 ms",
                "s3.retries": "3",
            },
            {
                "access.key": "name",
                "secret.key": "key",
                "session.token": "token",
                "aws.credentials.provider": f"{S3A}TemporaryAWSCredentialsProvider",
                "connection.establish.timeout": "500ms",
                "connection.timeout": "120000ms",
                "attempts.maximum": "4",
            },
        ),
        (
            {"fs.s3a.access.key": "name", "fs.s3a.secret.key": "key"},
            {
                "access.key": "name",
                "secret.key": "key",
                "aws.credentials.provider": f"{S3A}SimpleAWSCredentialsProvider",
            },
        ),
        (
            {"s3.profile": "lake"},
            {
                "auth.profile.name": "lake",
                "aws.credentials.provider": f"{S3A}auth.ProfileAWSCredentialsProvider",
            },
        ),
    ],
)
def test_what_is_given_for_s3(options, found):
    assert of_s3(options) == found
    assert of_s3(options, "s3://lake") == found


def test_the_environment_and_the_file_count_too(monkeypatch, tmp_path):
    for name, value in variables_of({**KEYS, "s3.endpoint": "http://here:1"}).items():
        monkeypatch.setenv(name, value)
    assert of_s3({})["access.key"] == "name"
    assert of_s3({"s3.endpoint": "http://there:1"})["endpoint"] == "http://there:1"
    monkeypatch.delenv("ANABRANCH_S3_ACCESS_KEY")
    monkeypatch.delenv("ANABRANCH_S3_SECRET_KEY")
    file = tmp_path / "config.toml"
    file.write_text('["s3://lake"]\ns3.region = "eu-west-1"\n["s3://other"]\ns3.region = "us-west-1"\n')
    monkeypatch.setenv("ANABRANCH_CONFIG", str(file))
    assert of_s3({})["endpoint.region"] == "eu-west-1"


def test_a_profile_of_the_environment_counts_unless_there_are_keys(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert of_s3({})["auth.profile.name"] == "work"
    assert "auth.profile.name" not in of_s3(KEYS)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert of_s3({}) == {}


def test_what_is_given_for_other_stores():
    assert hadoop_settings(
        "gs://lake/a", {"gs.service-account-path": "/key.json", "gs.endpoint": "http://here:1"}
    ) == {
        "fs.gs.storage.root.url": "http://here:1",
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": "/key.json",
    }
    host = "acc.dfs.core.windows.net"
    assert hadoop_settings("az://c/a", {"az.account-name": "acc", "az.account-key": "key"}) == {
        f"fs.azure.account.auth.type.{host}": "SharedKey",
        f"fs.azure.account.key.{host}": "key",
    }
    assert hadoop_settings(f"abfss://c@{host}/a", {"az.sas-token": "?sv=1"}) == {
        f"fs.azure.account.auth.type.{host}": "SAS",
        f"fs.azure.sas.fixed.token.{host}": "sv=1",
    }
    principal = {"az.tenant-id": "t", "az.client-id": "c", "az.client-secret": "s"}
    assert hadoop_settings(f"abfss://c@{host}/a", principal) == {
        f"fs.azure.account.auth.type.{host}": "OAuth",
        f"fs.azure.account.oauth.provider.type.{host}": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
        f"fs.azure.account.oauth2.client.endpoint.{host}": "https://login.microsoftonline.com/t/oauth2/token",
        f"fs.azure.account.oauth2.client.id.{host}": "c",
        f"fs.azure.account.oauth2.client.secret.{host}": "s",
    }
    assert hadoop_settings("/data/wh", KEYS) == {}


@pytest.mark.parametrize(
    "who",
    [
        {"az.account-key": "key"},
        {"az.sas-token": "sv=1"},
        {"az.tenant-id": "t", "az.client-id": "c", "az.client-secret": "s"},
    ],
    ids=lambda who: next(iter(who)),
)
def test_credentials_of_an_account_are_for_its_host_alone(who):
    options = {"az.account-name": "acc", **who}
    for host in ("acc.dfs.core.windows.net", "ACC.dfs.core.windows.net", "acc.dfs.core.chinacloudapi.cn"):
        assert all(key.endswith(f".{host}") for key in hadoop_settings(f"abfss://c@{host}/a", options))
        assert hadoop_settings(f"abfss://c@{host}/a", options)
    for host in (
        "other.dfs.core.windows.net",
        "acc.example.com",
        "acc.dfs.core.windows.net.example.com",
        "acc",
    ):
        assert hadoop_settings(f"abfss://c@{host}/a", options) == {}, host


@pytest.mark.parametrize(
    ("url", "options", "left"),
    [
        ("gs://lake/a", {"gs.bearer-token": "t", "gs.endpoint": "http://here:1"}, {"fs.gs.storage.root.url"}),
        ("gs://lake/a", {"gs.service-account-path": "/key.json"}, set()),
        ("abfss://c@acc.dfs.core.windows.net/a", {"az.account-key": "key"}, set()),
    ],
)
def test_what_is_said_where_another_says_who_is_asking(url, options, left):
    assert hadoop_settings(url, options, with_credentials=False).keys() == left
    s3 = hadoop_settings("s3://lake/a", KEYS, with_credentials=False)
    assert s3
    assert not {*KEYS.values()} & {*s3.values()}


@pytest.mark.parametrize(
    ("url", "options", "error", "said"),
    [
        ("s3://lake/a", {"s3.access-key": "name"}, OptionError, "without s3.secret-key"),
        ("s3://lake/a", {"s3.timeout": "soon"}, OptionError, r"s3\.timeout is 'soon'"),
        ("az://c/a", {}, OptionError, "does not say of which storage account"),
        ("gs://lake/a", {"gs.bearer-token": "t"}, UnsupportedFeatureError, r"takes no gs\.bearer-token"),
    ],
)
def test_what_cannot_be_said(url, options, error, said):
    with pytest.raises(error, match=said):
        hadoop_settings(url, options)
