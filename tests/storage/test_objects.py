"""Object stores on a real S3 server, with a proxy between that loses answers: what is won, lost and unknown."""

import pickle
import subprocess
import sys
from dataclasses import dataclass, field

import boto3
import pyarrow.parquet as pq
import pytest

from anabranch.errors import NotFoundError, OptionError, StorageError, UnsupportedFeatureError
from anabranch.runtime import Runtime
from anabranch.storage import open_storage, probe_put_if_absent
from anabranch.storage.object_files import PART_BYTES
from tests.storage.conftest import in_memory_bucket
from tests.support.s3 import running_s3
from tests.support.s3_proxy import proxy_before

pytestmark = pytest.mark.s3


@dataclass
class Waits:
    seconds: list = field(default_factory=list)

    def sleep(self, seconds):
        self.seconds.append(seconds)


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
def proxy(s3_server):
    with proxy_before(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def url(s3_server):
    return s3_server.new_url()


@pytest.fixture
def storage(url, s3_server, proxy, waits):
    """A store seen through the proxy, whose tries take no time."""
    options = s3_server.options_through(proxy.endpoint, retries="0", timeout="5 s")
    return open_storage(url, options, runtime=Runtime(sleeper=waits))


@pytest.fixture
def direct(url, s3_server):
    return open_storage(url, s3_server.options)


@pytest.fixture
def client(s3_server):
    return boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
        region_name="us-east-1",
    )


def methods(proxy):
    return [method for method, _ in proxy.requests]


def test_a_clear_answer_takes_one_request(storage, proxy):
    assert storage.put_if_absent("s-1", b"ours")
    assert methods(proxy) == ["PUT"]


def test_a_lost_answer_is_settled_by_reading_back(storage, proxy, waits):
    proxy.arrange("PUT", "s-1", lose_answer=True)
    assert storage.put_if_absent("s-1", b"ours")
    assert methods(proxy) == ["PUT", "GET"]
    assert waits.seconds == []


def test_a_lost_request_is_sent_again(storage, proxy, waits, direct):
    proxy.arrange("PUT", "s-1", times=2, lose_request=True)
    assert storage.put_if_absent("s-1", b"ours")
    assert methods(proxy) == ["PUT", "GET", "PUT", "GET", "PUT"]
    assert direct.get("s-1") == b"ours"
    assert len(waits.seconds) == 2
    assert all(0.04 < seconds < 0.3 for seconds in waits.seconds)


def test_a_competitor_who_wins_meanwhile_has_won(storage, proxy, direct):
    proxy.arrange("PUT", "s-1", lose_request=True, before=lambda: direct.put_if_absent("s-1", b"theirs"))
    assert not storage.put_if_absent("s-1", b"ours")
    assert direct.get("s-1") == b"theirs"


def test_ours_stays_ours_when_the_competitor_came_later(storage, proxy, direct):
    proxy.arrange("PUT", "s-1", lose_answer=True)
    proxy.arrange("GET", "s-1", answer=503, before=lambda: direct.put_if_absent("s-1", b"theirs"))
    assert storage.put_if_absent("s-1", b"ours")
    assert direct.get("s-1") == b"ours"


def test_what_stays_ambiguous_is_unknown(storage, proxy, waits, direct):
    proxy.arrange("PUT", "s-1", times=99, lose_answer=True)
    proxy.arrange("GET", "s-1", times=99, answer=500)
    with pytest.raises(StorageError, match="cannot tell whether") as unknown:
        storage.put_if_absent("s-1", b"ours")
    assert unknown.value.outcome_unknown
    assert "delete nothing" in unknown.value.hint
    assert methods(proxy).count("PUT") == 5
    assert len(waits.seconds) == 4
    assert direct.get("s-1") == b"ours", "it had happened"


def test_a_refusal_of_the_first_try_says_that_nothing_happened(storage, proxy):
    proxy.arrange("PUT", "s-1", answer=403)
    with pytest.raises(StorageError) as refused:
        storage.put_if_absent("s-1", b"ours")
    assert not refused.value.outcome_unknown
    assert not refused.value.retryable
    assert "credentials" in refused.value.hint
    assert methods(proxy) == ["PUT"]


def test_a_refusal_after_a_lost_answer_says_nothing(storage, proxy):
    proxy.arrange("PUT", "s-1", lose_answer=True)
    proxy.arrange("GET", "s-1", answer=403)
    proxy.arrange("PUT", "s-1", answer=403)
    assert storage.put_if_absent("s-1", b"ours"), "the second look finds it"


