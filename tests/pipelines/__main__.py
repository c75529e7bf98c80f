"""Lives through random pipelines: ``python -m tests.pipelines --seeds 0:300 --keep-going``.

Prints of each its kinds, what became of it, and how long it took; of one that went wrong, what it is and the difference.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anabranch.spark
from anabranch.lineage import remembered
from tests.pipelines.engines import Embedded, OnSpark
from tests.pipelines.life import live
from tests.pipelines.oracle import Wrong
from tests.pipelines.pipeline import pipeline
from tests.spark.conftest import CONF


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="0:12")
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--depth", type=int, default=-3, help="lines of a trace")
    parser.add_argument("--embedded", action="store_true", help="without Spark: only jobs that keep no state")
    parser.add_argument("--keep", help="a folder for the warehouses, which stay there")
    given = parser.parse_args(arguments)
    seeds = [seed for part in given.seeds.split(",") for seed in _range(part)]
    folder = Path(given.keep or tempfile.mkdtemp(prefix="pipelines"))
    folder.mkdir(parents=True, exist_ok=True)
    spark = None if given.embedded else _session(folder)
    wrong, kinds, ways = [], Counter(), Counter()

    def one(seed):
        made = pipeline(seed, stateless=given.embedded)
        if given.verbose:
            print(made, flush=True)
        place = Path(tempfile.mkdtemp(prefix=f"seed{seed}-", dir=folder))
        remembered.forget()  # one pipeline has read nothing of those before it
        try:
            engine = Embedded(made) if given.embedded else OnSpark(spark, place, made)
            outcome, seconds = live(made, engine, print if given.verbose else lambda _: None)
        except BaseException as error:
            print(f"seed {seed} WRONG: {error}\n  {made}", flush=True)
            if not isinstance(error, Wrong):
                traceback.print_exception(error, limit=given.depth)
            wrong.append(seed)
            if not given.keep_going:
                raise
        else:
            kinds.update(made.kinds)
            ways.update(outcome.ways)
            told = f"{', '.join(made.kinds)}; {outcome.told}, {outcome.compared} tables compared"
            print(f"seed {seed}: {told}, {seconds:.1f} s", flush=True)
        finally:
            if not given.keep:
                shutil.rmtree(place, ignore_errors=True)

    try:
        if given.threads == 1:
            for seed in seeds:
                one(seed)
        else:
            with ThreadPoolExecutor(given.threads) as pool:
                list(pool.map(one, seeds))
    finally:
        if spark is not None:
            spark.stop()
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{len(seeds)} pipelines, {len(wrong)} wrong {wrong or ''}; kinds {dict(kinds)}; state {dict(ways)}"
    )
    return 1 if wrong else 0


def _range(text):
    first, _, last = text.partition(":")
    return range(int(first), int(last or int(first) + 1))


def _session(folder):
    spark = anabranch.spark.session(str(folder / "warehouse"), master="local[2]", **CONF)
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    return spark


if __name__ == "__main__":
    sys.exit(main())
