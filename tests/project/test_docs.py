"""Pages of the documentation: their code runs or says why not, their commands exist, and what they name is there."""

import ast
import functools
import inspect
import json
import os
import re
import shlex
import subprocess
import sys

import click
import pytest
import typer.main

import anabranch
from anabranch.cli.main import app, run
from tests.project.pages import DOCS, ROOT, blocks, carried_out, commands, name_of, named_tests, pages, policy

PAGES = [page for page in pages() if any(blocks(page))]
RUN = [page for page in PAGES if policy(page) == "run"]
RUN_LONG = [page for page in PAGES if policy(page) == "run long"]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANABRANCH_WAREHOUSE", raising=False)
    carried_out(page, run)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("page", RUN_LONG, ids=name_of)
def test_the_code_of_a_page_with_spark_runs(page, tmp_path, monkeypatch):
    monkeypatch.delenv("ANABRANCH_WAREHOUSE", raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.project.pages", name_of(page)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_says_what_becomes_of_its_code():
    """Either it runs, or it says why not and which test does the same."""
    for page in PAGES:
        said = policy(page)
        assert said is not None, f"{name_of(page)} says nothing in its first line"
        if said not in ("run", "run long"):
            assert named_tests(said), f"{name_of(page)}: no test is named in '{said}'"
        for block in blocks(page):
            if block.rule == "not run":
                assert re.search(r"tests/|file of its own|runs until", block.why), (
                    f"{block.page}:{block.line}"
                )


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_no_block_is_overlooked(page):
    """A fence that is written otherwise would hide its code from all tests of this file."""
    text = page.read_text()
    assert len(re.findall(r"^[ >]*(?:```|~~~)", text, re.MULTILINE)) == 2 * len([*blocks(page)])
    assert not re.search(
        r"^(?: {4,}|\t)\$? ?(?:anabranch|pip|make|python) ",
        re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_targets_of_make_on_pages_are_there(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in blocks(page):
        if block.kind in ("", "sh"):
            assert {*re.findall(r"^make ([a-z-]+)", block.code, re.MULTILINE)} <= targets


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_test_that_a_page_names_is_there(page):
    for named in named_tests(page.read_text()):
        file, _, function = named.partition("::")
        assert (ROOT / file).exists(), f"{name_of(page)}: {named}"
        if function:
            text = (ROOT / file).read_text()
            assert re.search(rf"def {function}\b", text), f"{name_of(page)}: {named}"


def test_every_guarantee_names_a_test():
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", (DOCS / "guarantees.md").read_text(), flags=re.MULTILINE)
    promises = [row for row in rows if row[0] not in ("promise", "---")]
    assert len(promises) >= 40
    assert [promise for promise, held in promises if not named_tests(held)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_is_python(page):
    for block in blocks(page):
        if block.kind == "python" and not block.code.lstrip().startswith((">>>", ".option")):
            ast.parse(block.code, f"{block.page}:{block.line}")


HOLDERS = {
    **dict.fromkeys(("t", "table", "orders", "clean", "fix", "raw", "events", "mine"), anabranch.Table),
    "lake": anabranch.Lake,
    "scan": anabranch.Scan,
    "anabranch": anabranch,
}
"""What the names of the pages stand for."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "side-by-side"], ids=name_of)
def test_calls_on_pages_fit_the_code(page):
    """Also where a block is a fragment that does not run: methods are there, and take what they are given by name."""
    for block in blocks(page):
        if block.kind == "python" and not block.code.lstrip().startswith((">>>", ".option")):
            for call in ast.walk(ast.parse(block.code)):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    _check_call(call, f"{block.page}:{block.line + call.lineno - 1}: {ast.unparse(call)}")


def _check_call(call, place):
    holder = HOLDERS.get(call.func.value.id) if isinstance(call.func.value, ast.Name) else None
    if holder is None or (holder is anabranch.Table and call.func.attr in FRAMES):
        return
    assert hasattr(holder, call.func.attr), place
    takes = inspect.signature(getattr(holder, call.func.attr)).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values()):
        assert {word.arg for word in call.keywords if word.arg} <= takes.keys(), place


FRAMES = {
    "where",
    "select",
    "groupBy",
    "join",
    "filter",
    "withColumn",
    "createOrReplaceTempView",
    "dropDuplicates",
}
"""In jobs and streams the same names are DataFrames."""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_are_there(page):
    group = _commands()
    for block in blocks(page):
        if block.kind in ("", "sh"):
            for words in commands(block.code):
                _check(group, words, f"{block.page}:{block.line}: anabranch {shlex.join(words)}")


@functools.cache
def _commands():
    return typer.main.get_command(app)


def _check(group, words, place):
    """The verb and its options; what stands for something (`FILE...`, `W`) is not looked at."""
    words, command, known = list(words), group, _options(group)
    while words:
        word = words.pop(0).partition("=")[0]
        if word in ("...", "VERB") or word.startswith("["):
            return
        if word.startswith("-") and len(word) > 1 and not word.lstrip("-").isdigit():
            assert word in known, f"{place}: {word}"
            if not known[word].is_flag and words:
                words.pop(0)
        elif isinstance(command, click.Group) or hasattr(command, "commands"):
            assert word in command.commands, f"{place}: there is no verb {word}"
            command = command.commands[word]
            known = _options(command)


def _options(command):
    found = {
        name: p for p in command.params if p.param_type_name == "option" for name in p.opts + p.secondary_opts
    }
    return found | {
        "--help": next(p for p in command.get_params(click.Context(command)) if "--help" in p.opts)
    }


def _tools(module):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return __import__(module)
    finally:
        sys.path.pop(0)


def test_pages_made_from_the_code_are_current():
    stale = [name_of(path) for path, text in _tools("reference").pages().items() if path.read_text() != text]
    assert stale == [], "run `make docs`"


def test_the_page_about_python_has_every_public_name():
    page = _tools("python_reference").page()
    names = {
        n
        for n in anabranch.__all__
        if not n.endswith("Error") and n not in ("__version__", "Job", "Source", "TableSchema")
    }
    assert [
        name for name in sorted(names) if not re.search(rf"^#+ (anabranch\.)?{name}$", page, re.MULTILINE)
    ] == []
    assert "### Table.replace_main_branch" in page


def test_the_page_about_the_architecture_names_every_package():
    page = (DOCS / "architecture.md").read_text()
    rooms = [p for p in (ROOT / "src" / "anabranch").iterdir() if (p / "__init__.py").exists()]
    assert [room.name for room in rooms if f"{room.name}/" not in page] == []


def test_every_page_is_in_the_navigation():
    config = (ROOT / "mkdocs.yml").read_text()
    missing = [name_of(p) for p in DOCS.rglob("*.md") if f"{p.relative_to(DOCS)}" not in config]
    assert missing == []


def test_links_between_pages_lead_somewhere():
    made = {"python.md"}
    for page in pages():
        for target in re.findall(
            r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        ):
            if target.rpartition("/")[2] not in made:
                assert (page.parent / target).exists(), f"{name_of(page)}: {target}"


def test_the_readme_on_a_package_index_has_no_link_into_the_tree():
    text = _tools("index_readme").readme("https://example.com/anabranch/main")
    assert "](docs/" not in text
    assert 'src="docs/' not in text
    assert "https://example.com/anabranch/main/docs/assets/correction.svg" in text


def test_the_site_lists_its_versions_newest_first_and_leads_to_the_newest_release(tmp_path):
    for name in ("0.9.0", "0.10.0", "0.11.0.dev0", "assets", "0.2.0"):
        (tmp_path / name).mkdir()
    listed = _tools("build_site").list_versions(tmp_path)
    assert [one["version"] for one in listed] == ["0.11.0.dev0", "0.10.0", "0.9.0", "0.2.0"]
    assert [one["version"] for one in listed if one["aliases"]] == ["0.10.0"]
    assert listed[0]["title"] == "0.11.0 (in development)"
    assert "url=0.10.0/" in (tmp_path / "index.html").read_text()
    assert json.loads((tmp_path / "versions.json").read_text()) == listed


@pytest.mark.long
def test_the_recording_of_the_terminal_is_what_the_commands_print():
    text, picture = _tools("terminal_recording").recorded()
    for said in (
        "totals (1 commit) ▸ shop.totals",
        "delete    3  Oslo   700.0",
        "insert    3  Oslo     7.0",
        "'fix' is now main",
    ):
        assert said in text
    stored = (DOCS / "assets" / "terminal.svg").read_text()
    assert [
        word for word in re.findall(r"prices|undo-replace|main..fix", picture) if word not in stored
    ] == []


def test_pictures_ask_for_nothing_elsewhere_and_say_what_they_show():
    for picture in (DOCS / "assets").glob("*.svg"):
        text = picture.read_text()
        assert not re.search(r"(href|src|url)\s*[=(]\s*[\"']?https?:", text), picture.name
        if picture.name.startswith(("concept", "correction", "overview")):
            assert "<title" in text, picture.name
            assert "prefers-color-scheme: dark" in text, picture.name


@pytest.mark.long
def test_the_site_is_built_and_no_link_or_anchor_leads_nowhere(tmp_path):
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "branches" / "index.html").read_text()
    assert "slate" in page, "no dark scheme"
    loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?https?://[^ >]+", page)
    assert loaded == [], "the site asks for something elsewhere"
