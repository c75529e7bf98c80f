"""Tables that branches are made of, and what is looked at then."""

from dataclasses import replace

import anabranch
from anabranch.kernel.log.cache import MetadataCache
from tests.support.clock import at_time
from tests.support.moments import copied_history

FORK_PIN = "anabranch-fork-"


def tagged():
    """Snapshots 1 to 6 with the rows 0 to 5, and a tag `good` of the third."""
    table = copied_history()
    table.create_tag("good", 3)
    return table


def again(table):
    """The table as another process has it."""
    return anabranch.Table(replace(table.context, cache=MetadataCache()))


def paths(table):
    return {info.path for info in table.context.storage.list(recursive=True)}


def pins(table):
    return [name for name in table.tags(include_internal=True) if name.startswith(FORK_PIN)]


def later(table, millis):
    """The table as it is found so much later."""
    clock = table.context.runtime.clock

    class Later:
        def __getattr__(self, name):
            return getattr(clock, name)

        def now_millis(self):
            return clock.now_millis() + millis

    found = at_time(table, Later())
    return anabranch.Table(replace(found.context, cache=MetadataCache()))
