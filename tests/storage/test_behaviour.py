"""What every store promises, asked of every kind of store."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    UnsupportedFeatureError,
)
from anabranch.storage import ObjectInfo, probe_put_if_absent
from anabranch.storage.object_files import PART_BYTES

# What partition values and foreign tools bring into names.
NAMES = (
    "a",
    "dt=2026-11-21/hour=05/data-1.parquet",
    "dt=a%2Fb%3A c/x",
    "größe/日本/~#?&+'()[]{}",
    ".hidden",
    "a/.b",
)


def paths(storage, *args, **kwargs):
    return sorted(info.path for info in storage.list(*args, **kwargs))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_put_is_read_back_under_the_same_name(storage, name):
    storage.put(name, b"first")
    storage.put(name, b"second content")
    assert storage.get(name) == b"second content"
    assert storage.exists(name)
    assert paths(storage, recursive=True) == [name]
    info = storage.info(name)
    assert (info.path, info.size) == (name, 14)
    assert next(storage.list(name.rpartition("/")[0])) == info


def test_an_empty_object_is_an_object(storage):
    storage.put("folder/empty", b"")
    assert storage.exists("folder/empty")
    assert storage.get("folder/empty") == b""
    assert storage.get_range("folder/empty", 0, 10) == b""
    assert [info.size for info in storage.list("folder")] == [0]
    assert paths(storage, recursive=True) == ["folder/empty"]
    with storage.open_input("folder/empty") as file:
        assert file.read() == b""


def test_nothing_is_there_until_it_is_put(storage):
    assert not storage.exists("a/b")
    for ask in (storage.get, storage.info, storage.open_input):
        with pytest.raises(NotFoundError, match="a/b"):
            ask("a/b")
    for start, length in ((0, 1), (0, 0), (5, 5)):
        with pytest.raises(NotFoundError, match="a/b"):
            storage.get_range("a/b", start, length)
    assert paths(storage) == []
    assert paths(storage, "no/such", recursive=True) == []
    assert list(storage.list_folders("no/such")) == []
    storage.delete("a/b")
    storage.delete_many(["a/b", "c"])
    storage.delete_folder("a")


def test_a_folder_is_no_object_and_an_object_no_folder(storage):
    storage.put("folder/object", b"x")
    assert not storage.exists("folder")
    with pytest.raises(NotFoundError):
        storage.get("folder")
    with pytest.raises(NotFoundError):
        storage.info("folder")
    storage.delete("folder")
    storage.delete_folder("folder/object")
    assert paths(storage, "folder/object", recursive=True) == []
    assert list(storage.list_folders("folder/object")) == []
    assert not storage.exists("folder/object/below")
    assert storage.get("folder/object") == b"x"


def test_ranges_end_with_the_object(storage):
    storage.put("a", b"0123456789")
    cases = [(0, 10), (3, 4), (0, 0), (8, 100), (9, 1), (10, 1), (11, 5), (10**9, 10**12)]
    assert [storage.get_range("a", start, length) for start, length in cases] == [
        b"0123456789"[start : start + length] for start, length in cases
    ]
    for start, length in ((-1, 1), (0, -1)):
        with pytest.raises(InvalidInputError, match="count from 0"):
            storage.get_range("a", start, length)


def test_put_if_absent_lets_the_first_writer_in_only(storage):
    assert storage.put_if_absent("snapshot/snapshot-1", b"ours")
    assert not storage.put_if_absent("snapshot/snapshot-1", b"theirs")
    assert storage.get("snapshot/snapshot-1") == b"ours"
    assert storage.put_if_absent("snapshot/snapshot-1", b"ours"), "a repeated call finds its own object"
    storage.delete("snapshot/snapshot-1")
    assert storage.put_if_absent("snapshot/snapshot-1", b"theirs")
    assert paths(storage, "snapshot", include_temporary=True) == ["snapshot/snapshot-1"]


def test_of_many_threads_one_wins(storage, kind):
    # SeaweedFS lets each competitor for a name wait a second.
    writers, rounds = (3, 1) if kind == "s3" else (8, 20)

    def write(writer):
        gate.wait()
        return storage.put_if_absent(f"folder/{number}", b"%d" % writer)

    gate = threading.Barrier(writers)
    with ThreadPoolExecutor(writers) as threads:
        for number in range(rounds):
            wins = list(threads.map(write, range(writers)))
            assert wins.count(True) == 1
            assert storage.get(f"folder/{number}") == b"%d" % wins.index(True)


def test_many_objects_are_put_and_removed_at_once(storage):
    objects = {f"manifest/{number % 3}/m-{number}": b"%d" % number for number in range(40)}
    storage.put_many(objects)
    assert {path: storage.get(path) for path in paths(storage, recursive=True)} == objects
    storage.put_many({})
    storage.delete_many([])
    storage.delete_many([*list(objects)[10:], "missing"])
    assert paths(storage, recursive=True) == sorted(list(objects)[:10])


def test_listing_shows_a_folder_and_on_request_what_is_below(storage):
    storage.put_many(dict.fromkeys(("a", "d/b", "d/c", "d/e/f", "d/e/g/h", "dd/i"), b"x"))
    assert paths(storage) == ["a"]
    assert paths(storage, "d") == ["d/b", "d/c"]
    assert paths(storage, "d", recursive=True) == ["d/b", "d/c", "d/e/f", "d/e/g/h"]
    assert paths(storage, recursive=True) == ["a", "d/b", "d/c", "d/e/f", "d/e/g/h", "dd/i"]
    assert sorted(storage.list_folders()) == ["d", "dd"]
    assert list(storage.list_folders("d")) == ["d/e"]
    assert list(storage.list_folders("d/e/g")) == []


def test_temporary_files_are_shown_on_request_only(storage):
    names = ["snapshot/.snapshot-1.4b1.tmp", "snapshot/snapshot-1", "snapshot/x.tmp", "snapshot/.x"]
    storage.put_many(dict.fromkeys(names, b"x"))
    for recursive in (False, True):
        assert paths(storage, "snapshot", recursive=recursive) == sorted(names[1:])
        assert paths(storage, "snapshot", recursive=recursive, include_temporary=True) == sorted(names)


def test_many_objects_move_at_once(storage):
    storage.put_many({"d/a": b"1", "d/.b.1.tmp": b"2", "d/c": b"3", "folder/x": b"4"})
    storage.move_many(
        {"d/a": "e/f/a", "d/.b.1.tmp": "e/.b.1.tmp", "absent": "e/absent", "folder": "e/folder"}
    )
    assert paths(storage, recursive=True, include_temporary=True) == [
        "d/c",
        "e/.b.1.tmp",
        "e/f/a",
        "folder/x",
    ]
    assert storage.get("e/f/a") == b"1"
    storage.move_many({"e/f/a": "d/a", "e/.b.1.tmp": "d/.b.1.tmp"})
    assert storage.get("d/a") == b"1"
    storage.move_many({})
    storage.scoped("d").move_many({"a": "g/a"})
    assert paths(storage, recursive=True) == ["d/c", "d/g/a", "folder/x"]


def test_a_folder_goes_if_it_is_empty_and_can_be_written_to_again(storage, kind):
    storage.put_many(dict.fromkeys(["p=1/bucket-0/a", "p=2/bucket-0/.a.1.tmp", "p=3/a", "file"], b"x"))
    storage.delete_many(["p=1/bucket-0/a", "p=3/a"])
    for folder in ("p=1", "p=1/bucket-0", "p=2/bucket-0", "p=2", "p=3", "absent/folder", "file"):
        storage.delete_empty_folder(folder)
    storage.delete_empty_folder("p=1")
    if kind != "s3":  # some servers keep folders of their own
        assert sorted(storage.list_folders()) == ["p=2"]
    assert paths(storage, recursive=True, include_temporary=True) == ["file", "p=2/bucket-0/.a.1.tmp"]
    storage.put("p=1/bucket-0/a", b"again")
    with storage.open_output("p=3/bucket-0/a") as sink:
        sink.write(b"again")
    assert storage.get("p=1/bucket-0/a") == storage.get("p=3/bucket-0/a") == b"again"


def test_removing_a_folder_takes_what_is_below_and_nothing_beside(storage):
    storage.put_many(dict.fromkeys(["d/a", "d/e/b", "d/e/.c.1.tmp", "dd/a", "d.x"], b"x"))
    storage.delete_folder("d")
    assert paths(storage, recursive=True, include_temporary=True) == ["d.x", "dd/a"]
    storage.put("d/a", b"again")
    assert storage.get("d/a") == b"again"


def test_folders_move_at_once_where_they_can(storage, kind):
    storage.put_many(dict.fromkeys(["old/a", "old/d/b", "older/c", "taken/d"], b"x"))
    if kind in {"objects", "s3"}:
        with pytest.raises(UnsupportedFeatureError) as refused:
            storage.rename_folder("old", "new/place")
        assert refused.value.feature == "rename-folder"
        return
    with pytest.raises(AlreadyExistsError):
        storage.rename_folder("old", "taken")
    with pytest.raises(NotFoundError):
        storage.rename_folder("absent", "new")
    with pytest.raises(InvalidNameError, match="into itself"):
        storage.rename_folder("old", "old/d/e")
    assert sorted(storage.list_folders()) == ["old", "older", "taken"], "a refused move leaves nothing"
    storage.rename_folder("old", "new/place")
    assert paths(storage, recursive=True) == ["new/place/a", "new/place/d/b", "older/c", "taken/d"]
    storage.put("old/a", b"back again")
    storage.rename_folder("new/place/d", "d")
    assert paths(storage, recursive=True) == ["d/b", "new/place/a", "old/a", "older/c", "taken/d"]


def test_a_scoped_view_sees_its_folder_as_the_root(storage):
    view = storage.scoped("db.db").scoped("t")
    view.put("snapshot/snapshot-1", b"1")
    storage.put("db.db/other/x", b"2")
    assert storage.get("db.db/t/snapshot/snapshot-1") == b"1"
    assert view.get("snapshot/snapshot-1") == b"1"
    assert paths(view, recursive=True) == ["snapshot/snapshot-1"]
    assert list(view.list_folders()) == ["snapshot"]
    assert view.info("snapshot/snapshot-1") == ObjectInfo(
        "snapshot/snapshot-1", 1, storage.info("db.db/t/snapshot/snapshot-1").modified_millis
    )
    assert view.url == storage.url.rstrip("/") + "/db.db/t"
    assert paths(storage.scoped(""), recursive=True) == ["db.db/other/x", "db.db/t/snapshot/snapshot-1"]


BAD_PATHS = ("", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a/../../b", "a\0b", "a/\ud8ff")


@pytest.mark.parametrize("bad", BAD_PATHS)
def test_names_that_lead_elsewhere_are_refused(storage, bad):
    def write_to(name):
        with storage.open_output(name):
            pass

    calls = [
        lambda: storage.get(bad),
        lambda: storage.get_range(bad, 0, 1),
        lambda: storage.info(bad),
        lambda: storage.exists(bad),
        lambda: storage.open_input(bad),
        lambda: write_to(bad),
        lambda: storage.put(bad, b""),
        lambda: storage.put_many({"good": b"", bad: b""}),
        lambda: storage.put_if_absent(bad, b""),
        lambda: storage.delete(bad),
        lambda: storage.delete_many(["good", bad]),
        lambda: storage.delete_folder(bad),
        lambda: storage.delete_empty_folder(bad),
        lambda: storage.move_many({bad: "good"}),
        lambda: storage.move_many({"good": bad}),
        lambda: storage.rename_folder(bad, "good"),
        lambda: storage.rename_folder("good", bad),
    ]
    if bad:
        calls += [lambda: storage.list(bad), lambda: storage.list_folders(bad), lambda: storage.scoped(bad)]
    for call in calls:
        with pytest.raises(InvalidNameError):
            call()
    assert paths(storage, recursive=True) == []


def test_output_appears_when_the_block_ends(storage):
    with storage.open_output("bucket-0/data-1") as sink:
        assert sink.write(b"abc") == 3
        assert sink.write(memoryview(bytearray(b"def"))[1:]) == 2
        sink.flush()
        assert not storage.exists("bucket-0/data-1")
        assert paths(storage, recursive=True) == []
    assert storage.get("bucket-0/data-1") == b"abcef"
    with storage.open_output("bucket-0/data-2"):
        pass
    assert storage.get("bucket-0/data-2") == b""


def test_output_of_a_failed_block_never_appears(storage):
    with pytest.raises(KeyError), storage.open_output("bucket-0/data-1") as sink:  # noqa: PT012
        sink.write(b"abc")
        raise KeyError
    assert paths(storage, recursive=True, include_temporary=True) == []


def test_long_output_is_complete(storage):
    piece = bytes(range(256)) * 4096
    pieces = 2 * PART_BYTES // len(piece) + 3
    with storage.open_output("long") as sink:
        for _ in range(pieces):
            sink.write(piece)
    assert storage.info("long").size == pieces * len(piece)
    assert storage.get("long") == piece * pieces
    with pytest.raises(KeyError), storage.open_output("failed") as sink:  # noqa: PT012
        for _ in range(pieces):
            sink.write(piece)
        raise KeyError
    assert paths(storage, recursive=True, include_temporary=True) == ["long"]


def test_input_is_a_seekable_file(storage):
    data = bytes(range(256)) * 8192  # two buffers of the reader over an object store
    storage.put("a", data)
    for size in (None, len(data)):
        with storage.open_input("a", size=size) as file:
            assert file.readable()
            assert file.seekable()
            assert file.read(3) == data[:3]
            assert file.seek(-5, io.SEEK_END) == len(data) - 5
            assert file.read() == data[-5:]
            assert file.read(1) == b""
            file.seek(1_048_570)
            assert file.read(20) == data[1_048_570:1_048_590]
            assert file.seek(-10, io.SEEK_CUR) == file.tell() == 1_048_580
            buffer = bytearray(7)
            assert file.readinto(buffer) == 7
            assert buffer == data[1_048_580:1_048_587]
            file.seek(len(data) + 100)
            assert file.read(10) == b""
            file.seek(0)
            assert file.read() == data


def test_arrow_writes_and_reads_parquet_through_a_store(storage):
    table = pa.table({"id": range(100_000), "name": [f"row {number}" for number in range(100_000)]})
    with storage.open_output("data.parquet") as sink:
        writer = pq.ParquetWriter(sink, table.schema)
        for batch in table.to_batches(max_chunksize=30_000):
            writer.write_batch(batch)
        writer.close()
    with storage.open_input("data.parquet") as file:
        assert pq.read_table(file).equals(table)
    with storage.open_input("data.parquet", size=storage.info("data.parquet").size) as file:
        parquet = pq.ParquetFile(file, pre_buffer=True)
        assert parquet.num_row_groups == 4
        assert parquet.read_row_group(2, columns=["id"])["id"][0].as_py() == 60_000


def test_a_store_that_keeps_its_word_passes_the_probe(storage):
    probe_put_if_absent(storage)
    assert paths(storage, recursive=True, include_temporary=True) == []


def test_messages_name_the_store(storage):
    assert storage.url in repr(storage) or storage.url.removeprefix("file://") in repr(storage)
    with pytest.raises(NotFoundError) as missing:
        storage.get("some/object")
    assert storage.url.removeprefix("file://") in str(missing.value)
