"""The page as one file."""

import json
import re
import time

import pytest

import anabranch
from anabranch.cli.main import run
from tests.support.lengths import first_short
from tests.ui import shop
from tests.ui.browser import accessibility, browsing, fits, settle

T = "shop.orders"


@pytest.fixture
def made(warehouse, tmp_path):
    def make(*words):
        file = tmp_path / "report.html"
        assert run(["-w", str(warehouse), "report", *words, "-o", str(file)]) == 0
        return file

    return make


def data_of(file):
    text = file.read_text(encoding="utf-8")
    return json.loads(
        re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)[1]
    )


def test_a_report_holds_what_its_page_asks_for_and_loads_nothing(made):
    file = made(T)
    found = data_of(file)
    assert found["start"] == f"#/table/{T}"
    assert found["data"][f"table\ntable={T}"]["snapshot"]["rows"] == 125
    assert len(found["data"][f"history\ntable={T}"]["rows"]) == 13
    text = file.read_text(encoding="utf-8")
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert not re.search(r"""(src|href)=["']?https?:""", text.split("<script")[0])


@pytest.mark.long
def test_a_report_of_a_lake_waits_for_all_of_its_lineage(made, monkeypatch):
    """The page asks again for what is behind; a file is never asked again."""
    from anabranch.table.lake_lineage import LakeLineage

    look = LakeLineage.catch_up

    def slow(lineage):
        time.sleep(1)
        return look(lineage)

    monkeypatch.setattr(LakeLineage, "catch_up", slow)
    found = data_of(made())["data"]
    assert {flow["job"] for flow in found["lineage"]["flows"]} >= {"ingest-orders", "clean", "revenue"}
    assert (found["lineage"]["behind"], found["jobs"]["behind"]) == (False, False)


def test_without_rows_a_report_has_none(made):
    found = data_of(made(T, "--no-rows", "--diff", "main@1..main"))
    assert not [key for key in found["data"] if key.startswith(("rows", "statistics"))]
    assert found["data"][f"diff\nleft=main@1\nright=main\ntable={T}"]["rows"] is None


def test_a_report_holds_no_passwords(tmp_path):
    """They may be among the options that other engines, or people, have stored with a table."""
    lake = anabranch.connect(str(tmp_path / "wh"))
    table = lake.create_table(
        "db.t", "id BIGINT", options={"my.password": "SECRET-1", "sasl.jaas.config": "SECRET-2"}
    )
    change = table.alter().set_option("token", "SECRET-3").set_option("other", "shown")
    change.set_option("url", "jdbc:x://me:SECRET-4@host/db").apply()
    file = tmp_path / "report.html"
    assert run(["-w", str(tmp_path / "wh"), "report", "db.t", "-o", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "SECRET" not in text
    assert data_of(file)["data"]["table\ntable=db.t"]["options"]["other"] == "shown"


def test_a_table_that_cannot_be_read_needs_care(tmp_path):
    lake = anabranch.connect(str(tmp_path / "wh"))
    for name in ("db.a", "db.b"):
        lake.create_table(name, "id BIGINT").append([{"id": 1}])
    (tmp_path / "wh" / "db.db" / "a" / "snapshot" / "snapshot-1").write_text("{")
    file = tmp_path / "report.html"
    assert run(["-w", str(tmp_path / "wh"), "report", "-o", str(file)]) == 0
    with browsing() as browser:
        page = browser.new_page()
        page.goto(file.as_uri())
        settle(page)
        assert page.locator(".fact", has_text="need care").locator("dd").inner_text() == "1"


def test_hostile_text_ends_no_script_of_a_report(made):
    text = made("shop.customers").read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert shop.HOSTILE not in text


def test_a_file_that_cannot_be_written_is_said(warehouse, tmp_path, capsys):
    assert run(["-w", str(warehouse), "report", "-o", str(tmp_path / "nothing" / "r.html")]) == 2
    assert "hint: name a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    first_short(
        [
            (["shop.nothing"], 1),
            (["--diff", "a..b"], 2),
            ([T, "--diff", "a"], 2),
            ([T, "--from-tag", "none"], 1),
        ]
    ),
)
def test_what_cannot_be_reported_is_said(warehouse, tmp_path, words, code, capsys):
    assert run(["-w", str(warehouse), "report", *words, "-o", str(tmp_path / "r.html")]) == code
    assert "Error: " in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "clean_orders"),
        ([T], "Every order of the shop"),
        ([T, "--diff", "main@1..main"], "in cents"),
        ([T, "--from-tag", "good"], "Taken out"),
    ],
)
def test_a_report_opens_anywhere(made, words, told):
    file = made(*words)
    with browsing() as browser:
        page, complaints = (
            browser.new_context(viewport={"width": 400, "height": 800}, offline=True).new_page(),
            [],
        )
        page.on("console", lambda said: said.type in ("error", "warning") and complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda asked: asked.url.startswith(("file:", "data:")) or complaints.append(asked.url)
        )
        page.goto(file.as_uri())
        settle(page)
        page.get_by_text(told).first.wait_for(state="attached")
        assert accessibility(page) == []
        for link in page.locator("nav.tabs a").all():
            link.click()
            settle(page)
            assert page.locator(".problem").count() == 0
            assert fits(page)
        assert complaints == []
