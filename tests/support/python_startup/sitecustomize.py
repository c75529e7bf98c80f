"""Python runs this when it starts, in tests and in every process that they start.

Spark lets its processes import PySpark from an archive, where nothing is compiled: each compiles it anew, for half a
second of CPU. It is installed as well, compiled.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith("pyspark.zip")]
