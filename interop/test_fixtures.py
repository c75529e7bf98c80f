"""Each peer reads the tables it wrote long ago: this checks the drivers and the canonical form themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interop import canonical
from interop.peers import REPOSITORY
from interop.session import PeerSession

FIXTURES = REPOSITORY / "tests/data/paimon"
WRITERS = {"java-0.9": "java-0.9", "python-2.1": "pypaimon-2.1"}


def cases() -> list[Any]:
    """Every fixture with the peer that wrote it."""
    return [
        pytest.param(peer, case, id=f"{writer}/{case.name}")
        for writer, peer in WRITERS.items()
        for case in sorted((FIXTURES / writer).iterdir())
        if case.is_dir()
    ]


@pytest.mark.parametrize(("peer", "case"), cases(), indirect=["peer"])
def test_a_peer_reads_what_it_wrote(peer: PeerSession, case: Path) -> None:
    about = json.loads((case / "expected/case.json").read_text())
    misread = {m["state"] for m in about.get("writer_misreads", [])}
    read = 0
    for state in about["states"]:
        if state["name"] in misread or state.get("may_refuse"):
            continue
        select = state["select"]
        branch = f"$branch_{select['branch']}" if "branch" in select else ""
        options = {
            option: str(select[key])
            for key, option in (("snapshot", "scan.snapshot-id"), ("tag", "scan.tag-name"))
            if key in select
        }
        answer = peer.call(
            "read", warehouse=str(case / "warehouse"), table=about["table"] + branch, options=options
        )
        found = canonical.digest(answer["columns"], answer["rows"])
        assert found == state["sha256"], f"state {state['name']}: {answer['rows'][:3]}"
        read += 1
    if not read:
        pytest.skip("the writer cannot read this back itself")
