"""What a table's files say, read without any code of the product: JSON, fastavro and pyarrow alone."""

import hashlib
import io
import json

import fastavro
import pyarrow.parquet as pq


def stamp_of(content):
    """What tells a snapshot from any other of its id."""
    keys = ("commitUser", "commitIdentifier", "timeMillis", "baseManifestList", "deltaManifestList")
    identity = json.dumps([content[key] for key in keys])
    return hashlib.sha256(identity.encode("ascii")).digest()[:16].hex()


class Walker:
    """Follows references from snapshots to rows. What a file of a unique name says is read once."""

    def __init__(self, store, root):
        self._store, self._root = store, root
        self._avro, self._rows, self._folders = {}, {}, {}

    def saw(self, path):
        """Remember where a data file lies: manifests name files, and their names are unique."""
        folder, _, name = path.rpartition("/")
        if "bucket-" in folder and "/.orphans/" not in path:
            self._folders[name] = folder

    def reach(self, content):
        """Paths of all files that a snapshot, tag or savepoint (as parsed JSON) reaches.

        Raises `KeyError` with the path of a file that is not there.
        """
        paths = set()
        for name in _lists(content):
            paths.add(self._metadata(name))
            for meta in self._records(name):
                paths.add(self._metadata(meta["_FILE_NAME"]))
        return frozenset(paths | {self._data(file) for _, _, file in self.live(content)})

    def live(self, content):
        """(bucket, first sequence number, name) of each live file, in the order in which rows are read."""
        live = {}
        for name in _lists(content):
            for meta in self._records(name):
                for entry in self._records(meta["_FILE_NAME"]):
                    file = entry["_FILE"]
                    key = (entry["_PARTITION"], entry["_BUCKET"], file["_FILE_NAME"])
                    if entry["_KIND"] == 0:
                        live[key] = ((key[0], key[1]), file["_MIN_SEQUENCE_NUMBER"], key[2])
                    else:
                        live.pop(key, None)
        return sorted(live.values(), key=lambda found: found[:2])

    def rows(self, content):
        """Ids of all rows, by bucket, in the order in which they are read."""
        found = {}
        for bucket, _, name in self.live(content):
            found.setdefault(bucket, []).extend(self._ids(name))
        return found

    def _ids(self, name):
        if name not in self._rows:
            data = self._store.objects[self._data(name)].data
            self._rows[name] = pq.ParquetFile(io.BytesIO(data)).read(["id"])["id"].to_pylist()
        return self._rows[name]

    def _data(self, name):
        return f"{self._folders[name]}/{name}" if name in self._folders else f"?/{name}"

    def _metadata(self, name):
        return f"{self._root}/manifest/{name}"

    def _records(self, name):
        if name not in self._avro:
            self._avro[name] = [*fastavro.reader(io.BytesIO(self._store.objects[self._metadata(name)].data))]
        return self._avro[name]


def _lists(content):
    return [content[key] for key in ("baseManifestList", "deltaManifestList") if content.get(key)]
