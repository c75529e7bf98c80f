import json

import pytest

from anabranch.errors import InvalidInputError
from anabranch.lineage.model import EMBEDDED, LineageEntry, SourceInput, TableInput
from anabranch.lineage.spark_offsets import inputs_between, parse_batch_offsets
from anabranch.streaming.offsets import Offset, Position

METADATA = '{"batchWatermarkMs":1700000000000,"batchTimestampMs":1795234059704,"conf":{"a":"b"}}'


def ours(number: int, origin: Position | None = None) -> str:
    return json.dumps(Offset("t-1", "b-1", "db.t", Position(number, f"s{number}"), origin).to_dict())


def log(*offsets: str, metadata: str = METADATA) -> str:
    return "\n".join(["v1", metadata, *offsets])


def test_version_1_lists_sources_by_their_place():
    batch = parse_batch_offsets(log('{"logOffset":0}', "-", "5"))
    assert batch.ends == {"0": {"logOffset": 0}, "1": None, "2": 5}
    assert batch.watermark_millis == 1700000000000


def test_version_2_names_the_sources():
    batch = parse_batch_offsets('v2\n{}\nleft:{"a":{"0":1}}\nright:-')
    assert batch.ends == {"left": {"a": {"0": 1}}, "right": None}
    assert batch.watermark_millis is None


def test_line_separators_inside_of_names_do_not_split_lines():
    name = Offset("t", "b", "db.a\u2028b", Position(1, "s"))
    batch = parse_batch_offsets(log(json.dumps(name.to_dict(), ensure_ascii=False)))
    assert Offset.from_dict(batch.ends["0"]) == name


def test_a_watermark_of_zero_is_none():
    assert parse_batch_offsets(log("5", metadata='{"batchWatermarkMs":0}')).watermark_millis is None
    assert parse_batch_offsets(log("5", metadata="")).watermark_millis is None


@pytest.mark.parametrize("text", ["", "v3\n{}\n5", "v1\n{\n5", "v1\n{}\nnonsense"])
def test_what_is_no_offset_log_is_refused(text):
    with pytest.raises(InvalidInputError, match="offset log"):
        parse_batch_offsets(text)


def test_inputs_are_the_range_between_two_batches():
    first = parse_batch_offsets(log(ours(5, Position(2, "s2")), '{"topic":{"0":3,"1":4}}', '{"logOffset":7}'))
    second = parse_batch_offsets(
        log(ours(9, Position(2, "s2")), '{"topic":{"0":3,"1":9}}', '{"logOffset":7}')
    )
    assert inputs_between(first, second) == (
        TableInput("db.t", "t-1", "b-1", Position(5, "s5"), Position(9, "s9")),
        SourceInput("kafka", "source 1", {"topic": {"0": 3, "1": 4}}, {"topic": {"0": 3, "1": 9}}),
    )


def test_the_first_batch_begins_at_the_origin_of_its_end():
    batch = parse_batch_offsets(log(ours(5, Position(2, "s2")), '{"logOffset":0}', '"2024"'))
    assert inputs_between(None, batch) == (
        TableInput("db.t", "t-1", "b-1", Position(2, "s2"), Position(5, "s5")),
        SourceInput("files", "source 1", None, {"logOffset": 0}),
        SourceInput("unknown", "source 2", None, "2024"),
    )


def test_a_range_says_what_its_branch_began_with():
    begun = (("b-0", 4), ("t-1", 2))
    offsets = [Offset("t-1", "b-1", "db.t", Position(n, f"s{n}"), begun=begun) for n in (5, 9)]
    texts = [json.dumps(offset.to_dict()) for offset in offsets]
    assert [Offset.from_dict(json.loads(text)).begun for text in texts] == [begun, begun]
    (read,) = inputs_between(*(parse_batch_offsets(log(text)) for text in texts))
    assert read.begun == begun
    entry = LineageEntry("job", None, None, EMBEDDED, (read,))
    assert [kept.begun for kept in LineageEntry.from_json(entry.to_json(), where="").inputs] == [begun]


@pytest.mark.parametrize("begun", [5, "x", [["b-0"]], [["b-0", "x"]], [None], {"b-0": 4}, [["b-0", 1e999]]])
def test_what_says_nothing_of_a_beginning_stops_no_stream(begun):
    value = json.loads(ours(5)) | {"begun": begun}
    assert Offset.from_dict(value).begun == ()
