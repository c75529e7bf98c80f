"""Files of this machine: races, kills, full disks, lost folders, links."""

import errno
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from anabranch.arrow.files import open_file, open_whole
from anabranch.errors import NotFoundError, StorageError, UnreadableFileError
from anabranch.storage import files, open_storage
from anabranch.storage.local import LocalStorage
from tests.support.lengths import first_short

STRACE = shutil.which("strace")
CAN_TRACE = (
    STRACE
    and subprocess.run([STRACE, "-o", "/dev/null", "true"], check=False, capture_output=True).returncode == 0
)
needs_strace = pytest.mark.skipif(not CAN_TRACE, reason="needs strace, and the right to trace")


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "store")


def everything(storage):
    return sorted(info.path for info in storage.list(recursive=True, include_temporary=True))


def python(code, *args, under=(), **how):
    """Run code that finds its arguments in `args` and LocalStorage imported."""
    program = f"import sys; args = sys.argv[1:]\nfrom anabranch.storage.local import LocalStorage\n{code}"
    return subprocess.Popen(
        [*under, sys.executable, "-c", program, *map(str, args)], text=True, stdout=subprocess.PIPE, **how
    )


@pytest.mark.long
def test_of_eight_processes_exactly_one_wins_every_round(tmp_path):
    rounds, me = 100, range(8)
    code = """
storage = LocalStorage(args[0])
sys.stdin.readline()
print([n for n in range(int(args[1])) if storage.put_if_absent(f"snapshot/snapshot-{n}", args[2].encode())])
"""
    writers = [python(code, tmp_path, rounds, number, stdin=subprocess.PIPE) for number in me]
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    won = [eval(writer.communicate(timeout=60)[0]) for writer in writers]
    assert sorted(number for numbers in won for number in numbers) == list(range(rounds))
    storage = LocalStorage(tmp_path)
    for number in me:
        assert all(storage.get(f"snapshot/snapshot-{n}") == b"%d" % number for n in won[number])
    assert len(everything(storage)) == rounds, "no temporary file is left"


@needs_strace
def test_bytes_are_synced_before_the_name_and_the_name_before_the_answer(tmp_path):
    trace = tmp_path / "trace"
    watched = "trace=mkdir,fsync,link,linkat,rename,renameat,unlink,write"
    under = [STRACE, "-f", "-y", "-o", trace, "-e", watched]
    root = tmp_path / "store"
    code = """
storage = LocalStorage(args[0])
storage.put_if_absent("snapshot/s-1", b"0123456789")
print("ANSWER"); sys.stdout.flush()
storage.put_many({"manifest/a": b"0123456789", "manifest/b": b"0123456789"})
print("ANSWER"); sys.stdout.flush()
with storage.open_output("bucket-0/d") as sink: sink.write(b"0123456789")
print("ANSWER"); sys.stdout.flush()
storage.delete("manifest/a")
"""
    run = python(code, root, under=map(str, under))
    assert run.communicate(timeout=60)[0].count("ANSWER") == 3
    steps = []
    for line in trace.read_text().splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)\) += \d", line)
        if call and (str(root) in call[2] or f"<{tmp_path}>" in call[2] or "ANSWER" in call[2]):
            place = re.findall(rf"{tmp_path}([^\">]*)", call[2])
            name = (
                re.sub(r"/\.([a-z0-9-]+)\.[0-9a-f-]{36}\.tmp", r"/TEMP:\1", place[-1]) if place else "ANSWER"
            )
            steps.append((call[1].removesuffix("at"), name))
    made = lambda folder, above: [("mkdir", folder), ("fsync", above)]  # noqa: E731
    content = lambda temp: [("write", temp), ("fsync", temp)]  # noqa: E731
    assert steps == [
        *made("/store", ""),
        *made("/store/snapshot", "/store"),
        *content("/store/snapshot/TEMP:s-1"),
        ("link", "/store/snapshot/s-1"),
        ("unlink", "/store/snapshot/TEMP:s-1"),
        ("fsync", "/store/snapshot"),
        ("write", "ANSWER"),
        *made("/store/manifest", "/store"),
        *content("/store/manifest/TEMP:a"),
        ("rename", "/store/manifest/a"),
        *content("/store/manifest/TEMP:b"),
        ("rename", "/store/manifest/b"),
        ("fsync", "/store/manifest"),
        ("write", "ANSWER"),
        *made("/store/bucket-0", "/store"),
        *content("/store/bucket-0/TEMP:d"),
        ("rename", "/store/bucket-0/d"),
        ("fsync", "/store/bucket-0"),
        ("write", "ANSWER"),
        ("unlink", "/store/manifest/a"),
        ("fsync", "/store/manifest"),
    ]


