"""From URLs and options to stores, without asking any."""

import os

import pytest

import anabranch
from anabranch.errors import InvalidNameError, OptionError, UnsupportedFeatureError
from anabranch.storage import open_storage
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.object_options import KINDS
from anabranch.storage.objects import ObjectStorage
from anabranch.storage.open import OBJECT_STORE_SCHEMES


def test_paths_and_file_urls_name_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/anna")
    cases = {
        "lake": f"file://{tmp_path}/lake",
        "./a/../b": f"file://{tmp_path}/b",
        "/lake/ä b": "file:///lake/%C3%A4%20b",
        "~/lake": "file:///home/anna/lake",
        "a:b/c": f"file://{tmp_path}/a%3Ab/c",
        "file:///lake/%C3%A4%20b": "file:///lake/%C3%A4%20b",
        "file:///a%25b#c?d": "file:///a%25b%23c%3Fd",
        "file:/lake": "file:///lake",
        "file://localhost/lake/": "file:///lake",
        "FILE:///lake": "file:///lake",
    }
    assert {place: open_storage(place).url for place in cases} == cases
    assert isinstance(open_storage(tmp_path), LocalStorage)
    assert os.listdir(tmp_path) == [], "opening creates nothing"


def test_stores_in_memory_are_shared_by_name():
    first = open_storage("memory://test-open/lake")
    first.put("a", b"x")
    assert isinstance(first, MemoryStorage)
    assert first.url == "memory://test-open/lake"
    assert open_storage("memory://test-open").get("lake/a") == b"x"
    assert not open_storage("memory://test-open-2").exists("lake/a")
    assert MemoryStorage("test-open").exists("lake/a")
    assert MemoryStorage().url != MemoryStorage().url


def test_urls_of_object_stores_are_taken_as_spelled():
    options = {"az.account-name": "acc", "az.account-key": "a2V5", "gs.anonymous": "true"}
    for url in (
        "s3://bucket",
        "s3a://bucket/a b/c%20d#e?f",
        "gs://bucket/lake",
        "az://container/lake",
        "abfss://container@acc.dfs.core.windows.net/lake",
    ):
        storage = open_storage(url, options)
        assert isinstance(storage, ObjectStorage)
        assert storage.url == url
        assert storage.scoped("t").url == url + "/t"
        assert open_storage(url + "/", options).url == url


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "empty"),
        ("hdfs://host/lake", "Known schemes are file, memory, s3"),
        ("file://host/lake", "the host 'host'"),
        ("file:lake", "no folder"),
        ("file:///a%00b", "no folder"),
        ("memory://", "no store"),
        ("memory:lake", "Write memory://lake; or ./memory:lake for a folder"),
        ("S3:/bucket/lake", "Write S3://bucket/lake"),
        ("s3://", "no bucket"),
        ("s3:///lake", "no bucket"),
    ],
)
def test_what_names_no_store_is_refused(url, told):
    with pytest.raises(OptionError) as refused:
        open_storage(url)
    assert told in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    "url", ["s3://bucket//a", "s3://bucket/a/../b", "memory://name/../a", "gs://bucket/./a"]
)
def test_folders_must_have_proper_names(url):
    with pytest.raises(InvalidNameError):
        open_storage(url, {"gs.anonymous": "true"})


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("s3.acess-key", "x", "s3.acess-key is no option of Amazon S3"),
        ("s3.path-style-access", "maybe", "s3.path-style-access is 'maybe'; it must be true or false"),
        ("fs.s3a.timeout", "soon", "s3.timeout is 'soon'; it must be a duration"),
        ("s3.connect-timeout", "5", "must be a duration"),
        ("s3.retries", "-1", "must be a number"),
    ],
)
def test_options_that_cannot_be_used_are_named(key, value, told):
    with pytest.raises(OptionError, match=told):
        open_storage("s3://bucket", {key: value})


def test_two_spellings_of_an_option_must_agree():
    open_storage("s3://bucket", {"s3.region": "eu-west-1", "fs.s3a.endpoint.region": "eu-west-1"})
    with pytest.raises(OptionError, match=r"another spelling of s3\.region"):
        open_storage("s3://bucket", {"s3.region": "eu-west-1", "fs.s3a.endpoint.region": "eu-west-2"})


def settings(url, options):
    return open_storage(url, options)._clients.patient.config


