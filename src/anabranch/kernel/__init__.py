"""What a table does: snapshots, plans, commits. It says what is to be done; an engine does it."""
