"""Index from manifest lists to manifests, for operations that read the lists of a whole history.

Every list is read once, however often its ref is looked at, and each manifest's metadata is kept once, however
many lists name it: a list is then an array of 4-byte numbers. Nothing goes through the cache of the process, which
would only evict what others need. Lists are immutable and their names unique, so what was read once stays valid.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from anabranch.errors import CorruptTableError
from anabranch.format.records.data_file import ManifestFileMeta
from anabranch.kernel.expiry.ref_files import Ref
from anabranch.kernel.log.context import TableContext

_NONE = array("I")


class ListIndex:
    """Manifests of many lists, by number. A manifest's number is its index in `manifests`."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self.manifests: list[ManifestFileMeta] = []
        """As in the first list read that names it."""
        self._numbers: dict[str, int] = {}
        self._lists: dict[str, array[int]] = {}

    def of(self, name: str) -> array[int]:
        """Return the manifests of a list that was read."""
        return self._lists.get(name, _NONE)

    def __contains__(self, name: str) -> bool:
        """Whether a list was read."""
        return name in self._lists

    def metas(self, name: str) -> tuple[ManifestFileMeta, ...]:
        """Return the manifests of a list that was read, with their metadata."""
        return tuple(map(self.manifests.__getitem__, self.of(name)))

    def add(self, name: str, metas: Iterable[ManifestFileMeta]) -> None:
        """Take in a list that somebody has read, which `read` is to be asked for."""
        self._lists[name] = array("I", self._numbered(metas))

    def read(self, named_by: Mapping[str, Ref]) -> None:
        """Read the lists not read yet, and drop all that are not requested.

        Args:
            named_by: for the name of each list a ref that needs it.

        Raises `CorruptTableError` naming the ref that needs an unreadable list.
        """
        self._lists = {name: found for name, found in self._lists.items() if name in named_by}
        missing = [name for name in named_by if name not in self._lists]
        read = self._context.manifests.read_lists(missing, keep=False)
        for name, metas in zip(missing, read, strict=True):
            if isinstance(metas, CorruptTableError):
                raise unreadable(named_by[name], metas) from metas
            self.add(name, metas)

    def _numbered(self, metas: Iterable[ManifestFileMeta]) -> Iterable[int]:
        for meta in metas:
            number = self._numbers.setdefault(meta.file_name, len(self.manifests))
            if number == len(self.manifests):
                self.manifests.append(meta)
            yield number


def unreadable(ref: Ref, error: CorruptTableError) -> CorruptTableError:
    """Return the error for a remaining ref that cannot be read in full."""
    return CorruptTableError(
        f"{ref.name} cannot be read in full, so it is not known what is needed: {error.message}",
        hint=f"nothing was deleted. Restore the file, or remove the {ref.name} if nobody needs it.",
    )
