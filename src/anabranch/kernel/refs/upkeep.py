"""Post-commit maintenance of a table's references by writing jobs: automatic tags and savepoints."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from anabranch.errors import AnabranchError
from anabranch.format.records.snapshot import Snapshot
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.refs.auto_tags import due_tags
from anabranch.kernel.refs.savepoints import due_savepoint

_LOG = logging.getLogger(__name__)


def keep_due(context: TableContext, options: Mapping[str, str], committed: Snapshot) -> None:
    """Create the tags and the savepoint that are due after this commit.

    Never fails the commit: errors are logged, and the next commit tries again.

    Args:
        context: the branch.
        options: of the table, overridden by those of the job.
        committed: the snapshot just made.
    """
    try:
        for name in due_tags(context, options, committed):
            _LOG.info("%s: tag '%s' was made", context.title, name)
    except AnabranchError as error:
        _LOG.warning("%s: automatic tags were not made: %s", context.title, error)
    try:
        made = due_savepoint(context, options, committed)
        if made is not None:
            _LOG.info("%s: savepoint %d keeps snapshot %d", context.title, made.id, made.saved_snapshot_id)
    except AnabranchError as error:
        _LOG.warning("%s: the savepoint that is due was not made: %s", context.title, error)
