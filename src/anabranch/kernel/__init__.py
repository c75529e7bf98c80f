"""Table semantics: snapshots, scan plans and commits. Decides what to read and write; an engine executes it."""