WRITES = {
    "absent": "storage.put_if_absent('folder/object', new)",
    "put": "storage.put('folder/object', new)",
    "many": "storage.put_many({'folder/object': new})",
    "output": """
with storage.open_output('folder/object') as sink:
    for part in (new[:500], new[500:]):
        sink.write(part)
""",
}


# System calls of one write into a new folder of a new store: two folders are made and the one above each
# is synced; then the content is written and synced, the name given, and the folder synced.
MOMENTS = {
    "content": "write:signal=KILL:when=1",
    "content synced": "fsync:signal=KILL:when=3",
    "named": "/^(link|rename)(at)?$:signal=KILL:when=1",
    "name synced": "fsync:signal=KILL:when=4",
}
MORE_MOMENTS = {
    "first folder": "mkdir:signal=KILL:when=1",
    "first folder synced": "fsync:signal=KILL:when=1",
    "second folder": "mkdir:signal=KILL:when=2",
    "second folder synced": "fsync:signal=KILL:when=2",
}


@needs_strace
@pytest.mark.parametrize("write", first_short(WRITES, 3))
@pytest.mark.parametrize(
    "moment", [*MOMENTS, *(pytest.param(name, marks=pytest.mark.long) for name in MORE_MOMENTS)]
)
def test_a_process_killed_at_any_moment_leaves_the_whole_object_or_none(tmp_path, write, moment):
    storage = LocalStorage(tmp_path / "store")
    old, new = b"old" * 1000, bytes(range(256)) * 4
    replaces = write == "put" and moment in MOMENTS
    if replaces:
        storage.put("folder/object", old)
    under = [STRACE, "-f", "-o", "/dev/null", "-e", "inject=" + (MOMENTS | MORE_MOMENTS)[moment]]
    code = f"storage = LocalStorage(args[0]); new = bytes(range(256)) * 4\n{WRITES[write]}\nprint('done')"
    run = python(code, tmp_path / "store", under=under, stderr=subprocess.DEVNULL)
    assert run.communicate(timeout=60)[0] == ""
    assert run.returncode == -signal.SIGKILL
    found = storage.get("folder/object") if storage.exists("folder/object") else None
    assert found in (new, old if replaces else None)
    assert (found == new) or moment != "name synced"
    assert [info.path for info in storage.list("folder")] == ([] if found is None else ["folder/object"])
    if write == "absent":
        assert storage.put_if_absent("folder/object", new), (
            "the restarted writer finds its own object or writes it"
        )
        assert not storage.put_if_absent("folder/object", old)


