"""A process that corrects the story of `test_one_at_a_time` in a warehouse, and waits in the middle of it for ever."""

import sys
import time

from anabranch.cascade import run_cascade, run_correction
from anabranch.lake import connect
from tests.cascade.correcting import plus
from tests.cascade.embedded import run, streaming
from tests.cascade.story import doubled, even

GOOD, BAD = (streaming("orders", ["db.raw"], "db.orders", plus(added)) for added in (0, 900))
JOBS = streaming("clean", ["db.orders"], "db.clean", doubled), streaming("big", ["db.clean"], "db.big", even)
RIGHT = (GOOD, *JOBS)


def main(warehouse, door):
    lake = connect(warehouse)

    def runner(job, lake, how):
        if job.name == "big":
            print("waits", flush=True)
            time.sleep(600)
        return run(job, lake, how)

    if door == "correct":
        run_correction(lake, "db.orders", "good", RIGHT, runner=runner)
    else:
        run_cascade(lake, "db.orders", JOBS, runner=runner)


if __name__ == "__main__":
    main(*sys.argv[1:])
