"""Finds what is no file under the names of the table's own files: folders, and links that lead nowhere.

Both hide what was under that name, and no file can be put there; so whoever wants that name fails, as often as it tries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.format.records.layout import BRANCH_FOLDER, HISTORY_FOLDER, MANIFEST_FOLDER
from anabranch.kernel.log.context import TableContext
from anabranch.kernel.repair.problem import Kind, Problem
from anabranch.storage.links import no_files

_OURS: Final = re.compile(
    "(snapshot|schema|tag|savepoint|consumer|manifest|MAIN|SEAL|RELEASE|FIELD-IDS|GROUP|DELETED|AUDIT|MERGE|NOTES|carry|expired|main|"
    "history|removed)-.+|LATEST|EARLIEST|FORK|MAIN-BRANCH"
)
"""Names of files; folders of other names do no harm."""


def misplaced(main: TableContext, contexts: Sequence[TableContext]) -> Iterator[Problem]:
    """Yield a problem for each folder or broken link in the place of a file; one listing for each folder of metadata.

    Args:
        main: the main branch.
        contexts: all branches, that in the table's own folder included.
    """
    folders: dict[str, str | None] = dict.fromkeys(
        (BRANCH_FOLDER, HISTORY_FOLDER, MANIFEST_FOLDER, main.layout.savepoint_folder)
    )
    for context in contexts:
        layout = context.layout
        own = (layout.snapshot_folder, layout.schema_folder, layout.tag_folder, layout.consumer_folder)
        folders.update(dict.fromkeys((*own, layout.branch_file_path("ledger")), context.branch))
        if context.branch is not None:
            folders[layout.branch_root] = context.branch
    for folder, branch in folders.items():
        for path, leads_to in no_files(main.storage, folder):
            if leads_to is None and not _OURS.fullmatch(path.rpartition("/")[2]):
                continue
            what = "a folder" if leads_to is None else f"a link to {leads_to}, which is not there"
            hint = (
                "move the folder elsewhere; it is none of the table's."
                if leads_to is None
                else "bring back what the link leads to, or else remove the link."
            )
            yield Problem(
                Kind.RECORD,
                f"{path} is {what}: nothing can be read there, and no file of that name can be put",
                path,
                branch,
                hint=f"{hint} Then `verify` again.",
            )
