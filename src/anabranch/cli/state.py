"""What the common options of the command line said."""

warehouse = "warehouse"
named: str | None = None
"""The warehouse as it was typed with --warehouse; None where the environment or the default names it."""
debug = False
json = False
"""Whether results, and errors, are JSON."""
pages = True
"""Whether long lists go through a pager."""
changes = False
"""Whether the verb that runs changes what is stored: then it goes on where its output cannot be written."""
