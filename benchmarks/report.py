"""Results as JSON and as a page."""

from __future__ import annotations

import inspect
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.registry import BENCHMARKS, Benchmark, Row

INTRODUCTION = """# Benchmarks

Written by `make bench` (`python -m benchmarks`). In every row all contestants did the same work in turns, in one
run on one machine, each in its own environment and every time in a new process; the clock excludes starting
Python, importing and a small warm-up. Times are medians of all repetitions, memory is the peak above what
the process held before the work. Compare within a row only: other machines give other numbers.
"""


def machine() -> dict[str, Any]:
    """The machine, without anything that identifies it."""
    system = platform.system()
    if system == "Linux":
        system = platform.freedesktop_os_release().get("PRETTY_NAME", system)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "system": system,
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def result_of(topic: Benchmark, rows: list[Row], date: str) -> dict[str, Any]:
    """One benchmark's part of the JSON: what was measured. Titles and texts stay in the sources."""
    versions: dict[str, dict[str, str]] = {c.name: c.versions() for c in topic.contestants}
    return {
        "date": date,
        "machine": machine(),
        "versions": versions,
        "rows": [_row(row) for row in rows],
    }


def _row(row: Row) -> dict[str, Any]:
    verdicts = [{**asdict(v), "met": v.met} for v in row.verdicts]
    measures = {name: asdict(measure) for name, measure in row.measures.items()}
    return {"work": row.work, "note": row.note, "measures": measures, "verdicts": verdicts}


def merge(path: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    """Put new results into the file, keep the others that still exist, and return all in the order of the registry."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    merged = {**known, **results}
    ordered = {name: merged[name] for name in BENCHMARKS if name in merged}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(ordered, indent=1) + "\n")
    return ordered


def page(results: Mapping[str, Any]) -> str:
    """The whole page; `results` by the name of the benchmark."""
    return "\n".join([INTRODUCTION, *(section(BENCHMARKS[name], result) for name, result in results.items())])


def section(topic: Benchmark, result: Mapping[str, Any]) -> str:
    """One benchmark as Markdown."""
    names = list(result["versions"])
    lines = [f"## {topic.title}", "", inspect.cleandoc(topic.run.__doc__ or ""), ""]
    header = ["Work", *names, "Target", "Reached"]
    lines += [_line(header), _line(["---", *("---:" for _ in names), "---", "---"])]
    for row in result["rows"]:
        cells = [_cell(row["measures"].get(name)) for name in names]
        verdicts = row["verdicts"]
        targets = "; ".join(v["target"] for v in verdicts)
        reached = "; ".join(
            f"{v['value']:.2f} {v['unit']}, {'met' if v['met'] else 'missed'}" for v in verdicts
        )
        lines.append(
            _line([row["work"] + (f" ({row['note']})" if row["note"] else ""), *cells, targets, reached])
        )
    m = result["machine"]
    lines += [
        "",
        f"{result['date']}. {m['processor']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']}, "
        f"Python {m['python']}. "
        + "; ".join(
            f"{name}: {', '.join(f'{p} {v}' for p, v in versions.items())}"
            for name, versions in result["versions"].items()
        )
        + ".",
        "",
    ]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(measure: Mapping[str, Any] | None) -> str:
    if measure is None:
        return "-"
    seconds = measure["seconds"]
    took = f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
    memory = measure["peak_bytes"]
    return took if memory is None else f"{took}, {memory / 1e6:,.0f} MB"
