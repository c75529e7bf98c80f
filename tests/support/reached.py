"""What the refs of a table reach, the slow way: every ref by itself, every entry of its manifests in order."""

import json

from anabranch.kernel.log.cache import MetadataCache
from anabranch.kernel.log.file_paths import bucket_folders
from anabranch.kernel.log.manifest_store import ManifestStore

_FOLDERS = ("manifest/", "index/", "statistics/", "bucket-")


def ref_files(storage):
    """Path and content of every snapshot, tag and savepoint of every branch."""
    for root in ("", *(f"{folder}/" for folder in storage.list_folders("branch"))):
        for kind in ("snapshot", "tag", "savepoint"):
            for info in storage.list(f"{root}{kind}"):
                name = info.path.rpartition("/")[2].removeprefix(f"{kind}-")
                if name.isdigit() or kind == "tag":
                    yield info.path, json.loads(storage.get(info.path))


def reached_paths(table):
    """Paths of all data files and metadata files that any ref of the table reaches."""
    storage = table.context.storage
    manifests = ManifestStore(storage, MetadataCache())
    paths = set()
    for _, content in ref_files(storage):
        keys = ("fullManifestList",) if "fullManifestList" in content else _LISTS
        lists = [content[key] for key in keys]
        metas = [meta for name in lists for meta in manifests.read_list(name)]
        paths |= {f"manifest/{name}" for name in [*lists, *(meta.file_name for meta in metas)]}
        live = manifests.entries(metas).live().df
        paths |= set(bucket_folders(live, table.schema) + "/" + live["file_name"])
    return paths


_LISTS = ("baseManifestList", "deltaManifestList")


def stored_paths(table):
    """Paths of all files of the kinds that a ref may reach, unfinished writes included."""
    infos = table.context.storage.list(recursive=True, include_temporary=True)
    paths = {info.path for info in infos if not info.path.startswith(".orphans/")}
    return {path for path in paths if path.startswith(_FOLDERS) or "/bucket-" in path}
