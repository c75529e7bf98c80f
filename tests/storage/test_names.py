"""Names, whatever they are made of."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidNameError
from anabranch.storage import names
from anabranch.storage.local import LocalStorage
from anabranch.storage.memory import MemoryStorage

# Whatever can be spelled, with what leads astray made likely.
anything = st.lists(
    st.sampled_from(["/", ".", "..", "a", "~", "%2e", "\\", " "]) | st.characters(), max_size=8
).map("".join)
segment = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text not in {".", ".."} and len(os.fsencode(text)) <= 255
)


@given(anything)
def test_an_accepted_name_stays_inside_the_root(path):
    try:
        names.check_path(path)
    except InvalidNameError:
        with pytest.raises(InvalidNameError):
            LocalStorage("/no/such/root").exists(path)
        return
    inside = os.path.normpath(os.path.join("/top/of/store", path))
    assert inside == "/top/of/store/" + path
    assert not LocalStorage("/no/such/root").exists(path)


@given(st.lists(segment, min_size=1, max_size=4))
def test_every_proper_name_is_accepted(segments):
    path = "/".join(segments)
    names.check_path(path)
    store = MemoryStorage()
    store.put(path, b"x")
    assert [info.path for info in store.list(recursive=True, include_temporary=True)] == [path]


@given(st.lists(segment, min_size=1, max_size=3), st.uuids())
def test_a_temporary_name_lies_beside_its_object_and_fits(segments, unique):
    path = "/".join(segments)
    temporary = names.temporary_name(path, str(unique))
    assert temporary.rpartition("/")[0] == path.rpartition("/")[0]
    assert len(os.fsencode(temporary.rpartition("/")[2])) <= 255
    assert names.is_temporary(temporary)
    names.check_path(temporary)


def test_temporary_names_are_those_that_other_engines_use_too():
    assert names.temporary_name("snapshot/snapshot-7", "1d6c") == "snapshot/.snapshot-7.1d6c.tmp"
    assert names.is_temporary("snapshot/.snapshot-7.1d6c.tmp")
    assert names.is_temporary(".x.tmp")
    for name in ("x.tmp", "a/x.tmp", ".a/x.tmp", ".tmp.x", "snapshot/snapshot-7"):
        assert not names.is_temporary(name)


def test_messages_say_what_is_wrong():
    for path, told in (("", "no segments"), ("a//b", "empty segment"), ("a/../b", "'..'"), ("a\0", "NUL")):
        with pytest.raises(InvalidNameError, match=told):
            names.check_path(path)
