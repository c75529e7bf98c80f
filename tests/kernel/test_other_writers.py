"""Tables that Java Paimon and pypaimon wrote are read exactly as expected, in every state of theirs."""

import json
from pathlib import Path

import pytest

import anabranch
from tests.support.canonical import canonical_rows, digest

ROOT = Path(__file__).parent.parent / "data" / "paimon"


def _cases():
    for path in sorted(ROOT.glob("*/*/expected/case.json")):
        case = json.loads(path.read_text())
        for state in case["states"]:
            yield pytest.param(
                path.parent.parent, case, state, id=f"{case['writer']}-{case['case']}-{state['name']}"
            )


def _open(folder, case, select):
    lake = anabranch.connect(str(folder / "warehouse"))
    table = lake.table(case["table"])
    if "branch" in select:
        table = table.branch(select["branch"])
    if "snapshot" in select:
        table = table.at(select["snapshot"])
    if "tag" in select:
        table = table.with_options({"scan.tag-name": select["tag"]})
    return table


@pytest.mark.parametrize(("folder", "case", "state"), [*_cases()])
def test_every_state_reads_as_expected(folder, case, state):
    table = _open(folder, case, state["select"])
    expected = json.loads((folder / "expected" / state["file"]).read_text())
    rows = canonical_rows(table.scan().to_arrow(), table.schema.fields)
    names = [f.name for f in table.schema.fields]
    assert names == [name for name, _ in expected["columns"]]
    assert rows == expected["rows"]
    assert digest(names, rows) == state["sha256"]
    assert len(rows) == state["rows"]
    if state.get("live_files") is not None:
        assert table.scan().plan().files.height == state["live_files"]


def _gone():
    for path in sorted(ROOT.glob("*/*/expected/case.json")):
        case = json.loads(path.read_text())
        for select in case["gone"]:
            yield pytest.param(
                path.parent.parent, case, select, id=f"{case['writer']}-{case['case']}-{select}"
            )


@pytest.mark.parametrize(("folder", "case", "select"), [*_gone()])
def test_what_was_dropped_or_expired_is_not_found(folder, case, select):
    with pytest.raises(anabranch.NotFoundError):
        _open(folder, case, select).scan().to_arrow()
