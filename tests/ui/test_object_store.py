"""The page of a lake in an object store."""

import pytest

import anabranch
from anabranch.ui.answers import ANSWERS
from anabranch.ui.asked import Asked
from anabranch.ui.site import Site
from tests.support.s3 import running_s3
from tests.ui import shop

pytestmark = [pytest.mark.long, pytest.mark.s3]


def test_every_answer_is_the_same_over_s3(tmp_path):
    with running_s3(tmp_path) as server:
        url = server.new_url()
        shop.build(url, options=server.options)
        lake = anabranch.connect(url, options=server.options)
        site = Site(lake, warehouse=url)

        def ask(what, **given):
            return ANSWERS[what](site, Asked(given.items()))

        assert len(ask("lake")["tables"]) == 5
        assert ask("facts", name="shop.orders")["shop.orders"]["rows"] == 125
        of_table = {"table": "shop.orders"}
        assert ask("table", **of_table, at="good")["snapshot"]["rows"] == 80
        assert len(ask("history", **of_table)["rows"]) == 13
        assert {link["kind"] for link in ask("graph", **of_table)["links"]} == {"merge", "replaced_main"}
        assert len(ask("rows", **of_table)["rows"]) == 50
        assert ask("diff", **of_table, left="main@1", rows="1")["counts"].inserted == 40
        for what in ("health", "schemas", "sizes", "partitions", "statistics"):
            assert ask(what, **of_table)
        for what in ("jobs", "lineage"):
            assert ask(what)
