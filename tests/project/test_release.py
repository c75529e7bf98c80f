"""What builds a release, and the checks of the host that call the same targets."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def release():
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(ROOT / "tools"))
    return module


CHANGES = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [1.2.0] - 2030-01-01\n\n### Added\n\n- b\n\n## [1.1.0]\n\n- a\n"


def test_notes_are_the_section_of_the_version(release):
    assert release.notes("1.2.0", CHANGES) == "### Added\n\n- b\n"
    assert release.notes("1.1.0", CHANGES) == "- a\n"
    assert release.notes("1.3.0.dev0", CHANGES) == "- new\n"
    for version in ("1.2", "2.0.0"):
        with pytest.raises(release.ReleaseError, match="no section"):
            release.notes(version, CHANGES)


def test_links_that_need_the_tree_are_found(release):
    page = '<a href="docs/x.md">x</a> <a href="#top">t</a> <a href="https://a.b/c">c</a><img src="y.svg">'
    assert release.relative(page) == ["docs/x.md", "y.svg"]


def test_the_tree_is_ready_for_a_rehearsal(release):
    release.check_kept(release.version())
    assert release.notes(release.version(), (ROOT / "CHANGELOG.md").read_text())
    with pytest.raises(release.ReleaseError, match=r"tests\.compatibility\.kept"):
        release.check_kept("99.0.0")


def test_lower_bounds_are_taken_to_the_letter(release):
    found = release.lowest()
    assert all(re.fullmatch(r"[\w.-]+==[0-9.]+", one) for one in found), found


def test_the_host_calls_targets_that_there_are():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set()
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
            for step in job["steps"]:
                words = re.findall(r"^make (\S+)", step.get("run", ""))
                called |= set(matrix) if words == ["${{"] else set(words)
    assert called <= targets
    assert {"lint", "test", "test-long", "environments", "interop", "spark-versions", "release"} <= called


def test_reports_of_bugs_ask_for_commands_that_there_are():
    import typer.main

    from anabranch.cli.main import app

    verbs = typer.main.get_command(app).commands.keys()
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug_report.yml").read_text())
    labels = [part["attributes"].get("label", "") for part in form["body"]]
    asked = [label.split()[1] for label in labels if label.startswith("anabranch ")]
    assert asked == ["doctor", "jobs", "verify"]
    assert set(asked) <= set(verbs)
