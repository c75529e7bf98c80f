"""What a session, a read or a write was given: warehouse, table, options."""
