"""Read side of a table's stored history: snapshots, schemas, refs, branches, and the pointer to main."""
