"""The committed bundle is what its source makes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from anabranch.ui.assets import read_asset

WEB = Path(__file__).parents[2] / "web"
STATIC = ("app.css", "app.js", "icon.svg", "index.html", "licenses.txt")


def test_all_files_of_the_page_are_there_and_load_nothing_from_elsewhere():
    for name in STATIC:
        assert read_asset(name)
    loaded = re.findall(
        rb"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//[^\"')\s]+", read_asset("index.html")
    )
    assert loaded == []
    assert b"//" not in re.sub(rb"/\*.*?\*/", b"", read_asset("app.css"), flags=re.DOTALL)


def test_names_of_registries_are_not_committed():
    assert "resolved" not in (WEB / "package-lock.json").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_bundle_is_current(tmp_path):
    if not (WEB / "node_modules" / "esbuild").exists() or shutil.which("npx") is None:
        pytest.skip("the bundle is made by npm: cd web && npm ci")
    scripts = (WEB / "package.json").read_text(encoding="utf-8")
    command = re.search(r'"bundle": "(.*?)"', scripts)[1].split()
    made = [*command[:-1], f"--outfile={tmp_path / 'app.js'}"]
    assert command[-1].startswith("--outfile=")
    subprocess.run(["npx", "--no-install", *made], cwd=WEB, check=True, capture_output=True)
    for name in ("app.js", "app.css"):
        assert (tmp_path / name).read_bytes() == read_asset(name), f"{name}: run make web"
