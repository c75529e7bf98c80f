"""The page in a browser: every view opened and used, by mouse and by keyboard, wide and narrow, light and dark."""

import os
import shlex
from pathlib import Path

import pytest

from tests.ui.browser import AXE, accessibility, browsing, fits, settle, show, visiting
from tests.ui.shop import HOSTILE

T = "shop.orders"
VIEWS = {
    "lake": "#/",
    "overview": f"#/table/{T}",
    "history": f"#/table/{T}?tab=history&snapshot=9",
    "branches": f"#/table/{T}?tab=branches",
    "rows": f"#/table/{T}?tab=rows",
    "columns": f"#/table/{T}?tab=columns",
    "files": f"#/table/{T}?tab=files",
    "compare": f"#/table/{T}?tab=compare&left=main@1&right=main&rows=1",
    "lineage": "#/lineage",
    "impact": f"#/lineage?table={T}&branch=main@1&snapshot=10",
    "correct": f"#/correct?table={T}&tag=good",
    "nothing": "#/table/shop.nothing",
    "empty": "#/table/archive.empty?tab=branches",
}
TOLD = {
    "lake": "clean_orders",
    "overview": "Every order of the shop",
    "history": "Snapshot 9",
    "branches": "replaced main",
    "rows": "2026-01-01 00:00:00",
    "columns": "TIMESTAMP(3)",
    "files": "dt=2026-01-05",
    "compare": "in cents",
    "lineage": "ingest-orders",
    "impact": "shop.revenue",
    "correct": "Taken out",
    "nothing": "does not exist",
    "empty": "Nothing was ever written",
}
SHOTS = os.environ.get("ANABRANCH_SCREENSHOTS")
"""A folder to keep pictures in."""


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


def test_the_page_opens_and_shows_a_table(browser, page):
    with visiting(browser, page) as seen:
        assert "token" not in seen.url
        seen.get_by_role("link", name="shop.orders").click()
        seen.get_by_text("Every order of the shop").wait_for()
        seen.get_by_role("link", name="Branches").click()
        seen.get_by_text("sealed: the end of this main").wait_for()


