"""A lake with something of everything, and the page of it."""

import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("uvicorn", reason="the extra 'ui' is not installed")

import anabranch
from anabranch.ui.serve import Server
from anabranch.ui.site import Site
from tests.ui import shop


@contextmanager
def serving(url, **how):
    """Serve the page of a warehouse from a thread of this process."""
    server = Server(Site(anabranch.connect(str(url)), warehouse=str(url), **how), 0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture(scope="package")
def warehouse(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    shop.build(folder / "w")
    return folder / "w"


@pytest.fixture(scope="package")
def page(warehouse):
    with serving(warehouse) as server:
        yield server
