"""Python runs this when it starts, in tests and in every process that they start.

Spark lets its processes import PySpark from an archive, where nothing is compiled: each compiles it anew, for half a
second of CPU. It is installed as well, compiled.

Spark forks a Python process for each task, plan and batch from one that has nothing imported: each imports us and
Arrow anew, for a second and a half of CPU. What they are forked from has it imported here.
"""

import contextlib
import gc
import sys

sys.path[:] = [place for place in sys.path if not place.endswith("pyspark.zip")]

if "pyspark.daemon" in sys.orig_argv:
    # Some tests run where the package, or an extra of it, is not installed.
    with contextlib.suppress(ImportError):
        import pyspark.worker  # noqa: F401

        import anabranch.spark.source.data_source
        import anabranch.spark.streams.stream_reader  # noqa: F401
    gc.freeze()
