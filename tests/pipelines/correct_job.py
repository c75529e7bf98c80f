"""Correct the pipeline of a seed in a folder, in a process that is killed at a storage call: FOLDER SEED CALL."""

import os
import signal
import sys

from anabranch.cascade import run_correction
from anabranch.storage.open import open_storage
from tests.pipelines.engines import Embedded
from tests.pipelines.pipeline import pipeline
from tests.support import dying


class Killed(BaseException):
    """Is never raised: the process is gone before."""

    def __init__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder, seed, call):
    dying.Died = Killed
    engine = Embedded(pipeline(int(seed), stateless=True), open_storage(folder))
    lake = engine.lake_on(dying.DyingStorage(engine.storage(), int(call)))
    run_correction(lake, engine.pipeline.wrong.sink, "good", engine.jobs(), runner=engine.run_one)


if __name__ == "__main__":
    main(*sys.argv[1:])
