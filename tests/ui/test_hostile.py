"""Hostile texts in every field that people, jobs or other engines fill: the page and the report show them as text."""

from contextlib import contextmanager

import pyarrow as pa
import pytest

import anabranch
from anabranch.cli.main import run
from anabranch.jobs.board import Board
from anabranch.jobs.lease import Wanted
from anabranch.jobs.status import Activity, JobStatus, State
from anabranch.jobs.taking import take
from anabranch.storage.open import open_storage
from tests.ui.browser import accessibility, browsing, fits, settle, show, visiting
from tests.ui.conftest import serving
from tests.ui.shop import HOSTILE

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

T = f"db.{HOSTILE}"
BASE = "<b onclick=alert(2)>"
QUOTES = "\"'><svg onload=alert(3)>`${alert(4)}{{1}}\u202e"
SEEN = QUOTES.replace("\u202e", "")
"""What may name a job: all of it can be seen."""
END = "</script></style></textarea><script>alert(5)</script>"
LINK = f"javascript:alert(6)//{HOSTILE}"
INJECTED = "main img, main script, main iframe, main svg[onload], main [onclick], main [onerror], main a[href^=javascript]"
VIEWS = {
    "lake": ("#/", HOSTILE),
    "overview": ("#/table/{t}", QUOTES),
    "history": ("#/table/{t}?tab=history&snapshot=2", "Snapshot 2"),
    "branches": ("#/table/{t}?tab=branches", END),
    "rows": ("#/table/{t}?tab=rows", END),
    "columns": ("#/table/{t}?tab=columns", LINK),
    "files": ("#/table/{t}?tab=files", "Sizes of files"),
    "compare": ("#/table/{t}?tab=compare&left=main@1&right=main&rows=1", "files shared"),
    "at a tag": ("#/table/{t}?tab=rows&at={h}", HOSTILE),
    "lineage": ("#/lineage", "job"),
    "lineage of a table": ("#/lineage?table={t}", "Flows"),
    "impact": ("#/lineage?table={t}&branch=main@1&snapshot=1", "What it reached"),
    "upstream": ("#/lineage?table=db.t&snapshot=1&way=up", "What it came from"),
    "a job": ("#/lineage?node=job%20{h}", "Flows"),
    "correct": ("#/correct?table={t}&tag={h}", "Taken out"),
    "no such view": ("#/{h}", "There is no such page"),
    "no such table": ("#/table/{h}", None),
    "no such node": ("#/lineage?node=no%20{h}", "Nothing in the lineage is called"),
    "no such branch": ("#/table/{t}?branch={h}", None),
    "no such moment": ("#/table/{t}?at={q}", None),
    "a wrong filter": ("#/table/{t}?tab=rows&filter={q}", None),
    "no such tab": ("#/table/{t}?tab={q}", "Rows over time"),
}
"""Addresses, and what is to be seen there; None where a problem is told."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A warehouse, its table and everything about it, named by somebody who means harm."""
    url = str(tmp_path_factory.mktemp("h") / f"{BASE}w&\"'")
    lake = anabranch.connect(url)
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("p", pa.string(), nullable=False),
            pa.field(HOSTILE, pa.string()),
            pa.field('"><td>', pa.string()),
        ]
    )
    options = {"x.note": HOSTILE, QUOTES: END}
    table = lake.create_table(T, schema, partition_by=["p"], comment=QUOTES, options=options)
    other = lake.create_table("db.t", "id BIGINT, v STRING")
    lake.create_table(f"{BASE}.t", "id BIGINT", comment=END)

    def rows(first):
        values = {
            "id": [first, first + 1],
            "p": [HOSTILE, QUOTES],
            HOSTILE: [END, LINK],
            '"><td>': [QUOTES, HOSTILE],
        }
        return pa.table(values, schema=schema)

    for number, code in enumerate((HOSTILE, END)):
        with lake.job(f"job {HOSTILE}", code=code) as job:
            job.read_from(LINK, kind="files")
            job.read_from(QUOTES, kind="unknown")
            table.append(rows(2 * number))
        if not number:
            table.create_tag(HOSTILE)
            table.create_tag(SEEN)
    with lake.job(SEEN, code=LINK):
        read = lake.table(T).scan(columns=["id", HOSTILE]).to_arrow().rename_columns(["id", "v"])
        other.append(read)
    table.create_branch("fix", tag=HOSTILE)
    table.branch("fix").append(rows(9))
    table.replace_main_branch("fix", force=True, by=QUOTES, reason=END)
    table.create_savepoint()
    table.alter().add_column("<i>c", "STRING", comment=LINK, default=HOSTILE).apply()
    other.create_tag("good")
    other.create_branch("mend", tag="good")
    lake.replace_group({"db.t": "mend"}, force=True, by=HOSTILE, reason=END)
    return url


@contextmanager
def running(url):
    """A job that runs, and tells of its troubles."""
    leases = take(Board(open_storage(url)), [Wanted(f"job {HOSTILE}", f"job {HOSTILE}", T)])
    told = {"message": END, "hint": LINK, "last_error": HOSTILE, "last_hint": QUOTES, "last_error_millis": 1}
    leases.note(
        [JobStatus(f"job {HOSTILE}", T, State.RUNNING, batch=1, activity=Activity.IDLE, read={}, **told)]
    )
    leases.beat()
    try:
        yield
    finally:
        leases.release()


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


def address(text):
    from urllib.parse import quote

    return text.format(t=quote(T, safe=""), h=quote(HOSTILE, safe=""), q=quote(QUOTES, safe=""))


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_the_page_shows_them_as_text(browser, hostile, width, dark):
    with (
        running(hostile),
        serving(hostile, allow_actions=True, checks=[END]) as server,
        visiting(browser, server, width=width, dark=dark, excused="status of 4") as seen,
    ):
        seen.on("dialog", lambda dialog: pytest.fail(f"it ran: {dialog.message}"))
        for name, (where, told) in VIEWS.items():
            show(seen, address(where))
            shown = seen.get_by_role("alert") if told is None else seen.get_by_text(told)
            shown.first.wait_for(state="attached")
            assert seen.locator(INJECTED).count() == 0, name
            assert fits(seen), f"{name} is wider than the screen"
            assert accessibility(seen) == [], name
        show(seen, "#/")
        seen.locator("summary", has_text=f"job {HOSTILE}").click()
        seen.get_by_text(LINK).first.wait_for()
        assert END in seen.locator("main").inner_text()
        assert seen.evaluate("document.title") == "Tables · Anabranch"


@pytest.mark.parametrize("words", [(), (T,), (T, "--diff", "main@1..main"), (T, "--from-tag", HOSTILE)])
def test_the_report_shows_them_as_text(browser, hostile, tmp_path, words):
    file = tmp_path / "report.html"
    assert run(["-w", hostile, "report", *words, "-o", str(file)]) == 0
    seen, complaints = browser.new_page(), []
    seen.on("dialog", lambda dialog: complaints.append(dialog.message))
    seen.on("console", lambda said: said.type == "error" and complaints.append(said.text))
    seen.goto(file.as_uri())
    seen.locator("main .card").first.wait_for()
    for tab in seen.locator(".tabs a").all() if words else ():
        tab.click()
        settle(seen)
        assert seen.locator(INJECTED).count() == 0
    assert seen.locator(INJECTED).count() == 0
    assert HOSTILE in seen.locator("main").inner_text()
    assert complaints == []
    seen.close()
