"""Threads of the product's own, done without: in a simulated world only the processes take turns."""

from concurrent.futures import Future

import anabranch.arrow.pipeline
import anabranch.arrow.reader
import anabranch.format.avro.files
import anabranch.kernel.log.parallel


class Inline:
    """A pool that does the work at once, in the thread that hands it in."""

    def __init__(self, *args, **how):
        pass

    def submit(self, work, *args, **how):
        future = Future()
        try:
            future.set_result(work(*args, **how))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work, *items):
        return map(work, *items)

    def shutdown(self, **how):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


MODULES = (
    anabranch.arrow.pipeline,
    anabranch.arrow.reader,
    anabranch.kernel.log.parallel,
    anabranch.format.avro.files,
)


def do_without():
    """From now on this Python process has no pools."""
    for module in MODULES:
        module.ThreadPoolExecutor = Inline
