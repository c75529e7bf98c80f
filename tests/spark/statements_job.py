"""The statements of `corpus` through Spark Connect: `test_statements_connect` runs it.

python -m tests.spark.statements_job WAREHOUSE FILE...
"""

import sys
from pathlib import Path

import anabranch
import anabranch.spark
from tests.spark.corpus_files import carry_out, statements_in


def main(warehouse, *files):
    spark = anabranch.spark.session(warehouse, remote="local[2]", **{"spark.sql.shuffle.partitions": "2"})
    lake = anabranch.connect(warehouse, spark=spark)
    wrong = []
    for file in files:
        try:
            carry_out(lake.sql, [s for s in statements_in(Path(file)) if not s.classic])
        except AssertionError as error:
            wrong.append(f"{file}\n{error}")
    spark.stop()
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    main(*sys.argv[1:])
