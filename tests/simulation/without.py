"""A plugin of pytest that takes a mend out: ``ANABRANCH_WITHOUT=name pytest -p tests.simulation.without``."""

import os

from tests.simulation.mutations import MUTATIONS


def pytest_configure():
    MUTATIONS[os.environ["ANABRANCH_WITHOUT"]].patch()