@pytest.mark.long
def test_accessibility_is_checked():
    if not AXE.exists():
        pytest.skip("views are opened but not checked with axe-core: cd web && npm ci")


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_every_view(browser, page, width, dark):
    with visiting(browser, page, width=width, dark=dark, excused="status of 404") as seen:
        for name, address in VIEWS.items():
            show(seen, address)
            seen.get_by_text(TOLD[name]).first.wait_for(state="attached")
            assert fits(seen), f"{name} is wider than {width} pixels"
            if SHOTS:
                seen.screenshot(path=Path(SHOTS) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
            assert accessibility(seen) == [], name


@pytest.mark.long
def test_a_lake_that_is_still_read_is_accessible_too(browser, page):
    with visiting(browser, page) as seen:
        seen.route("**/api/facts?*", lambda _: None)  # which so is never answered
        seen.reload()
        seen.get_by_text("read so far").wait_for()
        assert accessibility(seen) == []
        seen.unroute_all(behavior="ignoreErrors")


@pytest.mark.long
def test_the_browser_is_led_to_the_page_without_showing_the_token(browser, page, monkeypatch):
    import webbrowser

    from anabranch.ui.serve import open_in_browser

    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    file = open_in_browser(page.url)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "token" not in opened[0]
    seen = browser.new_context().new_page()
    seen.goto(opened[0])
    seen.get_by_role("link", name="shop.orders").wait_for()
    file.unlink()


@pytest.mark.long
def test_the_keyboard_is_enough(browser, page):
    with visiting(browser, page) as seen:
        seen.get_by_role("link", name="shop.orders").wait_for()
        seen.keyboard.press("/")
        seen.keyboard.type("shop.")
        seen.keyboard.press("Tab")
        seen.keyboard.press("Tab")
        assert focused(seen).startswith("shop.clean_orders")
        seen.keyboard.press("ArrowDown")
        seen.keyboard.press("ArrowDown")
        assert focused(seen).startswith("shop.orders")
        seen.keyboard.press("Enter")
        seen.get_by_text("Every order of the shop").wait_for()
        show(seen, VIEWS["history"].partition("&")[0])
        timeline = seen.locator("svg.timeline")
        timeline.focus()
        whole = timeline.get_attribute("aria-label")
        for _ in range(6):
            seen.keyboard.press("+")
        assert timeline.get_attribute("aria-label") != whole
        seen.keyboard.press("0")
        assert timeline.get_attribute("aria-label") == whole
        seen.get_by_role("button", name="#13").focus()
        seen.keyboard.press("ArrowDown")
        seen.keyboard.press("Enter")
        seen.get_by_role("heading", name="Snapshot 12").wait_for()


def focused(seen):
    return seen.evaluate("document.activeElement.innerText")


@pytest.mark.long
def test_a_snapshot_leads_on_to_its_rows_its_change_and_its_impact(browser, page, warehouse):
    with visiting(browser, page) as seen:
        show(seen, f"#/table/{T}?tab=history&snapshot=13")
        words = shlex.split(seen.locator(".command code").first.inner_text())
        assert words[:5] == ["anabranch", "-w", str(warehouse), "lineage", "impact"]
        seen.get_by_text("Everything it says").click()
        seen.get_by_text('"commitKind": "APPEND"').wait_for()
        seen.get_by_role("link", name="What it changed").click()
        settle(seen)
        assert seen.locator(".fact", has_text="files added").inner_text().split()[2] == "1"
        seen.get_by_role("button", name="Compare rows").click()
        seen.locator("tr.added").nth(9).wait_for()
        seen.go_back()
        seen.go_back()
        seen.get_by_role("link", name="Rows at it").click()
        seen.get_by_text("main.snapshot.13").or_(seen.get_by_text("snapshot.13 of")).first.wait_for()
        seen.go_back()
        seen.get_by_role("link", name="Where its rows went").click()
        seen.get_by_text("impact of shop.orders").first.wait_for()
        assert seen.get_by_role("alert").count() == 0


@pytest.mark.long
def test_rows_are_filtered_at_a_tag(browser, page):
    with visiting(browser, page, excused="status of 400") as seen:
        show(seen, f"#/table/{T}?tab=rows&at=good")
        seen.get_by_label("Filter rows").fill("id < 3")
        seen.get_by_role("button", name="Filter").click()
        seen.get_by_text("3 rows shown").wait_for()
        seen.get_by_label("Filter rows").fill("no_such = 1")
        seen.get_by_role("button", name="Filter").click()
        assert "no_such" in seen.get_by_role("alert").inner_text()
        seen.get_by_label("Branch").select_option("late")
        assert "branch=late" in seen.url


@pytest.mark.long
def test_the_slider_goes_through_the_snapshots(browser, page):
    with visiting(browser, page) as seen:
        show(seen, f"#/lineage?table={T}&branch=main@1")
        slider = seen.get_by_label("Snapshot", exact=True)
        slider.focus()
        for _ in range(3):
            seen.keyboard.press("ArrowLeft")
        seen.wait_for_url(lambda url: "snapshot=" in url)
        settle(seen)
        seen.locator(".node.hit").nth(2).wait_for()
        seen.get_by_role("button", name="shop.revenue").press("Enter")
        seen.wait_for_url(lambda url: "shop.revenue" in url)
        seen.get_by_label("Search tables and jobs").fill("clean")
        seen.keyboard.press("Enter")
        seen.get_by_text("Lineage of clean").wait_for()


@pytest.mark.long
def test_what_is_written_shows_by_itself(browser, tmp_path):
    from tests.support.tables import make_table, rows
    from tests.ui.conftest import serving

    table = make_table(tmp_path / "w")
    table.append(rows(0, 3))
    with serving(tmp_path / "w") as server, visiting(browser, server) as seen:
        show(seen, "#/table/db.t")
        seen.get_by_text("live").wait_for()
        assert seen.locator(".fact", has_text="rows").first.inner_text().split() == ["rows", "3"]
        table.append(rows(3, 4))
        seen.locator(".fact dd", has_text="7").first.wait_for()


HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.mark.long
def test_a_tab_that_nobody_looks_at_rests_and_then_has_what_was_written_meanwhile(browser, tmp_path):
    """Browsers allow six connections to a server: six tabs that wait for changes would leave none for a seventh."""
    from tests.support.tables import make_table, rows
    from tests.ui.conftest import serving

    table = make_table(tmp_path / "w")
    table.append(rows(0, 3))
    with serving(tmp_path / "w") as server, visiting(browser, server) as seen:
        asked = []
        seen.on("request", lambda request: asked.append(request.url))
        for address in ("#/table/db.t", "#/"):
            show(seen, address)
            seen.get_by_text("live").wait_for()
            seen.evaluate(HIDE, True)
            seen.wait_for_timeout(1_000)
            asked.clear()
            count = table.append(rows(10, 4)).total_record_count
            seen.wait_for_timeout(3_000)
            assert [url for url in asked if "events" in url or "facts" in url or "trend" in url] == []
            seen.evaluate(HIDE, False)
            seen.locator(".fact dd", has_text=str(count)).first.wait_for()


@pytest.mark.long
def test_hostile_texts_are_shown_as_text(browser, tmp_path):
    import pyarrow as pa

    import anabranch
    from tests.ui.conftest import serving

    lake = anabranch.connect(str(tmp_path / "w"))
    named = pa.schema([pa.field("id", pa.int64()), pa.field(HOSTILE, pa.string())])
    table = lake.create_table("db.t", named, comment=HOSTILE, options={"x.note": HOSTILE})
    with lake.job("job <script>alert(2)</script>", code=HOSTILE) as job:
        job.read_from(f"javascript:alert(3)//{HOSTILE}")
        table.append(pa.table({"id": [1], HOSTILE: ["</script><script>alert(4)</script>"]}))
    table.create_tag(HOSTILE.replace("/", "_"))
    with serving(tmp_path / "w") as server, visiting(browser, server) as seen:
        seen.on("dialog", lambda dialog: pytest.fail(f"it ran: {dialog.message}"))
        for address in ("#/", "#/lineage", "#/lineage?table=db.t&snapshot=1", f"#/{HOSTILE}"):
            show(seen, address)
        for tab in (
            "overview",
            "history&snapshot=1",
            "branches",
            "rows",
            "columns",
            "files",
            "compare&rows=1",
        ):
            show(seen, f"#/table/db.t?tab={tab}")
            assert seen.locator("main img, main script, main iframe").count() == 0
        show(seen, "#/table/db.t?tab=rows")
        seen.get_by_text("</script><script>alert(4)</script>").wait_for()


@pytest.mark.long
def test_the_theme_is_chosen_and_remembered(browser, page):
    with visiting(browser, page) as seen:
        light = seen.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.get_by_role("button", name="Colours: auto").click()
        seen.get_by_role("button", name="Colours: light").click()
        seen.get_by_role("button", name="Colours: dark").wait_for()
        seen.wait_for_timeout(100)
        dark = seen.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark != light
        seen.reload()
        seen.get_by_role("button", name="Colours: dark").wait_for()
        assert seen.evaluate("getComputedStyle(document.body).backgroundColor") == dark
