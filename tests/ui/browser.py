"""A real browser, without a screen, that notes whatever a page complains of or asks for from elsewhere."""

import shutil
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")


def need_browser():
    """Skip unless there is playwright, and a Chromium on PATH; neither is ever installed from here."""
    pytest.importorskip("playwright", reason="tests in a browser need playwright: pip install playwright")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("tests in a browser need Chromium on PATH, as `apt-get install chromium` puts it there")
    return found


@contextmanager
def browsing():
    path = need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visiting(browser, server, *, width=1280, dark=False, excused="never", **how):
    """Open the printed address; at the end the page must not have complained nor asked for anything elsewhere.

    What a complaint that holds the text `excused` is about was meant to fail.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 860}, color_scheme="dark" if dark else "light", **how
    )
    page, complaints = context.new_page(), []
    context.set_default_timeout(30_000)
    page.on("console", lambda said: said.type in ("error", "warning") and complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: _is_ours(asked.url, server) or complaints.append(asked.url))
    page.goto(server.url)
    page.wait_for_selector("main h1, main .card", state="attached")
    yield page
    assert [said for said in complaints if excused not in said] == []
    context.close()


def _is_ours(url, server):
    return urlsplit(url).netloc == f"127.0.0.1:{server.port}" or url.startswith(("data:", "blob:"))


def show(page, address):
    """Go to an address behind the `#` and wait until nothing is being read."""
    page.evaluate("address => { location.hash = address }", address)
    settle(page)


def settle(page):
    from playwright.sync_api import expect

    page.wait_for_timeout(80)
    expect(page.locator(".waiting")).to_have_count(0, timeout=60_000)
    page.wait_for_timeout(60)


def fits(page):
    """Whether the page is no wider than the screen."""
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def accessibility(page):
    """The serious findings of axe, as short texts; none where axe-core is not installed, of which a test tells."""
    if not AXE.exists():
        return []
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run(document)).violations")
    return [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
