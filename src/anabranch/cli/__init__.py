"""The command line: verbs, their arguments and how results are shown."""