def test_a_conflict_that_names_no_winner_is_tried_again(storage, proxy, direct):
    proxy.arrange("PUT", "s-1", answer=409)
    assert storage.put_if_absent("s-1", b"ours")
    assert direct.get("s-1") == b"ours"


def test_a_store_without_conditions_says_so(storage, proxy):
    proxy.arrange("PUT", "s-1", answer=501)
    with pytest.raises(UnsupportedFeatureError) as refused:
        storage.put_if_absent("s-1", b"ours")
    assert refused.value.feature == "atomic-create"


def test_a_store_that_ignores_conditions_is_found_out(storage, proxy, direct, client):
    def replace(path, content):
        client.put_object(Bucket="lake", Key=path.removeprefix("/lake/"), Body=content)

    proxy.arrange("PUT", times=99, instead=replace)
    with pytest.raises(UnsupportedFeatureError, match="let 2 of 2 writers") as found_out:
        probe_put_if_absent(storage)
    assert found_out.value.feature == "atomic-create"
    assert list(direct.list(include_temporary=True)) == [], "the probe cleans up"


def test_reads_are_repeated_by_themselves(s3_server, url, proxy, direct):
    direct.put("a", b"x" * 100)
    patient = open_storage(url, s3_server.options_through(proxy.endpoint, retries="3"))
    for misdeed in ({"answer": 503}, {"lose_request": True}, {"lose_answer": True}):
        proxy.arrange("GET", "/a", **misdeed)
        assert patient.get("a") == b"x" * 100


def test_writes_report_passing_faults_as_such(storage, proxy):
    proxy.arrange("PUT", "/a", times=3, answer=503)
    for write in (lambda: storage.put("a", b"x"), lambda: storage.put_many({"a": b"x", "b": b"x"})):
        with pytest.raises(StorageError, match="503") as failed:
            write()
        assert failed.value.retryable
        assert failed.value.outcome_unknown
    with pytest.raises(StorageError, match="503"), storage.open_output("a") as sink:
        sink.write(b"x")
    assert not storage.exists("a")


def open_uploads(client, url):
    folder = url.removeprefix("s3://lake/")
    uploads = client.list_multipart_uploads(Bucket="lake").get("Uploads", [])
    return [upload["Key"] for upload in uploads if upload["Key"].startswith(folder)]


def write_parts(storage, count, fail_after=None):
    with storage.open_output("long") as sink:
        for part in range(count):
            sink.write(b"%d" % part * PART_BYTES)
            if part == fail_after:
                raise KeyError


def test_an_abandoned_upload_leaves_no_parts(storage, client, url):
    with pytest.raises(KeyError):
        write_parts(storage, 4, fail_after=2)
    assert open_uploads(client, url) == []
    assert not storage.exists("long")


def test_a_failed_upload_is_reported_and_leaves_no_parts(storage, client, url, proxy):
    proxy.arrange("PUT", "long", times=99, answer=500)  # every part; the upload's start and end are POSTs
    with pytest.raises(StorageError, match="cannot write"):
        write_parts(storage, 12)
    assert open_uploads(client, url) == []
    assert not storage.exists("long")


def test_a_lost_object_is_noticed_by_the_reader(storage, direct):
    direct.put("a", b"0123456789")
    with (
        storage.open_input("a", size=20) as file,
        pytest.raises(StorageError, match="fewer than the 20 bytes"),
    ):
        file.read()
    with storage.open_input("missing", size=20) as file, pytest.raises(NotFoundError, match="missing"):
        file.read(5)
    with pytest.raises(NotFoundError, match="missing"):
        pq.read_table(storage.open_input("missing", size=20))


def test_a_known_size_spares_a_request(storage, direct, proxy):
    direct.put("a", b"0123456789")
    with storage.open_input("a", size=10) as file:
        assert file.read() == b"0123456789"
    assert methods(proxy) == ["GET"]


def test_markers_of_folders_are_no_objects(direct, client, url):
    folder = url.removeprefix("s3://lake/")
    for marker in ("/", "/t/", "/t/snapshot/"):
        client.put_object(Bucket="lake", Key=folder + marker, Body=b"")
    direct.put_many({"t/schema/schema-0": b"x", "t/_SUCCESS": b""})
    assert sorted(info.path for info in direct.list(recursive=True)) == ["t/_SUCCESS", "t/schema/schema-0"]
    assert [info.path for info in direct.list("t")] == ["t/_SUCCESS"]
    assert list(direct.list()) == []
    assert sorted(direct.list_folders("t")) == ["t/schema", "t/snapshot"]
    direct.delete_folder("t")
    assert list(direct.list(recursive=True)) == []


