"""What is done with a table that has a branch, by one process."""

from tests.support.tables import rows


def append(table):
    table.append(rows(200, 1))


def append_to_fix(table):
    table.branch("fix").append(rows(300, 1))


def append_to_new(table):
    table.branch("new").append(rows(400, 1))


def overwrite(table):
    table.overwrite(rows(500, 1))


def create_branch(table):
    table.create_branch("new", "good")


def create_branch_of_snapshot(table):
    table.create_branch("new", snapshot=2)


def delete_branch(table):
    table.delete_branch("fix")


def delete_new(table):
    table.delete_branch("new")


def merge(table):
    table.merge_branch("fix")


def replace_main(table):
    table.replace_main_branch("fix", force=True)


def replace_content(table):
    table.replace_main_branch("fix", force=True, mode="commit")


def undo_replace(table):
    table.undo_replace()


def rollback(table):
    table.rollback(4)


def rollback_for_good(table):
    table.rollback(4, destructive=True)


def rollback_for_good_by_force(table):
    table.rollback(2, destructive=True, force=True)


def rollback_of_fix(table):
    table.branch("fix").rollback(4, destructive=True)


def expire(table):
    table.expire_snapshots(retain_max=2, retain_min=1)


def expire_fix(table):
    table.branch("fix").expire_snapshots(retain_max=1, retain_min=1)


def compact(table):
    table.compact(full=True)


def create_tag(table):
    table.create_tag("second", 2)


def create_savepoint(table):
    table.create_savepoint()


def delete_tag(table):
    table.delete_tag("good")


def alter(table):
    table.alter().add_column("more", "INT").apply()


def maintain(table):
    table.maintain()


def repair(table):
    table.repair()


ALL = {
    work.__name__: work
    for work in (
        append,
        append_to_fix,
        append_to_new,
        overwrite,
        create_branch,
        create_branch_of_snapshot,
        delete_branch,
        delete_new,
        merge,
        replace_main,
        replace_content,
        undo_replace,
        rollback,
        rollback_for_good,
        rollback_for_good_by_force,
        rollback_of_fix,
        expire,
        expire_fix,
        compact,
        create_tag,
        create_savepoint,
        delete_tag,
        alter,
        maintain,
        repair,
    )
}
