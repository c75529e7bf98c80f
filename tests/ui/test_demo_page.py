"""The page of the demo's lake in a browser: every view by mouse and by keyboard, wide and narrow, light and dark.

`ANABRANCH_DEMO` names a folder that `anabranch demo --keep` has filled; without it the demo is run first, which takes
minutes. `ANABRANCH_SCREENSHOTS` names a folder for the pictures of the documentation.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ui.browser import accessibility, browsing, fits, need_browser, settle, show, visiting
from tests.ui.conftest import serving

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1800)]

T = "demo.delays"
SHOTS = os.environ.get("ANABRANCH_SCREENSHOTS")
TABS = {
    "Overview": "Rows over time",
    "History": "snapshots",
    "Branches": "seal: nothing can be written after it",
    "Rows": "distance_km",
    "Columns": "least",
    "Files": "Sizes of files",
    "Compare": "files shared",
}
PICTURES = {
    "lake": "#/",
    "history": f"#/table/{T}?tab=history&branch=main@1&snapshot=5",
    "branches": f"#/table/{T}?tab=branches",
    "files": "#/table/demo.flights?tab=files",
    "compare": f"#/table/{T}?tab=compare&left=main@1&right=main&rows=1",
    "impact": f"#/lineage?table={T}&branch=main@1&snapshot=4",
    "correct": f"#/correct?table={T}&tag=good",
}

WITHOUT_FOLDER = """folder => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll("file:" + folder + "/", "").replaceAll(folder + "/", "");
}"""
"""Where the lake lies on this machine is left out of pictures."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    need_browser()
    kept = os.environ.get("ANABRANCH_DEMO")
    if kept is None:
        kept = str(tmp_path_factory.mktemp("demo") / "kept")
        words = [sys.executable, "-m", "anabranch", "demo", "--days", "40", "--keep", kept]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with serving(Path(kept) / "warehouse") as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


def checked(seen, what):
    settle(seen)
    assert seen.get_by_role("alert").count() == 0, what
    assert fits(seen), f"{what} is wider than the screen"
    assert accessibility(seen) == [], what


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_every_view_by_mouse(demo, browser, width, dark):
    with visiting(browser, demo, width=width, dark=dark) as seen:
        seen.get_by_text("need care").wait_for()
        checked(seen, "lake")
        seen.get_by_label("Search tables").fill("delay")
        assert seen.locator("a.row").count() == 1
        seen.locator("a.row").click()
        tabs = seen.get_by_role("navigation", name="Views of the table")
        for tab, told in TABS.items():
            tabs.get_by_role("link", name=tab).click()
            seen.get_by_text(told).first.wait_for()
            checked(seen, tab)
        seen.get_by_role("button", name="Compare rows").click()
        seen.locator(".sign").first.wait_for()
        tabs.get_by_role("link", name="History").click()
        seen.get_by_role("button", name="Zoom in").click()
        seen.get_by_role("button", name="All").click()
        seen.locator(".timeline .mark").first.click()
        seen.get_by_text("Everything it says").click()
        seen.get_by_text('"commitKind"').wait_for()
        checked(seen, "snapshot")
        tabs.get_by_role("link", name="Lineage").click()
        seen.get_by_text(f"Lineage of {T}").wait_for()
        checked(seen, "lineage of a table")
        seen.get_by_label("Way").select_option("down")
        seen.locator(".node.job", has_text="pick-long-hauls").first.click()
        seen.get_by_text("Lineage of pick-long-hauls").wait_for()
        checked(seen, "lineage of a job")
        seen.get_by_role("navigation", name="Main").get_by_role("link", name="Correct").click()
        seen.get_by_label("Table", exact=True).fill(T)
        seen.keyboard.press("Enter")
        seen.get_by_label("Right up to the tag").select_option("good")
        seen.get_by_text("Taken out:").wait_for()
        checked(seen, "correct")


def test_every_view_by_keyboard(demo, browser):
    """Nothing is clicked: Tab and Enter lead to each view, and what has the focus shows it."""
    with visiting(browser, demo) as seen:

        def reach(name, most=60):
            for _ in range(most):
                seen.keyboard.press("Tab")
                focused = seen.evaluate("(document.activeElement.innerText || '').trim()")
                if focused.startswith(name):
                    outline = seen.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                    assert outline != "none", f"the focus of {name} is not seen"
                    return
            pytest.fail(f"Tab does not lead to {name}")

        seen.get_by_text("need care").wait_for()
        settle(seen)
        reach(T)
        seen.keyboard.press("Enter")
        for tab, told in TABS.items():
            seen.evaluate("document.getElementById('main').focus()")
            reach(tab)
            seen.keyboard.press("Enter")
            seen.get_by_text(told).first.wait_for()
            settle(seen)
        for page, told in (("Lineage", "All tables and jobs"), ("Correct", "What is wrong")):
            seen.evaluate("document.querySelector('.skip').focus()")
            reach(page)
            seen.keyboard.press("Enter")
            seen.get_by_text(told).first.wait_for()


def test_the_pictures_of_the_documentation(demo, browser):
    for width, dark, views in (
        (1280, False, PICTURES),
        (1280, True, ("branches", "impact")),
        (400, False, ("lake", "branches")),
    ):
        with visiting(browser, demo, width=width, dark=dark) as seen:
            for name in views:
                show(seen, PICTURES[name])
                seen.locator(".fact, .card").first.wait_for()
                if name == "lake":
                    seen.locator(".row .health").nth(6).wait_for()
                settle(seen)
                seen.evaluate(
                    WITHOUT_FOLDER, demo.site.lake.url.removeprefix("file://").removesuffix("/warehouse")
                )
                picture = seen.screenshot()
                assert len(picture) > 10_000, name
                if SHOTS:
                    suffix = f"{'-dark' if dark else ''}{'-narrow' if width < 600 else ''}"
                    (Path(SHOTS) / f"page-{name}{suffix}.png").write_bytes(picture)
