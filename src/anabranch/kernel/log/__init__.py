"""What is stored of a table's history, read side: snapshots, schemas, refs, branches, and which branch is main."""
