"""Settings of stores that no program gives: environment, file, profiles; which of them counts."""

import os
import subprocess
import sys

import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.errors import OptionError, StorageError
from anabranch.storage import open_storage
from anabranch.storage.settings import variables_of

FILE = """
["s3://company-lake"]
s3.endpoint = "https://minio.example.com"
"s3.access-key" = "of-file"
s3.secret-key = "secret-of-file"
s3.session-token = "token-of-file"
s3.retries = 3
s3.path-style-access = true

["s3://company-lake/scratch/"]
s3.region = "eu-north-1"

["az://other"]
az.account-name = "acc"
"""


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch, tmp_path):
    for name in os.environ:
        if name.startswith(("AWS_", "ANABRANCH_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def file(monkeypatch, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    monkeypatch.setenv("ANABRANCH_CONFIG", str(path))
    return path


def test_the_section_of_a_place_counts_for_all_below_it(file):
    whole = {
        "s3.endpoint": "https://minio.example.com",
        "s3.access-key": "of-file",
        "s3.secret-key": "secret-of-file",
        "s3.session-token": "token-of-file",
        "s3.retries": "3",
        "s3.path-style-access": "true",
    }
    assert open_storage("s3://company-lake").settings == whole
    assert open_storage("s3a://company-lake/a/b").settings == whole, "however the scheme is written"
    assert open_storage("s3://company-lake/scratch").settings == {"s3.region": "eu-north-1"}
    assert open_storage("s3://company-lake/scratchy").settings == whole
    assert open_storage("s3://company-lake-2").settings == {}, "its name only begins alike"
    assert open_storage("az://other/x", {"az.account-key": "a2V5"}).settings == {
        "az.account-name": "acc",
        "az.account-key": "a2V5",
    }


def test_the_environment_counts_more_than_the_file_and_what_is_given_more_than_both(file, monkeypatch):
    monkeypatch.setenv("ANABRANCH_S3_RETRIES", "4")
    monkeypatch.setenv("ANABRANCH_S3_SECRET_KEY", "of-environment")
    found = open_storage("s3://company-lake").settings
    assert (found["s3.retries"], found["s3.access-key"], found["s3.secret-key"]) == (
        "4",
        "of-file",
        "of-environment",
    )
    assert open_storage("s3://company-lake", {"fs.s3a.retries": "5"}).settings["s3.retries"] == "5"


def test_whoever_says_who_asks_says_all_of_it(file, monkeypatch):
    given = {"s3.access-key": "mine", "s3.secret-key": "my secret"}
    found = open_storage("s3://company-lake", given).settings
    assert "s3.session-token" not in found, "it belongs to the key in the file"
    assert found["s3.endpoint"] == "https://minio.example.com"
    monkeypatch.setenv("ANABRANCH_S3_ANONYMOUS", "false")
    found = open_storage("s3://company-lake").settings
    assert found["s3.access-key"] == "of-file", "that says nothing of who asks"
    monkeypatch.setenv("ANABRANCH_S3_ANONYMOUS", "true")
    found = open_storage("s3://company-lake").settings
    assert not {"s3.access-key", "s3.secret-key", "s3.session-token"} & found.keys()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('["s3://b"]\ns3.endpoint = ', "cannot be read"),
        ('["s3://b"]\ns3.endpiont = "x"', "s3.endpiont is no option"),
        ('["s3://b"]\nendpoint = "x"', "endpoint is no option of a store"),
        ('"s3://b" = "x"', "it is no table of settings"),
        ('s3.endpoint = "x"', "it names no place"),
        ("\xff", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_named(file, text, problem):
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(OptionError, match=problem) as raised:
        open_storage("s3://b/lake")
    assert str(file) in str(raised.value)


def test_a_variable_with_a_typing_error_is_named(monkeypatch):
    monkeypatch.setenv("ANABRANCH_S3_ENDPIONT", "https://minio.example.com")
    with pytest.raises(OptionError, match="ANABRANCH_S3_ENDPIONT") as raised:
        open_storage("s3://b/lake")
    assert "ANABRANCH_S3_ENDPOINT" in raised.value.hint
    assert "minio" not in str(raised.value)
    open_storage("az://b/lake", {"az.account-name": "a"})


def test_a_file_that_is_named_must_be_there(file):
    file.unlink()
    with pytest.raises(OptionError, match="ANABRANCH_CONFIG names"):
        open_storage("s3://b/lake")


def test_nothing_is_read_for_a_local_folder(file, tmp_path):
    file.write_text("no settings")
    assert [info.path for info in open_storage(tmp_path).list("")] == ["config.toml"]


def test_options_become_variables():
    assert variables_of({"fs.s3a.endpoint": "x", "az.sas-token": "y"}) == {
        "ANABRANCH_S3_ENDPOINT": "x",
        "ANABRANCH_AZ_SAS_TOKEN": "y",
    }
    with pytest.raises(OptionError, match="bucket is no option of a store"):
        variables_of({"bucket": "-1"})


def _profiles(monkeypatch, tmp_path, access_key="key", secret_key="secret"):
    path = tmp_path / "credentials"
    text = "[{}]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    path.write_text(
        text.format("lake", access_key, secret_key) + text.format("wrong", access_key, "not that")
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))


@pytest.mark.s3
def test_a_profile_of_the_aws_configuration(s3_server, monkeypatch, tmp_path):
    _profiles(monkeypatch, tmp_path, s3_server.access_key, s3_server.secret_key)
    url, endpoint = s3_server.new_url(), {"s3.endpoint": s3_server.endpoint}
    open_storage(url, {**endpoint, "s3.profile": "lake"}).put("a", b"1")
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert open_storage(url, endpoint).get("a") == b"1"
    with pytest.raises(StorageError, match="SignatureDoesNotMatch"):
        open_storage(url, {**endpoint, "s3.profile": "wrong"}).get("a")
    keys = {"s3.access-key": s3_server.access_key, "s3.secret-key": s3_server.secret_key}
    monkeypatch.setenv("AWS_PROFILE", "wrong")
    assert open_storage(url, {**endpoint, **keys}).get("a") == b"1", "keys that are given count more"


def test_a_profile_that_is_not_there(monkeypatch, tmp_path):
    _profiles(monkeypatch, tmp_path)
    with pytest.raises(OptionError, match="profile 'nobody' of the AWS configuration gives no credentials"):
        open_storage("s3://b", {"s3.profile": "nobody"})


def test_a_profile_without_boto3(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(OptionError, match="boto3, which reads it, is not installed"):
        open_storage("s3://b", {"s3.profile": "lake"})


@pytest.mark.s3
def test_options_on_the_command_line_and_in_the_file_reach_the_store(s3_server, tmp_path):
    url = s3_server.new_url()
    options = [text for key, value in s3_server.options.items() for text in ("--option", f"{key}={value}")]
    config = tmp_path / "config.toml"
    config.write_text("\n".join([f'["{url}"]', *(f'{k} = "{v}"' for k, v in s3_server.options.items())]))

    def run(*arguments, **environment):
        command = [sys.executable, "-m", "anabranch", "--warehouse", url, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )

    done = run(*options, "create-table", "db.t", "id BIGINT")
    assert done.returncode == 0, done.stderr
    done = run("tables", "db", "--json", ANABRANCH_CONFIG=str(config))
    assert (done.returncode, "db.t" in done.stdout or '"t"' in done.stdout) == (0, True), (
        done.stderr + done.stdout
    )
    assert s3_server.secret_key not in done.stdout + done.stderr
    done = run("--option", "s3.endpiont=x", "tables", "db")
    assert done.returncode == 2
    assert "s3.endpiont is no option of Amazon S3" in done.stderr


SECRET = "a-secret-that-nobody-may-see"


@pytest.mark.parametrize(
    "key", ["s3.secret-key", "fs.s3a.access.key", "az.sas-token", "gs.service-account-key"]
)
def test_secrets_of_a_store_are_no_options_of_a_table(tmp_path, key):
    """Everybody who reads the table would see them."""
    lake = anabranch.connect(str(tmp_path))
    with pytest.raises(OptionError, match="no option of a table") as refused:
        lake.create_table("db.t", "id BIGINT", options={key: SECRET})
    assert SECRET not in str(refused.value)
    table = lake.create_table("db.t", "id BIGINT")
    with pytest.raises(OptionError, match="no option of a table"):
        table.alter().set_option(key, SECRET).apply()
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and SECRET in path.read_text("latin-1")
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["describe", f"s3://KEY:{SECRET}@bucket/x"],
        ["--option", f"az.sas-token:{SECRET}", "tables"],
        ["--option", f"az.sas-token {SECRET}", "tables"],
    ],
)
def test_secrets_in_the_wrong_place_are_not_shown(tmp_path, capfd, words):
    assert run(["-w", str(tmp_path), *words]) != 0
    said = "".join(capfd.readouterr())
    assert "hint" in said
    assert SECRET not in said
