"""The stores that every test of behaviour runs on."""

import pytest
from obstore.store import MemoryStore

from anabranch.storage import open_storage
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage
from anabranch.storage.object_options import Clients
from anabranch.storage.objects import ObjectStorage
from tests.support.s3 import running_s3

KINDS = ("local", "memory", "objects", pytest.param("s3", marks=pytest.mark.s3))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def storage(kind, tmp_path, request):
    """An empty store."""
    if kind == "local":
        return LocalStorage(tmp_path / "store")
    if kind == "memory":
        return MemoryStorage()
    if kind == "objects":
        return in_memory_bucket().scoped("some/folder")
    server = request.getfixturevalue("s3_server")
    return open_storage(server.new_url(), server.options)


def in_memory_bucket():
    store = MemoryStore()
    return ObjectStorage(Clients(store, store), url="bucket-in-memory://")
