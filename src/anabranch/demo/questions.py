"""The demo's queries in plain Spark SQL, run in a separate program beside the one that streams.

    python -m anabranch.demo.questions WAREHOUSE MASTER CONF

It reads statements from standard input as a list in JSON, carries them out one after the other over the catalog
`lake`, and writes their answers as a list in JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.errors import AnabranchError

STRONG_WIND = 25.0
"""Miles an hour."""
WINDY = f"wind_speed >= {STRONG_WIND:.0f}"
GOOD = "good"
"""Tag of `demo.delays` before the mistake."""

COMPACT = "CALL lake.sys.compact(table => 'demo.{}', full => true)"
LATE_IN_WIND = f"""SELECT origin, count(*) AS flights, round(avg(dep_delay), 1) AS minutes_late
FROM lake.demo.delays
WHERE {WINDY}
GROUP BY origin ORDER BY origin"""  # noqa: S608 - all of it is above
FARTHEST = """SELECT carrier, dest, count(*) AS flights, round(max(distance_km)) AS km
FROM lake.demo.long_hauls
GROUP BY carrier, dest ORDER BY km DESC, carrier LIMIT 3"""
THEN_AND_NOW = f"""SELECT 'good' AS moment, count(*) AS flights FROM lake.demo.delays VERSION AS OF '{GOOD}'
UNION ALL SELECT 'main@1, which was replaced', count(*) FROM lake.demo.`delays$branch_main@1`
UNION ALL SELECT 'now', count(*) FROM lake.demo.delays"""  # noqa: S608
JOBS = "SELECT job, table_name, role FROM lake.sys.table_lineage ORDER BY job, role, table_name"
ALL = (COMPACT.format("delays"), LATE_IN_WIND, FARTHEST, THEN_AND_NOW, JOBS)

_SETTINGS: dict[str, Any] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.log.level": "WARN",
}


@dataclass(frozen=True, slots=True)
class QuestionRows:
    """Rows of a statement."""

    statement: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def column(self, name: str) -> list[Any]:
        """Return the values of one column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


def ask(
    warehouse: str, statements: Sequence[str], log: Path, master: str, conf: Mapping[str, str]
) -> list[QuestionRows]:
    """Run statements in a separate Spark. Raises `AnabranchError` with the text of the log if it fails."""
    with log.open("ab") as sink:
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "anabranch.demo.questions", warehouse, master, json.dumps(dict(conf))],
            input=json.dumps(statements).encode(),
            stdout=subprocess.PIPE,
            stderr=sink,
            check=False,
        )
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise AnabranchError(f"the demo's questions failed:\n{tail}", hint=f"the whole log is {log}.")
    found = json.loads(done.stdout)
    return [
        QuestionRows(statement, tuple(answer["columns"]), tuple(tuple(row) for row in answer["rows"]))
        for statement, answer in zip(statements, found, strict=True)
    ]


def main(warehouse: str, master: str, conf: str = "{}") -> None:
    """Run the statements from standard input."""
    import anabranch.spark

    spark = anabranch.spark.session(warehouse, master=master, **{**_SETTINGS, **json.loads(conf)})
    answers = []
    for statement in json.load(sys.stdin):
        frame = spark.sql(statement)
        answers.append({"columns": frame.columns, "rows": [list(row) for row in frame.collect()]})
    json.dump(answers, sys.stdout, default=str)  # times of day and such are for reading
    # Spark's JVM ends with this process: a bad exit of it would not invalidate the answers.


if __name__ == "__main__":
    main(*sys.argv[1:])
