"""Which names are acceptable."""

from __future__ import annotations

import pytest

from anabranch.errors import InvalidNameError
from anabranch.format.text.names import (
    check_branch_name,
    check_column_name,
    check_database_name,
    check_table_name,
    check_tag_name,
)

CHECKS = [check_database_name, check_table_name, check_column_name, check_branch_name, check_tag_name]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "name",
    ["", " ", "\t", "\u3000", ".", "..", "a..b", ".hidden", "a/b", "/etc", "../x", "a\\b", "a\x00b", "a\nb", "a\x7f",
     "a\u2028b", "a\u202eb", "\ud800", "x" * 129, "名" * 86, None, 3, b"a"],
)  # fmt: skip
def test_names_that_could_lead_elsewhere_or_hide_are_refused(check, name):
    with pytest.raises(InvalidNameError) as caught:
        check(name)
    str(caught.value).encode("utf-8")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", ["a", "Orders_2", "a-b", "x" * 128])
def test_plain_names_are_accepted(check, name):
    check(name)


@pytest.mark.parametrize("name", ["sys", "SYS", "a.db", "x.DB", "a.b", "a$b", " a"])
def test_databases_refused(name):
    with pytest.raises(InvalidNameError):
        check_database_name(name)


@pytest.mark.parametrize("name", ["t$snapshots", "t$branch_x", "$", "a "])
def test_tables_refused(name):
    with pytest.raises(InvalidNameError):
        check_table_name(name)


@pytest.mark.parametrize("name", ["größe", "订单", "v1.2", "a b", "名" * 85])
def test_tables_accepted(name):
    check_table_name(name)


@pytest.mark.parametrize(
    "name", ["_KEY_id", "_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "rowkind", "_ROW_ID"]
)
def test_system_columns_are_reserved_but_not_inside_rows(name):
    with pytest.raises(InvalidNameError, match="reserved"):
        check_column_name(name)
    check_column_name(name, nested=True)


@pytest.mark.parametrize(
    "name", ["_id", " padded ", "a.b", "price (€)", "a,b", "key=value", "ROWKIND", "$x", "`"]
)
def test_columns_accepted(name):
    check_column_name(name)


@pytest.mark.parametrize("name", ["main", "Main", "12", "a b", "ü", "a@1", "main@1", "a$b", "a:b", "fix\n"])
def test_branches_refused(name):
    with pytest.raises(InvalidNameError):
        check_branch_name(name)


@pytest.mark.parametrize("name", ["fix", "fix-2", "v1.2_a", "main2", "12a", "MAIN-1"])
def test_branches_accepted(name):
    check_branch_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "1",
            "007",
            "٣",
            "snapshot.5",
            "savepoint.12",
            "watermark-3",
            "anabranch-savepoint-3",
            "anabranch-",
            "main.good",
            "main@1.snapshot.5",
        ),
        *("2026-01-31  10", "2026-01-31\u00a010", "a\u2003b", "a\u3000b"),
    ],
)
def test_tags_refused(name):
    with pytest.raises(InvalidNameError):
        check_tag_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "good",
        "2024-01-31 10",
        "20240131a",
        "snapshot.x",
        "watermark-",
        "größe",
        "v1.2",
        "main",
        "main.",
        "mainly.x",
    ],
)
def test_tags_accepted(name):
    check_tag_name(name)


def test_the_tables_own_tags_have_the_reserved_prefix():
    check_tag_name("anabranch-savepoint-3", reserved=True)
    with pytest.raises(InvalidNameError):
        check_tag_name("good", reserved=True)
