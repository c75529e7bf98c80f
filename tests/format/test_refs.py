"""Tags and consumers as files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CorruptTableError, UnsupportedFeatureError
from anabranch.format.records.refs import Consumer, Tag
from anabranch.format.records.snapshot import Snapshot

from .schema_values import attempt, fixture_files, mutated_documents
from .test_snapshot import FIRST, SNAPSHOTS

PATH = "tag/tag-good"
HOUR = 3_600_000
EVENING = 1795229808511
"""2026-11-21 02:56:48.511 in milliseconds."""


def read(data):
    return Tag.from_json(
        data if isinstance(data, bytes) else json.dumps(data).encode(), name="good", path=PATH
    )


def document(**changes):
    return {**json.loads(FIRST.to_json()), **changes}


def test_tags_of_other_writers_are_read():
    tags = {}
    for file in fixture_files("tag-"):
        tag = Tag.from_json(file.read_bytes(), name=file.name[4:], path=str(file))
        assert tag.snapshot == replace(Snapshot.from_json(file.read_bytes(), path=str(file)), extra={})
        tags[tag.name, file.parts[-6]] = tag
    kept = [tag for (name, _), tag in tags.items() if name == "kept"]
    assert kept
    for tag in kept:
        assert tag.time_retained == 3_153_600_000_000
        assert EVENING <= tag.create_time < EVENING + 10_000
    assert tags["v1", "e_tags_branches"].create_time is None


def test_a_tag_is_its_snapshot_and_two_times():
    tag = Tag("good", FIRST, EVENING, 86_400_500)
    assert json.loads(tag.to_json()) == document(
        tagCreateTime=[2026, 11, 21, 2, 56, 48, 511_000_000], tagTimeRetained=86400.5
    )
    assert json.loads(Tag("good", FIRST).to_json()) == document()
    marked = Tag("good", FIRST, mark="m")
    assert json.loads(marked.to_json()) == document(**{"anabranch.mark": "m"})
    found = read(marked.to_json())
    assert (found.mark, found) == ("m", read(document())), "who wrote it is no part of what it says"


def test_a_changed_bit_in_the_key_of_a_time_is_damage():
    """Such a tag would never go, or count as another engine's."""
    values = json.loads(Tag("good", FIRST, EVENING, 86_400_500, EVENING).to_json())
    for key in ("tagCreateTime", "tagTimeRetained", "anabranch.created-millis"):
        changed = {
            name if name != key else f"{name[:-1]}{chr(ord(name[-1]) ^ 4)}": values[name] for name in values
        }
        with pytest.raises(CorruptTableError, match=f"one bit changed in place of '{key}'"):
            read(changed)


@pytest.mark.parametrize(
    ("parts", "millis"),
    [
        ([2026, 11, 21, 2, 56, 48, 511_792_866], EVENING),
        ([2026, 11, 21, 2, 56, 48], EVENING - 511),
        ([2026, 11, 21, 2, 56], EVENING - 48_511),
        ([1969, 12, 31, 23, 59, 59, 999_999_999], -1),
        (None, None),
    ],
)
def test_create_times_may_lack_trailing_zeros(parts, millis):
    assert read(document(tagCreateTime=parts)).create_time == millis


@pytest.mark.parametrize(
    ("seconds", "millis"), [(86400.5, 86_400_500), (3600, 3_600_000), (0, 0), (1e300, 2**50), (2**63, 2**50)]
)
def test_retention_is_in_seconds(seconds, millis):
    assert read(document(tagTimeRetained=seconds)).time_retained == millis


def test_retention_beyond_all_numbers_is_for_ever():
    data = json.dumps(document(tagTimeRetained=17)).replace("17}", "1e999}").encode()
    assert read(data).time_retained == 2**50


