"""The files of a table's history as values: snapshots, manifests, tags, branches, and the records of our own."""