def test_the_bucket_goes_into_the_host_name_on_request():
    options = {"s3.endpoint": "objects.example:9000"}
    assert settings("s3://lake", options)["endpoint"] == "https://objects.example:9000"
    options["s3.path-style-access"] = "false"
    assert settings("s3://lake", options)["endpoint"] == "https://lake.objects.example:9000"


def test_only_an_endpoint_without_tls_allows_plain_http(monkeypatch):
    def allowed(options):
        return open_storage("s3://lake", options)._clients.patient.client_options["allow_http"]

    assert allowed({}) == "false"
    assert allowed({"s3.endpoint": "https://a"}) == "false"
    assert allowed({"s3.endpoint": "http://a"}) == "true"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a")
    assert allowed({}) == "true"
    assert allowed({"s3.endpoint": "https://a"}) == "false"


def test_the_account_of_azure_may_stand_in_the_url():
    options = {"az.account-key": "a2V5"}
    config = settings("abfss://container@acc.dfs.core.windows.net/lake", options)
    assert (config["account_name"], config["container_name"]) == ("acc", "container")
    with pytest.raises(OptionError, match="Azure"):
        open_storage("az://container/lake", options)


def test_conditional_writes_are_never_repeated_unseen():
    clients = open_storage("s3://lake", {"s3.retries": "7"})._clients
    assert clients.patient.retry_config["max_retries"] == 7
    assert clients.single.retry_config["max_retries"] == 0


def test_every_scheme_is_known_in_both_places():
    assert tuple(scheme for kind in KINDS for scheme in kind.schemes) == OBJECT_STORE_SCHEMES
    for kind in KINDS:
        names = [option.name.replace("-", "") for option in kind.options]
        spellings = [spelling for option in kind.options for spelling in option.spellings]
        assert len({*names, *spellings}) == len(names) + len(spellings), "no spelling means two options"


def test_memory_does_not_travel():
    import pickle

    with pytest.raises(UnsupportedFeatureError, match="cannot be sent to another process"):
        pickle.dumps(MemoryStorage())
    with pytest.raises(InvalidNameError):
        MemoryStorage("a/b")


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:SECRET@bucket/x",
        "s3a://AKIAKEY:SEC/RET@bucket/x",
        "s3://AKIAKEY@bucket",
        "gs://u:SECRET@b",
        "s3:AKIAKEY:SECRET@b",
    ],
)
def test_keys_in_a_url_are_refused_and_not_shown(url):
    with pytest.raises(OptionError, match="keys") as caught:
        open_storage(url)
    for secret in ("AKIAKEY", "SEC", "RET@"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["http://AKIAKEY:SECRET@host:1", "https://host?sig=SECRET", "AKIAKEY:SECRET@host"]
)
def test_keys_in_an_endpoint_are_refused_and_not_shown(endpoint):
    with pytest.raises(OptionError, match="keys") as caught:
        open_storage("s3://bucket/x", {"s3.endpoint": endpoint})
    assert "SECRET" not in str(caught.value)
    assert "AKIAKEY" not in str(caught.value)


def test_a_table_in_a_folder_whose_name_is_not_utf8(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\x80raw"
    os.mkdir(folder)
    table = anabranch.connect(os.fsdecode(folder)).create_table("db.t", "id BIGINT")
    table.append([{"id": 1}])
    table.compact(full=True)
    assert table.scan("id = 1").to_arrow().to_pylist() == [{"id": 1}]


@pytest.mark.parametrize(
    ("options", "told", "hint"),
    [
        ({"s3.endpoint": "ftp://host"}, "it must be the URL of a server", None),
        ({"s3.endpoint": "https://"}, "it must be the URL of a server", None),
        (
            {"s3.endpoint": "https://host:9000/bucket/"},
            "ends with the bucket",
            "s3.endpoint=https://host:9000.",
        ),
        ({"s3.access-key": "a"}, "Missing SecretAccessKey", "s3.secret-key"),
    ],
)
def test_settings_that_cannot_lead_to_a_store_are_told_before_anything_is_asked(options, told, hint):
    with pytest.raises(OptionError, match=told) as refused:
        open_storage("s3://bucket/lake", options)
    assert hint is None or hint in refused.value.hint


def test_a_gateway_may_put_its_buckets_below_a_path():
    for endpoint in ("https://host/s3", "host/s3/", "https://host/", " https://host ", ""):
        open_storage("s3://bucket/lake", {"s3.endpoint": endpoint})
    open_storage("s3://bucket/lake", {"s3.endpoint": "https://host/bucket", "s3.path-style-access": "false"})
