"""Questions about lineage. Each is a function of a store of commits; answers are values of `lineage.trace`."""
