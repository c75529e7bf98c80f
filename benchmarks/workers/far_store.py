"""Works on an S3 server behind a proxy that lets each request wait: seconds, requests, and how many of them after each other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.s3 import running_s3

import anabranch
from anabranch.kernel.log.cache import DEFAULT_CAPACITY, SHARED
from benchmarks.workers.harness import Clock, main
from benchmarks.workers.slow_proxy import slow_proxy

ROW = pa.table({"id": [1], "v": ["a"]})


def works(clock: Clock, home: str, millis: int, snapshots: int, tables: int) -> dict[str, Any]:
    """Each work begins with cold caches, but for those that say otherwise. Facts are seconds, requests and depth by work."""
    found: dict[str, tuple[float, int, int]] = {}
    folder = Path(home)
    folder.mkdir(parents=True)
    with running_s3(folder) as server, slow_proxy(server.endpoint, millis) as proxy:
        url = server.new_url()
        near = anabranch.connect(url, options=server.options)
        table = near.create_table("db.t", ROW.schema, options={"write-only": "true"})
        for number in range(snapshots):
            table.append(ROW)
            if number == snapshots // 2:
                table.create_tag("base")
        table.create_branch("fix", "base")
        table.branch("fix").append(ROW)
        for number in range(tables):
            near.create_table(f"db.other{number}", ROW.schema).append(ROW)
        far = anabranch.connect(url, options=server.options_through(proxy.endpoint))

        def measured(work: str, do: Any, *, is_cold: bool = True) -> Any:
            if is_cold:
                SHARED.limit_to(0)
                SHARED.limit_to(DEFAULT_CAPACITY)
            proxy.cost()
            start = time.perf_counter()
            with clock.lap():
                answer = do()
            found[work] = (time.perf_counter() - start, *proxy.cost())
            return answer

        far.table("db.t")  # what connections and imports take once
        measured("open and first plan", lambda: far.table("db.t").scan().plan())
        opened = far.table("db.t")
        opened.scan().plan()
        measured("plan again", lambda: opened.scan().plan(), is_cold=False)
        opened.append(ROW)
        measured("append again", lambda: opened.append(ROW), is_cold=False)
        measured("all snapshots", lambda: [*opened.snapshots()])
        tail = opened.tail(start="snapshot.1", idle=0)
        measured("first rows of a backlog", lambda: next(iter(tail)))
        far.lineage.jobs()
        measured("lineage, nothing new", far.lineage.jobs)
        measured("merge", lambda: far.table("db.t").merge_branch("fix"))
        table.branch("fix").append(ROW)
        measured("merge again, one commit more", lambda: far.table("db.t").merge_branch("fix"))
        measured("create a tag", lambda: far.table("db.t").create_tag("now"))
        measured("create a branch", lambda: far.table("db.t").create_branch("more", "now"))
        measured("replace main", lambda: far.table("db.t").replace_main_branch("fix", force=True))
        measured("undo the replacement", lambda: far.table("db.t").undo_replace())
        measured(
            "expire", lambda: far.table("db.t").expire_snapshots(retain_max=5, retain_min=1, older_than=0)
        )
        measured("maintain", lambda: far.table("db.t").maintain())
    return {
        name: {work: one[place] for work, one in found.items()}
        for place, name in enumerate(("seconds", "requests", "depth"))
    }


if __name__ == "__main__":
    main({"works": works})