@pytest.mark.parametrize("bulk", ["true", "false"])
def test_whole_folders_are_removed_either_way(s3_server, url, bulk):
    storage = open_storage(url, s3_server.options | {"s3.bulk-delete": bulk})
    storage.put_many({f"d/{number}": b"x" for number in range(50)} | {"e": b"x"})
    storage.delete_many([f"d/{number}" for number in range(10)])
    storage.delete_folder("d")
    assert [info.path for info in storage.list(recursive=True)] == ["e"]


def test_other_spellings_of_options_are_understood(s3_server, url, direct):
    direct.put("a", b"x")
    spellings = [
        ("s3.", "access-key", "secret-key", "path-style-access"),
        ("s3.", "access.key", "secret.key", "path.style.access"),
        ("fs.s3a.", "access.key", "secret.key", "path.style.access"),
        ("fs.s3.", "accessKeyId", "accessKeySecret", "pathStyleAccess"),
    ]
    for prefix, access, secret, path_style in spellings:
        options = {
            f"{prefix}endpoint": s3_server.endpoint,
            f"{prefix}{access}": s3_server.access_key,
            f"{prefix}{secret}": s3_server.secret_key,
            f"{prefix}{path_style}": "true",
            "lineage": "false",
            "az.nonsense": "someone else's",
        }
        assert open_storage(url, options).get("a") == b"x"
        assert open_storage(url.replace("s3://", "s3a://"), options).get("a") == b"x"


def test_the_environment_fills_what_options_leave_out(s3_server, url, direct, monkeypatch):
    direct.put("a", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    assert open_storage(url).get("a") == b"x"
    with pytest.raises(StorageError, match="SignatureDoesNotMatch"):
        open_storage(url, {"s3.secret-key": "another"}).get("a")


def test_secrets_appear_nowhere(s3_server, url):
    wrong = s3_server.options | {"s3.secret-key": "hush-hush"}
    storage = open_storage(url, wrong)
    with pytest.raises(StorageError, match="SignatureDoesNotMatch") as refused:
        storage.put("a", b"x")
    error = refused.value
    assert "credentials" in error.hint
    assert error.__cause__ is None
    told = [repr(storage), str(storage), storage.url, str(error), repr(error), repr(storage.scoped("t"))]
    with pytest.raises(OptionError) as unknown:
        open_storage(url, wrong | {"s3.secret-kye": "hush-hush"})
    assert "s3.secret-key" in unknown.value.hint
    assert not any("hush" in text for text in [*told, str(unknown.value)])


def test_a_store_travels_to_another_process(s3_server, url):
    storage = open_storage(url, s3_server.options | {"other.secret": "stays here"}).scoped("db.db/t")
    storage.put("a", b"from the first")
    message = pickle.dumps(storage)
    assert b"stays here" not in message
    code = """
import pickle, sys
storage = pickle.loads(sys.stdin.buffer.read())
assert storage.get("a") == b"from the first"
assert not storage.put_if_absent("a", b"from the second")
storage.put("b", b"from the second")
"""
    subprocess.run([sys.executable, "-c", code], input=message, check=True)
    assert storage.get("b") == b"from the second"
    with pytest.raises(UnsupportedFeatureError, match="not opened by its URL"):
        pickle.dumps(in_memory_bucket())


def test_a_missing_bucket_is_no_missing_object(s3_server):
    storage = open_storage("s3://no-such-bucket/t", s3_server.options)
    calls = [
        lambda: list(storage.list()),
        lambda: list(storage.list(recursive=True)),
        lambda: storage.get("a"),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="NoSuchBucket") as missing:
            call()
        assert "create the bucket" in missing.value.hint
        assert not missing.value.retryable


@pytest.mark.long
def test_what_the_server_acknowledged_survives_its_death(tmp_path):
    with running_s3(tmp_path) as server:
        url = server.new_url()
        assert open_storage(url, server.options).put_if_absent("s-1", b"ours")
        server.kill()
        dead = open_storage(url, server.options | {"s3.retries": "0"}, runtime=Runtime(sleeper=Waits()))
        with pytest.raises(StorageError) as unknown:
            dead.put_if_absent("s-2", b"ours")
        assert unknown.value.outcome_unknown
        server.start()
        storage = open_storage(url, server.options)
        assert storage.get("s-1") == b"ours"
        assert not storage.put_if_absent("s-1", b"theirs")
        assert storage.put_if_absent("s-2", b"ours")
