"""The jobs of the soak, as a file that `anabranch run` runs: five, with and without state, with a lookup and a chain."""

TEXT = """
import anabranch
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import soak_controls

CODE = {code}
EVERY = "{every}"
SHUFFLE = {shuffle}

marked_by = F.udf(soak_controls.{function}, LongType())


@anabranch.job("kept", sources={{"raw": "db.raw"}}, sink="db.kept", trigger=EVERY)
def kept(raw):
    return raw.where("v % 10 <> 3").selectExpr("id", "v", "at")


@anabranch.job("marked", sources={{"raw": "db.raw"}}, sink="db.marked", trigger=EVERY)
def marked(raw):
    return raw.select("id", marked_by("v").alias("v"))


@anabranch.job("once", sources={{"raw": "db.raw"}}, sink="db.once", trigger=EVERY)
def once(raw):
    return raw.dropDuplicates(["id", "at"]).select("id", "v")


@anabranch.job("counted", sources={{"raw": "db.raw"}}, sink="db.counted", trigger=EVERY)
def counted(raw):
    spans = raw.groupBy(F.window("at", "10 seconds"))
    return spans.agg(F.count("*").alias("n"), F.sum("v").alias("v")).select(F.col("window.start").alias("at"), "n", "v")


anabranch.sql_job(
    "named",
    "SELECT kept.id, names.name FROM kept JOIN names ON kept.v % 7 = names.k",
    sources={{"kept": "db.kept", "names": anabranch.static("db.names")}},
    sink="db.named",
    trigger=EVERY,
)
"""

CONTROLS = '''
"""What the function of a job does is ruled by files: it hangs, or meets a row that it cannot take."""

import pathlib
import time

HANG = pathlib.Path({hang!r})
POISON = {poison}


def strict(v):
    while HANG.exists():
        time.sleep(0.2)
    if v == POISON:
        raise ValueError("poison: no mark for this row")
    return v * 2


def lenient(v):
    return None if v == POISON else v * 2
'''

POISON = -666


def write(folder, *, code, every, hang):
    """Write the file and the module beside it; the second code takes the row that the first one does not."""
    function = "strict" if code == 1 else "lenient"
    (folder / "soak_controls.py").write_text(CONTROLS.format(hang=str(hang), poison=POISON))
    path = folder / "soak_jobs.py"
    path.write_text(TEXT.format(code=code, every=every, shuffle=2, function=function))
    return path
