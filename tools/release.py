"""Builds a release and checks it as its users meet it: `make release`, before a maintainer uploads what is in dist/.

1. the version, the changelog and the kept warehouses of tests/data/releases belong together;
2. source package and wheel are built, with a README whose links lead out of the tree (`--pages URL`), and pass twine's check;
3. the README is rendered as an index shows it, and no link or picture in it is relative;
4. the wheel is installed in fresh environments, on every Python from 3.11 that is found, once with the newest and once with the
   oldest libraries that it allows, and writes, branches, merges and reads a table there, without extras;
5. the notes of the release are taken from the changelog, into dist/NOTES.md.

A version that ends with .dev0 is built and checked as well, as a rehearsal.
"""

from __future__ import annotations

import argparse
import html.parser
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
sys.path.insert(0, str(ROOT / "tools"))

from index_readme import readme  # noqa: E402

OLDEST_PYTHON, NEWEST_PYTHON = 11, 14
SMOKE = """
import sys, tempfile
import anabranch
from importlib import metadata
assert metadata.version("anabranch") == anabranch.__version__ == sys.argv[1]
lake = anabranch.connect(tempfile.mkdtemp())
t = lake.create_table("db.t", "id BIGINT, name STRING")
t.append([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
t.create_tag("good")
t.create_branch("fix", "good")
t.branch("fix").append([{"id": 3, "name": "c"}])
t.merge_branch("fix")
assert sorted(lake.table("db.t").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
assert sorted(lake.table("db.t").at("good").scan().to_arrow()["id"].to_pylist()) == [1, 2]
assert lake.table("db.t").verify().ok
"""


class ReleaseError(Exception):
    """What is built cannot be released; the message says what to do."""


def version() -> str:
    """The version of the tree."""
    text = (ROOT / "src/anabranch/version.py").read_text()
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise ReleaseError("src/anabranch/version.py has no version")
    return found[1]


def notes(wanted: str, changelog: str) -> str:
    """The section of a version in the changelog; of what is not released yet for one that ends with .dev0."""
    title = "Unreleased" if wanted.endswith(".dev0") else wanted
    found = re.search(
        rf"^## \[{re.escape(title)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None or not found[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no section [{title}], or nothing in it: write what users see")
    return found[1].strip() + "\n"


def check_kept(wanted: str) -> None:
    """Assert that the warehouse of this release is kept for the tests of later ones."""
    number = wanted.removesuffix(".dev0")
    archive = f"tests/data/releases/{number}.tar.gz"
    if not (ROOT / archive).is_file():
        raise ReleaseError(f"{archive} is not there: python -m tests.compatibility.kept {archive}")


def relative(page: str) -> list[str]:
    """Links and pictures of a rendered page that lead nowhere where there is no tree beside it."""
    found: list[str] = []

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for name, value in attrs:
                if name in ("href", "src", "srcset") and value and not re.match(r"https?:|#|mailto:", value):
                    found.append(value)

    Links().feed(page)
    return found


def rendered(text: str) -> str:
    """Markdown as an index shows it, by the library that indexes use."""
    from readme_renderer.markdown import render

    page = render(text, variant="GFM")
    if not page:
        raise ReleaseError("README.md cannot be rendered as an index does")
    return page


def build(pages: str, folder: Path) -> tuple[Path, Path]:
    """Build source package and wheel in a copy of the tree whose README stands alone; return both."""
    tree = folder / "tree"
    files = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, files.split("\0")):
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    page = readme(pages)
    if left := relative(rendered(page)):
        raise ReleaseError(f"README.md has links that lead nowhere on an index: {', '.join(left)}")
    (tree / "README.md").write_text(page)
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(DIST), str(tree))
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source))
    return source, wheel


def pythons() -> Iterator[tuple[int, str]]:
    """Every Python that is supported and there: its minor version and its path."""
    places = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for minor in range(OLDEST_PYTHON, NEWEST_PYTHON + 1):
        own = [sys.executable] if sys.version_info[:2] == (3, minor) else []
        found = [
            *own,
            shutil.which(f"python3.{minor}"),
            *map(str, sorted(places.glob(f"3.{minor}.*/bin/python"))),
        ]
        for place in filter(None, found):
            said = subprocess.run([place, "--version"], capture_output=True, text=True, check=False).stdout
            if f"3.{minor}." in said:
                yield minor, place
                break
        else:
            print(f"Python 3.{minor}: not on this machine, not tried", flush=True)


def lowest() -> list[str]:
    """The lower bounds of what the wheel needs, to the letter."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [re.sub(r">=([^,;]+).*", r"==\1", one) for one in needed]


def try_wheel(wheel: Path, python: str, libraries: list[str], folder: Path) -> None:
    """Install the wheel in an environment of its own and use it from another folder than the tree."""
    run(python, "-m", "venv", str(folder / "venv"))
    own = str(folder / "venv" / "bin" / "python")
    run(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), *libraries)
    run(own, "-m", "pip", "check")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    run(own, "-W", "error::FutureWarning", "-c", SMOKE, version(), cwd=folder, env=environment)
    run(str(folder / "venv" / "bin" / "anabranch"), "--help", cwd=folder, env=environment)


def run(*words: str, **how: object) -> None:
    """Run a command; what it says is shown only if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False, **how)  # type: ignore[call-overload]
    if done.returncode:
        raise ReleaseError(f"`{' '.join(words)[:300]}` failed:\n{done.stdout}{done.stderr}")


def main() -> int:
    """The command line; 0 if all is well."""
    parser = argparse.ArgumentParser(description="Build a release and check it.")
    parser.add_argument(
        "--pages", default="https://example.invalid/anabranch/raw/main", help="where the README's links lead"
    )
    parser.add_argument("--newest-only", action="store_true", help="do not try the oldest libraries")
    asked = parser.parse_args()
    try:
        wanted = version()
        text = notes(wanted, (ROOT / "CHANGELOG.md").read_text())
        check_kept(wanted)
        with tempfile.TemporaryDirectory() as scratch:
            source, wheel = build(asked.pages, Path(scratch))
            print(
                f"built {source.name} ({source.stat().st_size:,} bytes) and {wheel.name} ({wheel.stat().st_size:,} bytes)"
            )
            for minor, python in pythons():
                for title, libraries in (("newest", []), ("oldest", lowest())):
                    if libraries and (asked.newest_only or minor != OLDEST_PYTHON):
                        continue  # the oldest libraries have no wheels for Pythons that came after them
                    place = Path(scratch) / f"{minor}-{title}"
                    place.mkdir()
                    try_wheel(wheel, python, libraries, place)
                    print(f"Python 3.{minor}, {title} libraries: installed, checked and used", flush=True)
                    shutil.rmtree(place)
        (DIST / "NOTES.md").write_text(f"# Anabranch {wanted}\n\n{text}")
        rehearsal = " (a rehearsal: the version ends with .dev0)" if wanted.endswith(".dev0") else ""
        print(
            f"ready in dist/{rehearsal}: twine upload dist/*.whl dist/*.tar.gz, with the notes of dist/NOTES.md"
        )
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