@needs_strace
@pytest.mark.parametrize("write", first_short(WRITES))
def test_a_name_that_could_not_be_synced_leaves_the_outcome_open(tmp_path, write):
    LocalStorage(tmp_path).put("folder/other", b"")
    # The syncs are of the folder above (twice, to be sure of the folders), of the file, of its name.
    under = [STRACE, "-f", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=4"]
    code = """
from anabranch.errors import StorageError
storage = LocalStorage(args[0]); new = b"x" * 1000
try:
    exec(args[1])
except StorageError as error:
    print(error.outcome_unknown, error.retryable, error)
"""
    told = python(code, tmp_path, WRITES[write], under=under).communicate(timeout=60)[0]
    assert told.startswith("True False cannot make"), told


@needs_strace
@pytest.mark.parametrize("write", first_short(WRITES))
def test_a_file_that_could_not_be_synced_never_appears(tmp_path, write):
    LocalStorage(tmp_path).put("folder/other", b"")
    under = [STRACE, "-f", "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=3"]
    code = """
from anabranch.errors import StorageError
storage = LocalStorage(args[0]); new = b"x" * 1000
try:
    exec(args[1])
except StorageError as error:
    print(error.outcome_unknown, error)
"""
    told = python(code, tmp_path, WRITES[write], under=under).communicate(timeout=60)[0]
    assert told.startswith("False cannot write"), told
    assert "disk reports a fault" in told
    assert everything(LocalStorage(tmp_path)) == ["folder/other"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    yield place
    subprocess.run(["umount", place], check=True)


def write_all_ways(storage, data):
    def stream():
        with storage.open_output("d/output") as sink:
            for start in range(0, len(data), 5000):
                sink.write(data[start : start + 5000])

    return {
        "put": lambda: storage.put("d/put", data),
        "hint": lambda: storage.put("d/hint", data, durable=False),
        "absent": lambda: storage.put_if_absent("d/absent", data),
        "many": lambda: storage.put_many({"d/many": data}),
        "output": stream,
    }


def test_a_full_disk_is_reported_and_nothing_is_left(small_disk):
    storage = LocalStorage(small_disk / "store")
    storage.put("d/kept", b"x" * 100_000)
    for write in write_all_ways(storage, b"y" * 300_000).values():
        with pytest.raises(StorageError, match="No space left") as full:
            write()
        assert "free some space" in full.value.hint
        assert not full.value.outcome_unknown
        assert everything(storage) == ["d/kept"]
    storage.put("d/fits", b"z" * 50_000)
    assert storage.get("d/fits") == b"z" * 50_000


def test_a_read_only_disk_can_be_read(small_disk):
    storage = LocalStorage(small_disk / "store")
    storage.put("d/kept", b"x")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    reopened = LocalStorage(small_disk / "store")
    assert reopened.get("d/kept") == b"x"
    for write in [*write_all_ways(reopened, b"y").values(), lambda: reopened.delete("d/kept")]:
        with pytest.raises(StorageError, match="Read-only file system") as refused:
            write()
        assert "read-only" in refused.value.hint


def test_writes_that_take_a_part_are_continued_and_refused_ones_reported(tmp_path):
    # Below the limit the kernel takes what fits and refuses the rest: a short write, then an error.
    storage = LocalStorage(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for number, write in enumerate(write_all_ways(storage, b"x" * 70_000).values()):
        resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
        try:
            with pytest.raises(StorageError, match="File too large"):
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert everything(storage) == [], number


def test_short_writes_are_continued(storage, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, bytes(data[:7])))
    for write in write_all_ways(storage, bytes(range(250)) * 4).values():
        write()
    for path in everything(storage):
        assert storage.get(path) == bytes(range(250)) * 4


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is permitted to root")
def test_missing_permission_is_reported(storage):
    storage.put("d/a", b"x")
    os.chmod(storage._root + "/d", 0o500)
    with pytest.raises(StorageError, match="Permission denied") as refused:
        storage.put("d/b", b"x")
    assert "permissions" in refused.value.hint


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_not_a_regular_file_is_no_object_and_holds_nobody_up(tmp_path, make):
    storage = LocalStorage(tmp_path / "store")
    storage.put("d/other", b"x")
    make(tmp_path / "store" / "d" / "pipe")
    reads = [
        lambda: storage.get("d/pipe"),
        lambda: storage.get_range("d/pipe", 0, 4),
        lambda: storage.open_input("d/pipe"),
        lambda: storage.info("d/pipe"),
    ]
    for read in reads:
        with pytest.raises(NotFoundError):
            read()
    assert not storage.exists("d/pipe")
    with pytest.raises(StorageError):
        storage.put_if_absent("d/pipe", b"y")


def test_folders_that_others_remove_are_made_again(storage):
    for write in write_all_ways(storage, b"x").values():
        write()
        shutil.rmtree(storage._root + "/d")
        write()
        storage.scoped("d").put("e/f", b"y")
        LocalStorage(storage._root).delete_folder("d")
        write()
        assert len(everything(storage)) == 1
        storage.delete_folder("d")


def test_a_file_in_the_way_is_reported(storage):
    storage.put("a", b"x")
    storage.put("folder/b", b"x")
    with pytest.raises(StorageError, match="Not a directory") as in_the_way:
        storage.put("a/b", b"x")
    assert "is a file" in in_the_way.value.hint
    for write in (storage.put, storage.put_if_absent):
        with pytest.raises(StorageError, match="Is a directory") as in_the_way:
            write("folder", b"x")
        assert "folder has that name" in in_the_way.value.hint
    assert everything(storage) == ["a", "folder/b"]


def test_without_hard_links_a_refusing_rename_decides(storage, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EPERM, "Operation not permitted", source, None, target)

    monkeypatch.setattr(os, "link", no_links)
    assert storage.put_if_absent("snapshot/s-1", b"ours")
    assert not storage.put_if_absent("snapshot/s-1", b"theirs")
    assert storage.put_if_absent("snapshot/s-1", b"ours")
    assert everything(storage) == ["snapshot/s-1"]

    def neither(source, target):
        raise OSError(errno.ENOTSUP, "Operation not supported", target)

    monkeypatch.setattr(files, "_rename_new", neither)
    with pytest.raises(StorageError, match="not supported") as refused:
        storage.put_if_absent("snapshot/s-2", b"ours")
    assert "cannot decide between two writers" in refused.value.hint
    assert everything(storage) == ["snapshot/s-1"]


def test_links_are_followed_by_name_and_never_by_sweeps(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"x")
    (tmp_path / "store").mkdir()
    (tmp_path / "root").symlink_to("store")
    storage = LocalStorage(tmp_path / "root")
    storage.put("d/a", b"a")
    os.symlink(elsewhere, tmp_path / "store/d/linked")
    os.symlink("nowhere", tmp_path / "store/d/dangling")
    os.symlink("circle", tmp_path / "store/d/circle")
    assert storage.get("d/linked/kept") == b"x"
    assert [info.path for info in storage.list("d/linked")] == ["d/linked/kept"]
    assert list(storage.list_folders("d")) == ["d/linked"]
    assert everything(storage) == ["d/a", "d/circle"]
    with pytest.raises(UnreadableFileError, match="symbolic links") as refused:
        storage.get("d/circle")
    assert "remove it" in refused.value.hint
    storage.delete_folder("d")
    assert (elsewhere / "kept").read_bytes() == b"x"
    assert list(storage.list_folders()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a link look like somebody else's")
@pytest.mark.parametrize("by", [0, 4321])
def test_a_link_out_of_the_root_is_followed_if_root_or_this_user_made_it(tmp_path, by):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_bytes(b"theirs")
    (tmp_path / "store").mkdir()
    (tmp_path / "root").symlink_to("store")
    os.chown(
        tmp_path / "root", by, by, follow_symlinks=False
    )  # what leads to the root is the administrator's choice
    storage = LocalStorage(tmp_path / "root")
    storage.put("d/own", b"own")
    for name, target in (("d/file", elsewhere / "secret"), ("folder", elsewhere), ("inside", "d/own")):
        (tmp_path / "store" / name).symlink_to(target)
        os.chown(tmp_path / "store" / name, by, by, follow_symlinks=False)
    assert storage.get("inside") == b"own", "which leads nowhere out"

    def whole_input(path):
        with storage.open_input(path) as file:
            return file.read()

    def natively(path):
        file = SimpleNamespace(path=path, size=6)
        whole, opened = (opener(storage, file).read() for opener in (open_whole, open_file))
        assert whole == opened
        return whole

    reads = {
        "whole": storage.get,
        "range": lambda path: storage.get_range(path, 0, 6),
        "input": whole_input,
        "native": natively,
    }
    writes = {
        "put": lambda path: storage.put(path, b"x"),
        "decide": lambda path: storage.put_if_absent(path, b"x"),
        "output": lambda path: storage.open_output(path).__enter__(),
        "move": lambda path: storage.move_many({"d/own": path}),
    }
    if by == 0:
        assert (
            {read("d/file") for read in reads.values()}
            == {read("folder/secret") for read in reads.values()}
            == {b"theirs"}
        )
        storage.put("folder/new", b"x")
        assert (elsewhere / "new").read_bytes() == b"x"
        return
    for name, read in reads.items():
        for path in ("d/file", "folder/secret"):
            with pytest.raises(UnreadableFileError, match=r"out of .*, that user 4321 made"):
                assert read(path) != b"theirs", name
    for write in writes.values():
        with pytest.raises(StorageError, match=r"out of "):
            write("folder/new")
    assert {file.name: file.read_bytes() for file in elsewhere.iterdir()} == {"secret": b"theirs"}


def test_a_store_reopens_from_its_url_and_from_its_pickle(tmp_path):
    storage = LocalStorage(tmp_path / "größe 100%/a#b?c").scoped("db.db")
    storage.put("t/x", b"1")
    assert storage.url == f"file://{tmp_path}/gr%C3%B6%C3%9Fe%20100%25/a%23b%3Fc/db.db"
    for other in (open_storage(storage.url), pickle.loads(pickle.dumps(storage))):
        assert other.url == storage.url
        assert other.get("t/x") == b"1"
        assert not other.put_if_absent("t/x", b"2")


def test_names_that_are_no_text_are_listed_and_removed(storage):
    storage.put("d/a", b"x")
    with open(os.fsencode(storage._root) + b"/d/\xff", "wb"):
        pass
    (odd,) = (path for path in everything(storage) if path != "d/a")
    storage.delete(odd)
    assert everything(storage) == ["d/a"]


def test_the_longest_names_can_be_written(storage):
    longest = "ü" * 127 + "x"
    assert storage.put_if_absent(longest, b"x")
    with pytest.raises(StorageError, match="too long") as refused:
        storage.put(longest + "y", b"x")
    assert "shorter" in refused.value.hint
    assert not storage.exists(longest + "y"), "nothing has a name that is too long"
    with pytest.raises(NotFoundError):
        storage.get(longest + "y")
    assert [*storage.list(longest + "y")] == []
    assert everything(storage) == [longest]


def test_a_removed_file_is_missing_to_whoever_asks_next(storage):
    storage.put("a", b"x" * 100)
    with storage.open_input("a") as file:
        storage.delete("a")
        assert file.read() == b"x" * 100, "an open file stays whole"
    with pytest.raises(NotFoundError):
        storage.get("a")


def test_the_sink_is_dead_after_its_block(storage):
    with storage.open_output("a") as sink:
        sink.write(b"x")
    with pytest.raises(StorageError, match="has ended"):
        sink.write(b"y")
    assert storage.get("a") == b"x"


def test_a_root_that_was_there_is_not_made_again(tmp_path):
    folder = tmp_path / "mount"
    warehouse = LocalStorage(folder / "wh")
    warehouse.put("db.db/t/schema/schema-0", b"s")
    table = LocalStorage(folder / "wh").scoped("db.db/t")
    assert table.get("schema/schema-0") == b"s"
    sent = pickle.dumps(table)
    folder.rename(tmp_path / "away")
    for storage in (warehouse, table, pickle.loads(sent)):
        for write in (
            lambda s: s.put("new/file", b"x"),
            lambda s: s.put("file", b"x"),
            lambda s: s.put_if_absent("snapshot/snapshot-1", b"x"),
            lambda s: s.put_many({"a/b": b"x"}),
            lambda s: s.open_output("bucket-0/data").__enter__(),
        ):
            with pytest.raises(StorageError, match="was there and is gone") as gone:
                write(storage)
            assert gone.value.retryable
    assert not folder.exists()
    folder.mkdir()  # the mount point, with nothing mounted
    with pytest.raises(StorageError, match="was there and is gone"):
        table.put("new/file", b"x")
    assert [*folder.iterdir()] == []
    folder.rmdir()
    (tmp_path / "away").rename(folder)
    table.put("new/file", b"x")
    assert warehouse.get("db.db/t/new/file") == b"x"


def test_a_root_that_nobody_has_seen_is_made(tmp_path):
    storage = LocalStorage(tmp_path / "a" / "b")
    assert [*storage.list()] == []
    assert not storage.exists("x")
    storage.put("c/d", b"x")
    assert storage.get("c/d") == b"x"
