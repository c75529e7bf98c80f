"""The page of the demo's lake in a browser: every view by mouse and by keyboard, wide and narrow, light and dark.

`ANABRANCH_DEMO` names a folder that `anabranch demo --keep` has filled; without it the demo is run first, which takes
minutes. `ANABRANCH_SCREENSHOTS` names a folder for the pictures of the documentation.
"""

import os
import re
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

FOCUSED = """() => {
  const it = document.activeElement, label = it.getAttribute("aria-label") ?? it.labels?.[0]?.innerText ?? "";
  return [(it.innerText || "").trim(), label];
}"""
IS_SEEN = """() => {
  const it = document.activeElement, box = it.querySelector(":scope > rect");  // a node of a drawing has a thicker edge
  return getComputedStyle(it).outlineStyle !== "none" || (box !== null && getComputedStyle(box).strokeWidth === "3.5px");
}"""
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


SCREENS = [(1280, False), (1280, True), (400, False), (400, True)]


@pytest.mark.parametrize(("width", "dark"), SCREENS)
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


@pytest.mark.parametrize(("width", "dark"), SCREENS)
def test_every_view_by_keyboard(demo, browser, width, dark):
    """Nothing is clicked: Tab and Enter lead to each view, keys filter and use it, and what has the focus shows it."""
    with visiting(browser, demo, width=width, dark=dark) as seen:

        def reach(name, at=None, most=120):
            """Press Tab until something has the focus that begins with a text, or has a label."""
            for _ in range(most):
                seen.keyboard.press("Tab")
                focused, label = seen.evaluate(FOCUSED)
                if re.match(at, label) if at is not None else focused.startswith(name):
                    assert seen.evaluate(IS_SEEN), f"the focus of {at or name} is not seen"
                    return
            pytest.fail(f"Tab does not lead to {at or name}")

        def begin():
            settle(seen)
            seen.evaluate("document.getElementById('main').focus()")

        seen.get_by_text("need care").wait_for()
        settle(seen)
        seen.keyboard.press("/")
        seen.keyboard.type("delay")
        seen.wait_for_function("document.querySelectorAll('a.row').length === 1")
        reach(T)
        seen.keyboard.press("Enter")
        for tab, told in TABS.items():
            begin()
            reach(tab)
            seen.keyboard.press("Enter")
            seen.get_by_text(told).first.wait_for()
            checked(seen, tab)
            begin()
            match tab:
                case "History":
                    reach("+")
                    seen.keyboard.press("Enter")
                    seen.get_by_text(re.compile(r"snapshots? of \d")).wait_for()
                    reach("All")
                    seen.keyboard.press("Enter")
                    reach("#")  # the list, which scrolls
                    reach("#")  # its first snapshot
                    seen.keyboard.press("ArrowDown")
                    seen.keyboard.press("Enter")
                    seen.get_by_text("Everything it says").wait_for()
                    reach("Everything it says")
                    seen.keyboard.press("Enter")
                    seen.get_by_text('"commitKind"').wait_for()
                case "Rows":
                    reach("", at="Filter rows")
                    seen.keyboard.type("distance_km > 1000000")
                    seen.keyboard.press("Enter")
                    seen.get_by_text("No rows.").wait_for()
                case "Compare":
                    reach("Compare rows")
                    seen.keyboard.press("Enter")
                    seen.get_by_text("Compare rows").wait_for(state="hidden")
        begin()
        reach("Lineage")
        seen.keyboard.press("Enter")
        seen.get_by_text(f"Lineage of {T}").wait_for()
        begin()
        reach("", at="Way")
        seen.keyboard.press("ArrowUp")  # of both, down and up
        seen.wait_for_url(lambda url: "way=" in url)
        begin()
        reach("", at="Snapshot")
        seen.keyboard.press("ArrowLeft")
        seen.wait_for_url(lambda url: "snapshot=" in url)
        begin()
        reach("", at=re.compile("job pick-long-hauls|pick-long-hauls"))
        seen.keyboard.press("Enter")
        seen.get_by_text("Lineage of pick-long-hauls").wait_for()
        checked(seen, "lineage of a job")
        seen.evaluate("document.querySelector('.skip').focus()")
        reach("Correct")
        seen.keyboard.press("Enter")
        seen.get_by_text("What is wrong").first.wait_for()
        begin()
        reach("", at="Table")
        seen.keyboard.type(T)
        seen.keyboard.press("Enter")
        begin()
        reach("", at="Right up to the tag")
        seen.keyboard.type("good")
        seen.get_by_text("Taken out:").wait_for()
        checked(seen, "correct")


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