@pytest.mark.parametrize(
    "changes",
    [{"tagCreateTime": value} for value in (
        [2026, 11, 21, 2], [2026, 13, 1, 0, 0], [0, 1, 1, 0, 0], [10**30, 1, 1, 0, 0], [2026, 1, 1, 0, 0, 0, 0, 0],
        [2026, 1, 1, 0, 0.5], [2026, True, 1, 0, 0], "2026-01-01", {}, [2026, 1, 1, 0, 0, 0, -1], [[]] * 7)]
    + [{"tagTimeRetained": value} for value in (-1, "PT1H", True, [])],
)  # fmt: skip
def test_times_that_cannot_be_are_corrupt(changes):
    with pytest.raises(CorruptTableError, match=next(iter(changes))) as caught:
        read(document(**changes))
    assert caught.value.path == PATH


def test_retention_is_exact_up_to_the_longest():
    for millis in (2**50 - 700, 2**50 - 623, 2**50 - 1, 2**50):
        assert read(Tag("good", FIRST, None, millis).to_json()).time_retained == millis


def test_a_tag_expires_after_its_time():
    tag = Tag("good", FIRST, EVENING + 7 * HOUR, 1000, EVENING)
    assert not tag.is_expired(EVENING + 1000)
    assert tag.is_expired(EVENING + 1001)
    assert not Tag("good", FIRST, EVENING).is_expired(2**60)
    assert not Tag("good", FIRST, None, 1000).is_expired(2**60)


def test_a_local_time_without_its_zone_may_be_of_any():
    """It was this late in the west twelve hours after it was in UTC; a file is stored after its tag is made."""
    tag = Tag("good", FIRST, EVENING, 1000)
    assert not tag.is_expired(EVENING + 12 * HOUR + 1000)
    assert tag.is_expired(EVENING + 12 * HOUR + 1001)
    assert not tag.is_expired(EVENING - 3 * HOUR + 1000, stored=EVENING - 3 * HOUR)
    assert tag.is_expired(EVENING - 3 * HOUR + 1001, stored=EVENING - 3 * HOUR)
    assert tag.is_expired(EVENING + 12 * HOUR + 1001, stored=EVENING + 90 * HOUR), "the file was copied since"


@pytest.mark.parametrize("offset", [-12, -8, 0, 5.5, 14])
def test_other_engines_keep_a_tag_long_enough_in_every_zone(offset):
    tag = Tag("good", FIRST, EVENING + int(offset * HOUR), 7 * HOUR, EVENING)
    foreign = read(without_own_times(tag.to_json()))
    for zone in (-12, 0, 14):  # as they do it: local time against local time
        assert foreign.create_time + foreign.time_retained >= EVENING + (zone + 7) * HOUR
    assert foreign.create_time + foreign.time_retained == EVENING + (14 + 7) * HOUR
    own = read(tag.to_json())
    assert (own.time_retained, own.created_millis, own.create_time) == (7 * HOUR, EVENING, tag.create_time)


def without_own_times(data):
    content = json.loads(data)
    kept = {key: value for key, value in content.items() if not key.startswith("anabranch.")}
    return json.dumps(kept).encode()


@given(SNAPSHOTS, st.none() | st.integers(-(10**13), 10**14), st.none() | st.integers(0, 2**50))
def test_tags_survive_their_file(snapshot, create_time, time_retained):
    tag = Tag("good", snapshot, create_time, time_retained)
    assert read(tag.to_json()) == tag
    if create_time is not None and time_retained is not None and create_time >= 0:
        own = Tag("good", snapshot, create_time, time_retained, create_time)
        assert read(own.to_json()) == own


@given(mutated_documents([document(tagCreateTime=[2026, 11, 21, 2, 56, 48, 511], tagTimeRetained=1.5)]))
def test_a_damaged_tag_is_read_or_refused(data):
    _, error = attempt(lambda: read(data))
    assert error is None or isinstance(error, CorruptTableError | UnsupportedFeatureError)
    assert error is None or error.path == PATH


def test_consumers():
    assert Consumer(7).to_json() == b'{\n  "nextSnapshot": 7\n}'
    assert Consumer.from_json(b'{"nextSnapshot" : 7}', path="consumer/consumer-a") == Consumer(7)


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"nextSnapshot": "7"}', b'{"nextSnapshot": -1}', b"7"])
def test_a_consumer_cut_off_is_corrupt(data):
    with pytest.raises(CorruptTableError, match="consumer/consumer-a"):
        Consumer.from_json(data, path="consumer/consumer-a")
