"""Telling whether two processes have loaded the same job."""

import importlib
import sys

import pytest

from anabranch.jobs.definition import definition_of
from anabranch.jobs.load import load
from tests.jobs.files import write

FILE = """
import abc
import re
import helpers_of_definition as helpers

LIMIT = 3
WORDS = re.compile("a+")


class Price(abc.ABC):
    factor = 2
    __slots__ = ("a",)

    @property
    def unit(self):
        return "euro"

    def of(self, v):
        return v * self.factor


class Offset:
    def __init__(self, by):
        self.by = by


OFFSET = Offset(5)


def scale(v):
    return Price().of(v) + helpers.more(LIMIT) + OFFSET.by


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
        ('"euro"', '"yen"'),
        ("Offset(5)", "Offset(6)"),
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


@pytest.mark.parametrize(
    "use",
    [
        "def scale(v):\n    import helpers_of_definition\n    return helpers_of_definition.more(v)",
        "def scale(v):\n    from helpers_of_definition import more\n    return more(v)",
        "from package_of_definition import inner\ndef scale(v):\n    return inner.more(v)",
        "import package_of_definition.inner\ndef scale(v):\n    return package_of_definition.inner.more(v)",
    ],
    ids=["import inside", "from inside", "of a package", "dotted"],
)
def test_modules_elsewhere_and_those_imported_when_it_runs_count(tmp_path, monkeypatch, use):
    """They lie in a folder of their own, as a project's packages do."""

    def defined(name, helpers):
        packages = tmp_path / name / "packages"
        (packages / "package_of_definition").mkdir(parents=True)
        (packages / "package_of_definition" / "__init__.py").write_text("")
        (packages / "package_of_definition" / "inner.py").write_text(helpers)
        (packages / "helpers_of_definition.py").write_text(helpers)
        for module in [m for m in sys.modules if m.endswith("_of_definition") or "_of_definition." in m]:
            sys.modules.pop(module)
        importlib.invalidate_caches()
        with monkeypatch.context() as patched:
            patched.syspath_prepend(str(packages))
            folder = tmp_path / name / "jobs"
            folder.mkdir()
            start = FILE.index("def scale"), FILE.index("def unused")
            text = FILE[: start[0]] + use + "\n\n\n" + FILE[start[1] :]
            text = text.replace("import helpers_of_definition as helpers\n", "")
            return {job.name: definition_of(job) for job in load(write(folder, text)).jobs}

    first, same = defined("a", HELPERS), defined("b", HELPERS)
    changed = defined("c", HELPERS.replace("return n\n", "return n + 1\n"))
    assert first["clean"] is not None
    assert same == first
    assert changed["clean"] != first["clean"]


@pytest.mark.parametrize(
    "how", ["F.udf(LongType())", "F.pandas_udf(LongType())", "functools.wraps(print)", "functools.cache"]
)
def test_what_a_decorator_wraps_counts(tmp_path, how):
    def defined(name, factor):
        text = FILE.replace(
            "import re",
            "import functools\nimport re\nfrom pyspark.sql import functions as F\nfrom pyspark.sql.types import LongType",
            1,
        )
        text = text.replace(
            "def scale(v):",
            f"@{how}\ndef scale(v: 'pandas.Series') -> 'pandas.Series':\n    v = v * {factor}",
        )
        return definitions(tmp_path / name, text.replace("import re", "import pandas\nimport re", 1))["clean"]

    first, same, changed = defined("a", 2), defined("b", 2), defined("c", 3)
    assert first == same
    assert changed != first or (first is None and changed is None)


def test_what_cannot_be_told_apart_has_no_definition(tmp_path):
    found = definitions(tmp_path / "a", FILE.replace('re.compile("a+")', "object()"))
    assert found["clean"] is None
    assert found["bad"] is not None
