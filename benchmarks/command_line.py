"""How long a command takes from the prompt, and an import."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.contestants import ANABRANCH, DELTA, ICEBERG, PYPAIMON, Contestant
from benchmarks.input_data import write_parts
from benchmarks.registry import Row, Run, Verdict, benchmark, ratio_to, within

WRITERS = (ANABRANCH, PYPAIMON, ICEBERG)
MODULE = "benchmarks.workers.commands"
COMMANDS = {writer: replace(writer, module=MODULE) for writer in (*WRITERS, DELTA)}
ROWS = 1_000
IMPORTS = {
    ANABRANCH: "from anabranch import connect",
    PYPAIMON: "from pypaimon import CatalogFactory",
    ICEBERG: "from pyiceberg.catalog import load_catalog",
    DELTA: "from deltalake import DeltaTable",
}


@benchmark("command-line", "From the prompt", *COMMANDS.values())
def command_line(run: Run) -> list[Row]:
    """One command in a new process, from the prompt to its end, on a table of 1,000 rows in a local folder. delta-rs has no command line
    and pyiceberg's reads no rows. The import is of what opens a lake, catalog or table; that of delta-rs, a library in Rust, loads
    neither pyarrow nor Polars, which take more than half of ours, before they are asked for."""
    part = write_parts(run.scratch / "input", 1, ROWS)[0]
    homes = {c: str(run.scratch / "commands" / c.module.rpartition(".")[2]) for c in WRITERS}
    for contestant, home in homes.items():
        run.laps(contestant, "append", home=home, parts=[part])
    rows = [_row(run, "import", {c: {"code": code} for c, code in IMPORTS.items()})]
    for work, words in {
        "list tables": {
            ANABRANCH: ["anabranch", "-w", "HOME", "tables"],
            PYPAIMON: ["paimon", "-c", "CONFIG", "db", "list-tables", "db"],
            ICEBERG: ["pyiceberg", "--catalog", "bench", "list", "db"],
        },
        "describe a table": {
            ANABRANCH: ["anabranch", "-w", "HOME", "describe", "db.t"],
            PYPAIMON: ["paimon", "-c", "CONFIG", "table", "get", "db.t"],
            ICEBERG: ["pyiceberg", "--catalog", "bench", "describe", "db.t"],
        },
        "read five rows": {
            ANABRANCH: ["anabranch", "-w", "HOME", "read", "db.t", "--limit", "5"],
            PYPAIMON: ["paimon", "-c", "CONFIG", "table", "read", "db.t", "--limit", "5"],
        },
    }.items():
        rows.append(_row(run, work, {c: {"home": homes[c], "words": w} for c, w in words.items()}))
    return rows


def _row(run: Run, work: str, given: dict[Contestant, dict[str, Any]]) -> Row:
    found = run.measure(work, "command", {COMMANDS[c]: arguments for c, arguments in given.items()})
    peers = [c.name for c in given if c not in (ANABRANCH, DELTA)]
    verdicts: list[Verdict] = [ratio_to(found, ANABRANCH.name, peers, 1.0)] if work != "import" else []
    if work == "list tables":
        verdicts.append(within(found, ANABRANCH.name, 0.4))
    return Row(work, found, verdicts)
