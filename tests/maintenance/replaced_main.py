"""A table of which a branch became main, for damage to that."""

import os

import anabranch
from anabranch.kernel.log.cache import SHARED
from tests.support.tables import ids_of

SCHEMA = "id BIGINT, p STRING"


def maker(tmp_path):
    """Makes a table of which the branch `fix` became main."""

    def make(*, retained="1 d", savepoint=False, other=False, more=(31, 32)):
        table = anabranch.connect(str(tmp_path)).create_table(
            "db.t",
            SCHEMA,
            options={
                "branch.replaced-main.time-retained": retained,
                "branch.seal.timeout": "1 s",
                "snapshot.expire.automatic": "false",
            },
        )
        for number in range(3):
            table.append(rows(number))
        if savepoint:
            table.create_savepoint()
        table.create_tag("good")
        table.create_branch("fix", tag="good")
        if other:
            table.create_branch("other", tag="good")
        table.branch("fix").append(rows(30))
        table.replace_main_branch("fix")
        for number in more:
            fresh(table).append(rows(number))
        return fresh(table)

    return make


def rows(number):
    return [{"id": number, "p": "a"}]


def fresh(table):
    """As another process opens it, which knows nothing from before."""
    SHARED.__init__()
    return anabranch.connect(table.context.storage.url.removesuffix("/db.db/t")).table("db.t")


def kinds(table):
    return {str(p.kind) for p in fresh(table).verify(deep=True).problems}


READS = {
    "read": ids_of,
    "append": lambda t: t.append(rows(99)),
    "maintain": lambda t: t.maintain(),
    "expire": lambda t: t.expire_snapshots(retain_max=1, retain_min=1),
    "remove orphans": lambda t: t.remove_orphan_files(),
    "delete the branch": lambda t: t.delete_branch("fix"),
    "replace": lambda t: t.replace_main_branch("fix", force=True),
}


def ready(root):
    """What a table is made of besides hints."""
    return {
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
    }
