"""Peers as fixtures: one driver process each for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.session import PeerSession

READERS = ("java-0.9", "pypaimon-2.1")


@pytest.fixture(scope="session")
def java() -> Iterator[PeerSession]:
    """Java Paimon 0.9."""
    with PeerSession("java-0.9") as session:
        yield session


@pytest.fixture(scope="session")
def pypaimon() -> Iterator[PeerSession]:
    """Pypaimon 2.1."""
    with PeerSession("pypaimon-2.1") as session:
        yield session


@pytest.fixture(params=READERS)
def peer(request: pytest.FixtureRequest) -> PeerSession:
    """Each peer in turn, or the one named by the test's parameters."""
    session: PeerSession = request.getfixturevalue(
        {"java-0.9": "java", "pypaimon-2.1": "pypaimon"}[request.param]
    )
    return session
