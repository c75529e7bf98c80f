"""Builds the documentation of this version into site/VERSION, beside the versions that are there already.

python tools/build_site.py [FOLDER]

The theme shows a choice of versions from FOLDER/versions.json; FOLDER/index.html leads to the newest release, or, before the
first one, to the newest version. Publish the folder as it is: a release adds its own subfolder and changes no other.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.dev(\d+))?")


def build(folder: Path, version: str) -> None:
    """Build this version's pages. Raises `CalledProcessError` for a broken link or anchor."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder / version]
    subprocess.run(words, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def list_versions(folder: Path) -> list[dict[str, object]]:
    """Write versions.json and index.html for the versions that are in the folder; return the former, newest first."""
    names = [path.name for path in folder.iterdir() if VERSION.fullmatch(path.name)]
    ordered = sorted(names, key=_order, reverse=True)
    newest = next((name for name in ordered if "dev" not in name), ordered[0])
    listed: list[dict[str, object]] = [
        {"version": name, "title": _title(name), "aliases": ["latest"] if name == newest else []}
        for name in ordered
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>Anabranch</title><meta http-equiv="refresh" content="0; url={newest}/">'
        f'<a href="{newest}/">Documentation of {newest}</a>\n',
        encoding="utf-8",
    )
    return listed


def _order(name: str) -> tuple[int, int, int, int]:
    found = VERSION.fullmatch(name)
    assert found is not None, "only versions are ordered"
    major, minor, patch, dev = found.groups()
    return int(major), int(minor), int(patch), int(dev) if dev is not None else sys.maxsize


def _title(name: str) -> str:
    return re.sub(r"\.dev\d+$", " (in development)", name)


if __name__ == "__main__":
    target = (Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site").absolute()
    scope: dict[str, str] = {}
    exec((ROOT / "src" / "anabranch" / "version.py").read_text(encoding="utf-8"), scope)
    build(target, scope["__version__"])
    list_versions(target)
