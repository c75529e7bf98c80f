"""Names of tables as users write them: ``database.table``, a branch of it, or one of its system tables."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import InvalidNameError
from anabranch.format.records.main_pointer import former_main_of
from anabranch.format.text.names import check_branch_name, check_database_name, check_table_name

_BRANCH_PREFIX = "branch_"


@dataclass(frozen=True, slots=True)
class Identifier:
    """``database.table[$branch_name][$system]``."""

    database: str
    table: str
    branch: str | None = None
    system: str | None = None

    @classmethod
    def parse(cls, text: str) -> Identifier:
        """Parse a name as users write it. Raises `InvalidNameError`."""
        if "://" in text:  # it may hold keys, as other tools write them
            raise InvalidNameError(
                f"a URL ({text.partition('://')[0]}://...) does not name a table",
                hint="name the warehouse where the lake is opened, and the table as database.table.",
            )
        database, dot, rest = text.partition(".")
        if not dot or not rest:
            raise InvalidNameError(
                f"'{text}' does not name a table", hint="write database.table, for example db.orders."
            )
        table, *suffixes = rest.split("$")
        branch = system = None
        for suffix in suffixes:
            if suffix.startswith(_BRANCH_PREFIX) and branch is None and system is None:
                branch = suffix.removeprefix(_BRANCH_PREFIX)
            elif suffix and system is None:
                system = suffix
            else:
                raise InvalidNameError(
                    f"'{text}' does not name a table",
                    hint="after the table's name there may be $branch_<name>, then one system table's name.",
                )
        check_database_name(database)
        check_table_name(table)
        if branch == "main":
            branch = None
        if branch is not None and former_main_of(branch) is None:
            check_branch_name(branch)
        return cls(database, table, branch, system)

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def path(self) -> str:
        """Folder of the table in its warehouse."""
        return f"{self.database}.db/{self.table}"
