"""Telling whether two processes have loaded the same job."""

import pytest

from anabranch.jobs.definition import definition_of
from anabranch.jobs.load import load
from tests.jobs.files import write

FILE = """
import re
import helpers_of_definition as helpers

LIMIT = 3
WORDS = re.compile("a+")


class Price:
    factor = 2

    def of(self, v):
        return v * self.factor


def scale(v):
    return Price().of(v) + helpers.more(LIMIT)


def unused(v):
    return 7


@anabranch.job("clean", sources={"raw": "db.raw"}, sink="db.clean")
def clean(raw):
    return [scale(v) for v in raw if (lambda x: x > 0)(v) and WORDS]


@anabranch.job("bad", sources={"raw": "db.raw"}, sink="db.bad")
def bad(raw):
    return raw
"""
HELPERS = "def more(n):\n    return deeper(n) + 1\n\n\ndef deeper(n):\n    return n\n"


def definitions(folder, text=FILE, helpers=HELPERS):
    import sys

    folder.mkdir()
    (folder / "helpers_of_definition.py").write_text(helpers)
    sys.modules.pop("helpers_of_definition", None)
    path = list(sys.path)
    try:
        return {job.name: definition_of(job) for job in load(write(folder, text)).jobs}
    finally:
        sys.path[:] = path
        sys.modules.pop("helpers_of_definition", None)


def test_the_same_job_in_another_file_has_the_same_definition(tmp_path):
    first = definitions(tmp_path / "a")
    moved = "# a comment that moves all lines\\n\n" + FILE.replace("return 7", "return 8")
    again = definitions(tmp_path / "b", moved.replace("    return raw\n", "    return raw.where('x')\n"))
    assert None not in first.values()
    assert again["clean"] == first["clean"], "what it does not use may change"
    assert again["bad"] != first["bad"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("factor = 2", "factor = 3"),
        ("v * self", "v + self"),
        ("x > 0", "x > 1"),
        ('"a+"', '"b+"'),
        ('sink="db.clean"', 'sink="db.other"'),
        ("helpers.more(LIMIT)", "helpers.deeper(LIMIT)"),
    ],
)
def test_whatever_it_uses_counts(tmp_path, old, new):
    first, changed = definitions(tmp_path / "a"), definitions(tmp_path / "b", FILE.replace(old, new))
    assert changed["clean"] != first["clean"]
    assert changed["bad"] == first["bad"]


def test_functions_of_modules_beside_it_count_however_deep(tmp_path):
    first = definitions(tmp_path / "a")
    changed = definitions(tmp_path / "b", helpers=HELPERS.replace("return n\n", "return n + 1\n"))
    assert changed["clean"] != first["clean"]


def test_what_cannot_be_told_apart_has_no_definition(tmp_path):
    found = definitions(tmp_path / "a", FILE.replace('re.compile("a+")', "object()"))
    assert found["clean"] is None
    assert found["bad"] is not None
