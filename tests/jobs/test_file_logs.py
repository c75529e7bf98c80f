"""Which files a job had read, as Spark's logs in its checkpoint say: carried to the next query."""

import json

from anabranch.jobs.state.carry import carry
from anabranch.jobs.state.held import held_state
from anabranch.storage.memory import MemoryStorage


def log_of(entries):
    """Text of a log, from its entries: each a file with the batch that read it."""
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": batch}) for path, batch in entries]
    return "\n".join(["v1", *lines]).encode()


def entries_of(content):
    version, *lines = content.decode().split("\n")
    assert version == "v1"
    return [(one["path"], one["batchId"]) for one in map(json.loads, lines)]


def test_a_file_that_was_read_twice_hides_no_batch_of_its_log():
    """Spark reads one again that is written anew after `maxFileAge`: both batches name it."""
    checkpoint, target = MemoryStorage(), MemoryStorage()
    again = "file:///in/a.json"
    checkpoint.put("sources/0/1.compact", log_of([(again, 0), ("file:///in/b.json", 1)]))
    checkpoint.put("sources/0/1", log_of([("file:///in/b.json", 1)]))  # as Spark leaves it for a while
    checkpoint.put("sources/0/2", log_of([(again, 2)]))
    for batch in (1, 2):
        text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{}}}}\n{{"logOffset":{batch}}}'
        checkpoint.put(f"offsets/{batch}", text.encode())
    checkpoint.put("commits/2", b'v1\n{"nextBatchWatermarkMs":0}')
    carry(held_state(checkpoint, 2, has_state=False), target, lambda offset: offset)
    expected = [(again, 0), ("file:///in/b.json", 1), (again, 2)]
    assert entries_of(target.get("sources/0/2.compact")) == expected
