"""Links out of a store's folder that somebody else planted, and may change while they are looked at."""

import itertools
import os
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pyarrow as pa
import pytest

from anabranch.arrow.files import open_file, translated
from anabranch.errors import AnabranchError, NotFoundError, StorageError, UnreadableFileError
from anabranch.storage import links_out
from anabranch.storage.local import LocalStorage

THEIRS = 4321

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a link look like somebody else's")


def whole_input(storage, path):
    with storage.open_input(path) as file:
        return file.read()


def natively(storage, path):
    with translated(path), open_file(storage, SimpleNamespace(path=path, size=6)) as file:
        assert isinstance(file, pa.OSFile)
        return file.read()


READS = {
    "native": natively,
    "whole": lambda storage, path: storage.get(path),
    "range": lambda storage, path: storage.get_range(path, 0, 6),
    "input": whole_input,
}


@pytest.fixture(params=["linux", "other systems"])
def system(request, monkeypatch):
    """Whether the system says where an open file lies."""
    if request.param != "linux":
        monkeypatch.setattr(links_out, "_DESCRIPTORS", "/nowhere")
    return request.param


@pytest.fixture
def places(tmp_path):
    """A store, a private folder beside it, and a folder that an administrator linked into the store."""
    for name in ("store/d", "private", "disk"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "private/secret").write_bytes(b"SECRET")
    (tmp_path / "disk/rows").write_bytes(b"rows")
    (tmp_path / "store/linked").symlink_to("../disk")
    return tmp_path


def plant(link, target, by=THEIRS):
    """Put a link of somebody else in the place of whatever is there."""
    link.with_name("new").symlink_to(target)
    os.chown(link.with_name("new"), by, by, follow_symlinks=False)
    os.replace(link.with_name("new"), link)


def put_decoy(file):
    file.with_name("new").write_bytes(b"decoy")
    os.replace(file.with_name("new"), file)


CALLS = ("open", "fstat", "readlink", "lstat", "stat", "dup2", "fsencode")


@contextmanager
def disturbed(monkeypatch, acts):
    """Between the calls of the system somebody acts: after which call of this thread, by its number, and what."""
    count, busy, own = itertools.count(1), [], threading.get_ident()

    def watched(real):
        def call(*arguments, **named):
            result = real(*arguments, **named)
            if not busy and threading.get_ident() == own:  # others, left by other tests, would act in between
                busy.append(True)
                acts.get(next(count), lambda: None)()
                busy.clear()
            return result

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, watched(getattr(os, name)))
        yield count


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_planted_link_that_is_changed_while_it_is_judged_shows_nothing(places, system, monkeypatch, read):
    file = places / "store/d/x"
    storage = LocalStorage(places / "store")
    for first in range(1, 30):
        plant(file, places / "private/secret")
        with disturbed(monkeypatch, {first: lambda: put_decoy(file)}):
            try:
                found = read(storage, "d/x")
            except AnabranchError:
                found = None
        assert found in (None, b"decoy"), f"changed after call {first}"


@pytest.mark.long
def test_nor_one_that_is_changed_and_put_back(places, monkeypatch):
    file = places / "store/d/x"
    storage = LocalStorage(places / "store")
    for first, second in itertools.combinations(range(1, 24), 2):
        plant(file, places / "private/secret")
        acts = {first: lambda: put_decoy(file), second: lambda: plant(file, places / "private/secret")}
        with disturbed(monkeypatch, acts):
            try:
                found = storage.get("d/x")
            except AnabranchError:
                found = None
        assert found in (None, b"decoy"), f"changed after calls {first} and {second}"


def test_a_link_of_an_administrator_is_not_taken_for_what_is_put_in_its_place(places, monkeypatch):
    """The very link that was judged is followed."""
    link = places / "store/linked"
    storage = LocalStorage(places / "store")
    (places / "private/rows").write_bytes(b"SECRET")
    for first in range(1, 30):
        plant(link, places / "disk", by=0)
        with disturbed(monkeypatch, {first: lambda: plant(link, places / "private")}):
            try:
                found = storage.get("linked/rows")
            except AnabranchError:
                found = None
        assert found in (None, b"rows"), f"changed after call {first}"


def test_what_an_administrator_links_is_read(places, system):
    storage = LocalStorage(places / "store")
    plant(places / "disk/again", "rows")
    (places / "disk/other").symlink_to("../private/secret")
    (places / "store/up").symlink_to(places / "store/d/../linked")
    for read in READS.values():
        assert read(storage, "linked/rows") == b"rows"
        assert read(storage, "linked/other") == b"SECRET"
        with pytest.raises(UnreadableFileError, match="again is a link out of"):
            read(storage, "linked/again")
        assert read(storage, "up/rows") == b"rows"
    with storage.open_input("linked/rows") as file:
        assert not os.get_inheritable(file.fileno())
    with pytest.raises(NotFoundError):
        storage.get("linked/none")


def test_a_link_that_leads_on_by_a_planted_one_is_not_followed(places):
    """Also where the first of them is an administrator's."""
    storage = LocalStorage(places / "store")
    (places / "store/d/first").symlink_to("second")
    plant(places / "store/d/second", "../../private/secret")
    with pytest.raises(UnreadableFileError, match=f"second is a link out of .* that user {THEIRS} made"):
        storage.get("d/first")
    plant(places / "store/d/second", "../linked/rows")
    with pytest.raises(UnreadableFileError, match="second is a link"):
        storage.get("d/first")


def test_a_planted_link_that_stays_inside_is_followed(places, system):
    storage = LocalStorage(places / "store")
    storage.put("d/own", b"own")
    plant(places / "store/inside", "d/own")
    assert {read(storage, "inside") for read in READS.values()} == {b"own"}


def test_a_file_that_changes_each_time_ends_at_some_time(places, monkeypatch):
    monkeypatch.setattr(links_out, "_DESCRIPTORS", "/nowhere")
    file = places / "store/d/x"
    put_decoy(file)
    storage = LocalStorage(places / "store")
    always = dict.fromkeys(range(1, 1_000), lambda: put_decoy(file))
    with (
        disturbed(monkeypatch, always),
        pytest.raises(StorageError, match="another file each time"),
    ):
        storage.get("d/x")
