"""The page reference/python.md: public classes and functions with their signatures and docstrings.

It is not stored: the site's hook makes it whenever the site is built, so it cannot be out of date.
"""

import inspect
import re

import anabranch
import anabranch.jobs
import anabranch.spark
from anabranch.scan.scan import Plan
from anabranch.table.alter import Alter
from anabranch.table.lake_lineage import LakeLineage
from anabranch.table.lineage import TableLineage

PATH = "reference/python.md"
HEADER = """# Python

Public names with their signatures and docstrings, made from the code when this site is built. `anabranch` is what you import; errors are on
[Errors](../errors.md).
"""
FUNCTIONS = {
    "anabranch": (
        anabranch,
        (
            "connect",
            "duckdb",
            "progress",
            "requests",
            "col",
            "job",
            "sql_job",
            "stream",
            "static",
            "topic",
            "files",
        ),
    ),
    "anabranch.spark": (anabranch.spark, ("session", "attach", "cluster", "read_stream", "await_bounded")),
}
CLASSES = {
    "Lake": anabranch.Lake,
    "Table": anabranch.Table,
    "Scan": anabranch.Scan,
    "Plan": Plan,
    "Alter": Alter,
    "TableLineage": TableLineage,
    "LakeLineage": LakeLineage,
    "SavepointManager": anabranch.SavepointManager,
    "Diff": anabranch.Diff,
    "Verdict": anabranch.Verdict,
    "Snapshot": anabranch.Snapshot,
    "Savepoint": anabranch.Savepoint,
    "Tag": anabranch.Tag,
    "Moment": anabranch.Moment,
    "BranchInfo": anabranch.BranchInfo,
    "MergeResult": anabranch.MergeResult,
    "ReplaceResult": anabranch.ReplaceResult,
}


def page() -> str:
    """The page's text."""
    parts = [HEADER]
    for module, (home, names) in FUNCTIONS.items():
        parts.append(f"\n## Functions of {module}\n")
        parts += [_function(f"{module}.{name}", getattr(home, name), 3) for name in names]
    for name, kind in CLASSES.items():
        parts.append(f"\n## {name}\n\n{_text(kind)}\n")
        parts += [_member(name, member, value) for member, value in members(kind)]
    return "".join(parts)


def members(kind):
    """Public methods and properties of a class, by name, those of its bases included."""
    for name, value in inspect.getmembers(kind):
        is_ours = (getattr(getattr(value, "fget", value), "__module__", "") or "").startswith("anabranch")
        is_lazy = not callable(value) and hasattr(value, "__get__") and value.__doc__
        if not name.startswith("_") and (is_ours or is_lazy) and inspect.getdoc(value):
            yield name, value


def _member(owner, name, value) -> str:
    if inspect.isfunction(value) or inspect.ismethod(value):
        return _function(f"{owner}.{name}", value, 3)
    return f"\n### {owner}.{name}\n\n{_text(value)}\n"


def _function(name, function, level) -> str:
    return f"\n{'#' * level} {name}\n\n```text\n{signature(name, function)}\n```\n\n{_text(function)}\n"


def signature(name, function) -> str:
    """How a function is called; a parameter a line where one line is too long."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return f"{name}(...)"
    inner = list(_parameters(found))
    result = "" if found.return_annotation is found.empty else f" -> {_annotation(found.return_annotation)}"
    line = f"{name}({', '.join(inner)}){result}"
    return (
        line if len(line) <= 96 else "\n".join([f"{name}(", *(f"    {one}," for one in inner), f"){result}"])
    )


def _parameters(found):
    star = False
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            yield "*"
        star = star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        typed = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        yield f"{mark}{parameter.name}{typed}{default}"


def _annotation(given) -> str:
    return given if isinstance(given, str) else inspect.formatannotation(given)


def _text(value) -> str:
    """A docstring in Google's style, as Markdown."""
    told, _, example = (inspect.getdoc(value) or "").partition("\nExample:\n")
    lines, kept = told.splitlines(), []
    inside = False
    for line in lines:
        heading = re.fullmatch(r"(Args|Returns|Raises|Yields|Attributes|Note):", line)
        if heading:
            inside = True
            kept += [f"**{heading[1]}**", ""]
        elif inside and (item := re.match(r"    (\S[^:]*): (.*)", line)):
            kept.append(f"- `{item[1]}`: {item[2]}")
        elif inside and line.startswith("     "):
            kept.append(f"  {line.strip()}")
        else:
            inside = inside and (not line or line.startswith("    "))
            kept.append(line.strip() if inside else line)
    text = "\n".join(kept)
    shown = f"\n\n```pycon\n{inspect.cleandoc(example)}\n```" if example else ""
    return re.sub(r"``(.+?)``", r"`\1`", text).replace("<", "&lt;") + shown
