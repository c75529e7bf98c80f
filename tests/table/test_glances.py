"""What people hold fits on a screen, in a terminal and in a notebook, whatever the values hold."""

import datetime as dt
import html.parser
import re
import xml.etree.ElementTree as ET

import pytest

import anabranch
from anabranch.kernel.branches.branch_info import branch_infos
from anabranch.tabular import Glance, one_screen, size_text, time_text

EVIL = "<script>alert(1)</script>\x1b[31m\n'\"&"


@anabranch.job("clean", sources={"raw": "db.t"}, sink="db.u")
def clean(raw):
    return raw


@pytest.fixture
def lake(tmp_path):
    return anabranch.connect(str(tmp_path))


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """One of each, of a table with many partitions, columns and hostile values."""
    lake = anabranch.connect(str(tmp_path_factory.mktemp("held")))
    columns = ", ".join(f"c{n} STRING" for n in range(60))
    table = lake.create_table("db.t", f"id INT, p STRING, {columns}", partition_by="p", comment=EVIL)
    with lake.job("writer"):
        table.append([{"id": n, "p": f"{n:03}{EVIL}"} for n in range(20)])
    table.create_tag("good")
    table.create_branch("fix", tag="good")
    table.branch("fix").append([{"id": n, "p": f"{n:03}{EVIL}", "c0": EVIL} for n in range(20)])
    with lake.job("copy"):
        copy = lake.create_table("db.u", data=table.scan(columns=["id", "p"]))
    return {
        "lake": lake,
        "table": table,
        "pinned": table.at("good"),
        "scan": table.scan(f"p <> '{EVIL.replace(chr(39), chr(39) * 2)}'", limit=5),
        "changes": table.changes(0),
        "plan": table.scan().plan(),
        "snapshot": table.snapshot,
        "diff": table.diff("main", "fix"),
        "branch": branch_infos(table.context)[1],
        "health": table.health(),
        "preview": table.merge_branch("fix", dry_run=True),
        "merge": table.merge_branch("fix"),
        "trace": copy.lineage.upstream(),
        "job": clean,
    }


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = set()

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def test_all_of_them_fit_on_a_screen(held):
    for name, value in held.items():
        text = repr(value)
        lines = text.split("\n")
        assert len(lines) <= 24, (name, text)
        assert max(map(len, lines)) <= 120, (name, text)
        assert "\x1b" not in text, name


def test_in_a_notebook_values_are_escaped_and_tables_small(held):
    for name, value in held.items():
        page = value._repr_html_()
        tags = Tags()
        tags.feed(page)
        assert "script" not in tags.found, name
        assert "\x1b" not in page, name
        assert page.count("<tr>") <= 25, name


def test_they_say_what_matters(held):
    table, scan, plan = repr(held["table"]), repr(held["scan"]), repr(held["plan"])
    assert table == "<Table db.t>"
    assert scan.startswith("Scan of db.t at snapshot 1, not read yet")
    assert "limit    5" in scan
    assert "50 more" in scan
    assert "20 files in 20 splits, 20 rows" in plan
    assert re.fullmatch(
        r"<Snapshot 1 APPEND, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, \+20 rows, 20 in all>",
        repr(held["snapshot"]),
    )
    assert repr(held["branch"]) == "<Branch fix, ready, snapshot 1>" or "Branch fix" in repr(held["branch"])
    assert "rows: 20 added" in repr(held["merge"])
    assert "merged by snapshot" in repr(held["merge"])
    assert "nothing written" in repr(held["preview"])
    assert "to db.u, append" in repr(held["job"])
    assert "table db.t" in repr(held["job"])
    assert "db.t" in repr(held["trace"])
    page = held["table"]._repr_html_()
    assert "partitioned by p" in page
    assert "<td>VARCHAR" in page or "<td>STRING" in page
    assert "<td>db</td>" in held["lake"]._repr_html_()


def test_a_trace_is_a_drawing(held):
    page = held["trace"]._repr_html_()
    ET.fromstring(page[page.index("<svg") : page.rindex("</svg>") + 6])


def test_a_difference_keeps_its_text_in_jupyter(held, monkeypatch, capsys):
    import rich.console

    plain = str(held["diff"])
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    assert str(held["diff"]) == plain
    assert "rows in them" in plain
    assert capsys.readouterr().out == ""


def test_looking_at_what_is_gone_is_no_error(lake, tmp_path):
    table = lake.create_table("db.gone", "id INT")
    lake.drop_table("db.gone")
    assert repr(table) == "<Table db.gone>"
    assert table._repr_html_().startswith("<pre>")
    with pytest.raises(anabranch.NotFoundError):
        _ = table.schema
    assert "<pre>" in anabranch.connect(str(tmp_path / "nowhere"))._repr_html_()
    assert lake.create_table("db.empty", "id INT")._repr_html_().count("never written") == 1
    assert "before its first snapshot" in repr(lake.table("db.empty").scan())
    assert "never written" in repr(lake.table("db.empty").scan().plan())


def test_a_glance_is_bounded_whatever_it_is_of():
    glance = Glance("t" * 500, ["f\n" * 500] * 500, ("a", "b"), [("x" * 500, n) for n in range(500)])
    assert len(glance.text().split("\n")) <= 24
    assert max(map(len, glance.text().split("\n"))) <= 120
    assert "500" in glance.html()
    assert one_screen("a\n" * 500).count("\n") == 23
    assert one_screen("a\x1b[31mb") == r"a\x1b[31mb"


def test_sizes_and_times_are_for_people():
    assert [size_text(n) for n in (0, 1023, 1024, 3 * 2**30)] == [
        "0 bytes",
        "1,023 bytes",
        "1.0 KB",
        "3.0 GB",
    ]
    moment = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    assert time_text(int(moment.timestamp() * 1000)) == "2026-01-31 12:00:00 UTC"
    assert time_text(2**62) == f"{2**62:,} ms"
